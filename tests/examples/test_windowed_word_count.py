"""examples/windowed-word-count: windows that overlap, and lines that come late."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime

from .conftest import EXAMPLES, Stage

# Windows of five seconds that begin at so many seconds after the start.
ON_TIME = {
    "mill": {-4: 1, -2: 2, 0: 2, 2: 1, 4: 1, 6: 1},
    "water": {-4: 1, -2: 1, 0: 3, 2: 2, 4: 1, 6: 1},
    "wheel": {896: 1, 898: 1, 900: 1},
}
LATE = {"mill": {446: 1, 448: 1, 450: 1}}


def test_late_lines_count_within_ten_minutes_and_not_after(stage: Stage) -> None:
    start = (int(time.time()) // 3600 - 1) * 3600  # not long ago: Kafka removes old records
    lines = stage.topic()
    send(stage, lines, "on-time.csv", start)
    run_status = stage.run("windowed-word-count", {"timed-lines": lines})
    assert sorted(stage.shown("counts")) == expected(ON_TIME, start)
    assert run_status.queries()[0].late_rows == 0
    send(stage, lines, "late.csv", start)
    run_status = stage.run("windowed-word-count", {"timed-lines": lines})
    assert sorted(stage.shown("counts")) == expected(LATE, start)
    assert run_status.queries()[0].late_rows == 3  # of one line, which would have been in three windows


def send(stage: Stage, topic: str, file: str, start: int) -> None:
    """What the README says, with the example's own program."""
    folder = EXAMPLES / "windowed-word-count"
    program = [sys.executable, folder / "send.py", folder / "data" / file]
    options = ["--topic", topic, "--kafka", stage.cluster.bootstrap, "--start", str(start)]
    subprocess.run([*program, *options], check=True, timeout=60)


def expected(counts: dict[str, dict[int, int]], start: int) -> list[tuple[str, ...]]:
    """The rows as they are shown."""
    return sorted(
        (shown(start + second), shown(start + second + 5), word, str(count))
        for word, windows in counts.items()
        for second, count in windows.items()
    )


def shown(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
