"""examples/dstreams/kinesis_count.py, as a user runs it."""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emulator import KEYS, REGION, Emulator

if TYPE_CHECKING:
    from conftest import CommandLine

PROGRAM = Path(__file__).parents[2] / "examples" / "dstreams" / "kinesis_count.py"


@pytest.mark.chaos
def test_words_of_a_stream_are_counted(offline_millrace: CommandLine, tmp_path: Path) -> None:
    emulator = Emulator()
    keys = {"AWS_ACCESS_KEY_ID": KEYS["access_key"], "AWS_SECRET_ACCESS_KEY": KEYS["secret_key"]}
    leases = f"spark.millrace.kinesis.leases=file://{tmp_path}"
    counts: Counter[str] = Counter()
    try:
        stream = emulator.create("lines", 2)
        emulator.put(stream, ["to be or not to be"] * 20)
        call = ("exec", "--no-dashboard", "--set", leases, str(PROGRAM), "counting", stream, emulator.endpoint, REGION)
        with offline_millrace.start(*call, **keys) as running:
            assert running.stdout
            limit = threading.Timer(100, running.kill)
            limit.start()
            for line in running.stdout:
                for word, count in re.findall(r"\('(\w+)', (\d+)\)", line.decode()):
                    counts[word] += int(count)
                if counts.total() >= 120:
                    running.send_signal(signal.SIGINT)
                    break
            running.communicate(timeout=60)
            limit.cancel()
    finally:
        emulator.stop()
    assert counts == {"to": 40, "be": 40, "or": 20, "not": 20}
    assert (tmp_path / "counting.json").exists()
