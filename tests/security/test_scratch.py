"""Temporary files of real runs: nobody else reads them, none are in /tmp, and killed runs do not leave them for ever.

These tests need root, as they act for a second account and give a run a /tmp of its own.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from conftest import MILLRACE, CommandLine

NOBODY = 65534
SCRATCH = "millrace-scratch-*"
PIPELINE = """
import os, tempfile, time
from pathlib import Path

import millrace as mr

FOLDER = Path(__file__).parent

def held(batches):
    for batch in batches:
        with tempfile.NamedTemporaryFile() as file:
            Path(FOLDER / "begun").write_text(file.name)
            while (FOLDER / "hold").exists():
                time.sleep(0.01)
        yield batch

counting = mr.Pipeline("counting")
counting.source("ticks", mr.rate(50))

@counting.table
def counted(ticks):
    return ticks.groupBy((ticks.value % 5).alias("k")).count().mapInArrow(held, "k long, count long")

counting.sink("counted", mr.memory("counted"), mode="complete")
"""
READ_ONLY_TMP = """
mount --bind /tmp /tmp && cd / && mount --bind "$1" "$1" && mount -o remount,bind,ro /tmp &&
cd "$1" && shift && exec "$@"
"""
"""Gives a program a /tmp in which it can write nothing outside of a folder."""
LOOK = """
import os, sys
state, scratch, file = sys.argv[1:]
print(len(os.listdir(state)) > 0)
for act in (lambda: os.listdir(scratch), lambda: open(file, "rb"), lambda: open(scratch + "/new", "w")):
    try:
        act()
        print("allowed")
    except PermissionError:
        print("denied")
"""


@pytest.fixture
def project(quick_starts: None) -> Iterator[Path]:
    """A folder with a pipeline which every account can look into, as those of tests cannot."""
    folder = Path(tempfile.mkdtemp(prefix="counting-"))
    folder.chmod(0o755)
    (folder / "counting.py").write_text(PIPELINE)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def environment(offline_millrace: CommandLine) -> dict[str, str]:
    """Variables of a user who has set no TMPDIR."""
    return {name: value for name, value in offline_millrace.environment.items() if name != "TMPDIR"}


def wait_until(condition: Callable[[], object], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


@contextmanager
def killed_at_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Kill the process at the end of the block: an assertion that fails must not wait for a run without end."""
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def started(project: Path, environment: dict[str, str], *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run which is in the middle of a batch, after its shuffle, until the file `hold` is removed."""
    (project / "begun").unlink(missing_ok=True)
    (project / "hold").touch()
    process = subprocess.Popen(
        [*before, MILLRACE, "run", "counting.py", "--no-dashboard", "--stop-timeout", "1h"],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with killed_at_end(process):
        wait_until(lambda: (project / "begun").exists() and (project / "begun").read_text(), process)
        yield process


def jvm_of(process: subprocess.Popen[bytes]) -> psutil.Process:
    (jvm,) = [child for child in psutil.Process(process.pid).children() if child.name() == "java"]
    return jvm


def finish(process: subprocess.Popen[bytes]) -> bytes:
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=90)
    return errors


@pytest.mark.long
def test_a_run_is_private_writes_nothing_to_tmp_and_is_cleared_away_when_it_was_killed(
    project: Path, environment: dict[str, str]
) -> None:
    state = project / ".millrace" / "pipelines" / "counting"
    with started(project, environment, "unshare", "--mount", "sh", "-c", READ_ONLY_TMP, "sh", str(project)) as process:
        (scratch,) = state.glob(SCRATCH)
        assert scratch.stat().st_mode & 0o777 == 0o700
        assert (project / "begun").read_text().startswith(f"{scratch}/")  # also of Python workers
        shuffled = next(scratch.glob("blockmgr-*/*/shuffle_*.data"))
        assert shuffled.stat().st_mode & 0o044  # Spark lets everybody read it: what keeps others out is the folder
        looked = subprocess.run(
            [
                shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable,
                "-c",
                LOOK,
                state,
                scratch,
                shuffled,
            ],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        )
        assert looked.stdout.split() == ["True", "denied", "denied", "denied"]
        jvm = jvm_of(process)
        process.kill()
    jvm.wait(60)
    assert scratch.exists()

    with started(project, environment) as process:
        (other,) = state.glob(SCRATCH)
        assert other != scratch
        (project / "hold").unlink()
        errors = finish(process)
    assert process.returncode == 0, errors
    assert list(state.glob(SCRATCH)) == []


@pytest.mark.long
def test_tmpdir_is_used_and_cleared_away_after_a_kill_of_all_and_at_a_hurried_end(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    environment |= {"TMPDIR": str(tmp_path)}
    state = project / ".millrace" / "pipelines" / "counting"
    with started(project, environment) as process:
        (scratch,) = tmp_path.iterdir()
        assert (project / "begun").read_text().startswith(f"{scratch}/")
        assert list(state.glob(SCRATCH)) == []
        jvm = jvm_of(process)
        process.kill()
        jvm.kill()
    jvm.wait(60)
    assert next(scratch.glob("blockmgr-*"))

    with started(project, environment | {"SPARK_LOCAL_DIRS": str(project / "own")}) as process:
        (other,) = tmp_path.iterdir()
        assert other != scratch
        assert any((project / "own").glob("blockmgr-*"))  # the user's choice
        assert any(other.glob("artifacts-*"))
        jvm = jvm_of(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        wait_until(lambda: b"running batch" in process.stderr.readline())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert not jvm.is_running()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_start_that_fails_or_is_interrupted_and_an_analysis_leave_nothing(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    line = CommandLine(project, environment | {"TMPDIR": str(temporary)})
    line("run", "counting.py", "--no-dashboard", "--set", "spark.driver.extraJavaOptions=-Xss1", code=1)
    assert list(temporary.iterdir()) == []
    line("check", "--deep", "counting.py", code=None)
    assert list(temporary.iterdir()) == []

    (project / "program.py").write_text("from pyspark import SparkContext\nSparkContext()\n")
    with killed_at_end(line.start("exec", "--no-dashboard", "program.py")) as process:
        wait_until(lambda: any(temporary.glob(SCRATCH)) and psutil.Process(process.pid).children(), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert list(temporary.iterdir()) == []


def test_a_tmpdir_that_everybody_may_change_is_refused(
    project: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    line = CommandLine(project, environment | {"TMPDIR": str(shared)})
    errors = line("run", "counting.py", "--no-dashboard", code=2).stderr
    assert "error[file.unusable]" in errors
    assert "TMPDIR" in errors
    assert list(shared.iterdir()) == []
