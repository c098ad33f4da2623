"""examples/socket-word-count."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from millrace.services.process import free_port

from .conftest import EXAMPLES, Stage, readme_rows, rows

FOLDER = EXAMPLES / "socket-word-count"
COUNTS = {"the": 4, "water": 3, "and": 2, "mill": 2, "no": 2, "runs": 2, "turns": 2, "wheel": 1}


@pytest.fixture
def address() -> Iterator[str]:
    """The example's own server, with its lines."""
    port = free_port()
    with (
        (FOLDER / "data/lines.txt").open("rb") as lines,
        subprocess.Popen(
            [sys.executable, FOLDER / "serve.py", "--port", str(port)], stdin=lines, stdout=subprocess.PIPE
        ) as server,
    ):
        assert server.stdout
        assert b"waiting" in server.stdout.readline()
        yield f"localhost:{port}"
        server.kill()


def test_the_words_are_counted(stage: Stage, address: str) -> None:
    expected = [(word, str(count)) for word, count in COUNTS.items()]
    stage.run("socket-word-count", {"localhost:9999": address}, until=lambda: last(stage) == expected)
    assert last(stage) == expected
    assert readme_rows("socket-word-count") == set(expected)


def last(stage: Stage) -> list[tuple[str, ...]]:
    """The rows of the last batch: each shows the whole result."""
    return rows(stage.printed[-1]) if stage.printed else []
