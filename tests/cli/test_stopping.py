"""Signals: the batch in hand is finished, a second Ctrl-C does not wait for it, and give-up is exit code 1."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import CommandLine

CHECKPOINT = ".millrace/pipelines/slowly/checkpoints/ticks"
PIPELINE = """
import time
from pathlib import Path

import millrace as mr

def slow(rows, batch):
    ids = [row["value"] for row in rows.collect()]
    if not ids:
        return
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    with open("ids", "a") as written:
        written.writelines(f"{one}\\n" for one in ids)

slowly = mr.Pipeline("slowly")
slowly.source("ticks", mr.rate(5))
slowly.sink("ticks", mr.foreach(slow, batch=True))
"""


def begin(line: CommandLine, *options: str) -> subprocess.Popen[bytes]:
    """A run that is in the middle of a batch, until a file `go` is there."""
    (line.folder / "slowly.py").write_text(PIPELINE)
    process = line.start("run", "slowly.py", "--no-dashboard", *options)
    while not (line.folder / "begun").exists() and process.poll() is None:
        time.sleep(0.02)
    return process


def noted(folder: Path, log: str) -> list[int]:
    """The batches that a checkpoint tells of."""
    return sorted(int(one.name) for one in (folder / CHECKPOINT / log).glob("[0-9]*"))


def done(folder: Path) -> int:
    """The rows up to where the batches that count have read: the source's offsets are seconds."""
    newest = folder / CHECKPOINT / "offsets" / str(noted(folder, "commits")[-1])
    return 5 * int(newest.read_text().splitlines()[-1])


@pytest.mark.long
def test_the_batch_in_hand_is_finished(offline_millrace: CommandLine) -> None:
    with begin(offline_millrace) as process:
        process.send_signal(signal.SIGTERM)
        read_until(process, b"running batch")
        (offline_millrace.folder / "go").touch()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert b"in the middle of a batch" not in said
    folder = offline_millrace.folder
    assert noted(folder, "commits") == noted(folder, "offsets")
    ids = sorted(map(int, (folder / "ids").read_text().split()))
    assert ids == list(range(done(folder))) != []  # nothing more, nothing less, none twice


@pytest.mark.long
def test_a_second_ctrl_c_does_not_wait(offline_millrace: CommandLine) -> None:
    with begin(offline_millrace, "--stop-timeout", "1h") as process:
        process.send_signal(signal.SIGINT)
        read_until(process, b"running batch")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"Traceback" not in said
    *_, cut = noted(offline_millrace.folder, "offsets")
    assert cut not in noted(offline_millrace.folder, "commits")
    assert not (offline_millrace.folder / "ids").exists()


def read_until(process: subprocess.Popen[bytes], words: bytes) -> None:
    assert process.stderr is not None
    while words not in (told := process.stderr.readline()):
        assert told, f"it ended without {words!r}"


GIVING_UP = """
import millrace as mr

def refuse(rows, batch):
    raise RuntimeError("I take nothing")

refused = mr.Pipeline("refused")
refused.source("ticks", mr.rate(5))
refused.sink("ticks", mr.foreach(refuse, batch=True))
"""


@pytest.mark.long
def test_giving_up_is_told_and_alerted(offline_millrace: CommandLine) -> None:
    folder = offline_millrace.folder
    (folder / "refused.py").write_text(GIVING_UP)
    (folder / "alert.sh").write_text("cat >> alerts; echo >> alerts\n")
    options = ("--no-dashboard", "--restarts", "1", "--alert", "sh alert.sh")
    said = offline_millrace("run", "refused.py", *options, code=1).stderr
    assert "(1 of 1): the function refuse raised RuntimeError: I take nothing" in said
    assert "error[sink.failed]: query 'ticks' failed" in said
    assert "(2 times at the same batch, batch 0)" in said
    alerts = [json.loads(line) for line in (folder / "alerts").read_text().splitlines() if line]
    assert [(one["pipeline"], one["query"], one["what"]) for one in alerts] == [
        ("refused", "ticks", "failed"),
        ("refused", "ticks", "gave-up"),
    ]
