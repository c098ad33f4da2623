"""Spark's Python processes are forked from one that has loaded what they need, and are what Python would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from millrace.engine.session import worker_host
from millrace.engine.session.worker_host import WorkerHost
from millrace.engine.session.worker_launcher import PYTHON_VARIABLE

REPORT = """
import json, os, sys
module = "pyspark.daemon" in sys.modules
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("ASKED"), module, sys.path[0], __name__, os.getppid()]))
print("an error", file=sys.stderr)
sys.stdin.read()
"""
SURROUNDINGS = """
import json, sys, time
print("\\udcff", file=sys.stderr)
streams = [(stream.encoding, stream.errors) for stream in (sys.stdin, sys.stdout, sys.stderr)]
print(json.dumps([time.tzname, time.localtime(0).tm_hour, streams, sys.path]))
"""
RANDOM = """
import os, numpy
if child := os.fork():
    os.waitpid(child, 0)
print(numpy.random.random())
"""
DEAF = """
import os, signal
if child := os.fork():
    print(os.getpid(), child)
signal.pause()
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    """Its folder has a path that is too long for a socket."""
    folder = tmp_path_factory.mktemp("state") / ("long" * 30)
    folder.mkdir()
    opened = WorkerHost(folder)
    yield opened
    opened.close()


def started(host: WorkerHost, folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | host.variables | {"PYTHONPATH": str(folder)} | variables
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [host.variables["PYSPARK_PYTHON"], *arguments], env=environment, cwd=folder, text=True, **streams
    )


def reported(host: WorkerHost, folder: Path, *arguments: str, **variables: str) -> list[Any]:
    with started(host, folder, *arguments, **variables) as process:
        out, error = process.communicate("", timeout=60)
    assert error == "an error\n"
    report: list[Any] = json.loads(out)
    return report


@pytest.fixture
def module(tmp_path: Path) -> str:
    """A module that reports what it is run as; its name is one that the host runs."""
    package = tmp_path / "millrace_reports"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "report.py").write_text(REPORT)
    return "millrace_reports.report"


@pytest.fixture
def deaf(tmp_path: Path, module: str) -> str:
    """A module that reads nothing, and so never sees the end of its streams; it has a child, as Spark's daemon has."""
    (tmp_path / "millrace_reports" / "report.py").write_text(DEAF)
    return module


def running(launcher: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes of the module `deaf`."""
    assert launcher.stdout
    return [psutil.Process(int(pid)) for pid in launcher.stdout.readline().split()]


def test_a_module_is_run_in_a_fork_as_python_would_run_it(host: WorkerHost, tmp_path: Path, module: str) -> None:
    first = reported(host, tmp_path, "-m", module, "a", "b", ASKED="yes")
    second = reported(host, tmp_path, "-m", module)
    assert first[:4] == [["a", "b"], str(tmp_path), "yes", True]
    assert first[4:6] == [str(tmp_path), "__main__"]
    assert second[0] == []
    assert second[2] is None  # nothing of the first is left
    assert {first[6], second[6]} == {host.pid}


@pytest.mark.parametrize("arguments", [("-c", REPORT), ("report.py",)], ids=["text", "file"])
def test_what_it_cannot_run_is_run_by_python(host: WorkerHost, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "report.py").write_text(REPORT)
    assert reported(host, tmp_path, *arguments, ASKED="yes")[2:4] == ["yes", False]


@pytest.mark.parametrize(
    ("variables", "forked"),
    [
        ({"PYTHONHASHSEED": "1"}, False),
        ({"PYTHONHASHSEED": "0"}, True),
        ({"PYTHONOPTIMIZE": "2"}, False),
        ({"PYTHONWARNINGS": "error"}, False),
        ({"PYTHONOPTIMIZE": "", "PYTHONUNBUFFERED": "YES", "PYTHON_OF_SPARK": "1"}, True),
    ],
)
def test_what_python_reads_when_it_starts_is_what_is_asked_for(
    host: WorkerHost, tmp_path: Path, module: str, variables: dict[str, str], forked: bool
) -> None:
    assert reported(host, tmp_path, "-m", module, **variables)[3] is forked


def test_a_fork_has_the_zone_streams_and_paths_that_python_has(host: WorkerHost, tmp_path: Path, module: str) -> None:
    (tmp_path / "millrace_reports" / "report.py").write_text(SURROUNDINGS)
    paths = [str(tmp_path / "other"), *filter(None, [os.environ.get("PYTHONPATH")])]  # the host has the second, too
    zone = {"TZ": "XYZ-5", "PYTHONPATH": os.pathsep.join(paths)}
    printed = []
    for variables in (zone, zone | {"MILLRACE_WORKER_HOST": str(tmp_path / "gone")}):
        with started(host, tmp_path, "-m", module, **variables) as process:
            printed.append(process.communicate("", timeout=60))
            assert process.returncode == 0
    forked, python = printed
    assert forked == python
    assert json.loads(forked[0])[:2] == [["XYZ", "XYZ"], 5]


def test_without_its_host_it_is_python(host: WorkerHost, tmp_path: Path, module: str) -> None:
    report = reported(host, tmp_path, "-m", module, MILLRACE_WORKER_HOST=str(tmp_path / "gone"))
    assert not report[3]


def test_paths_may_have_what_a_shell_reads_as_its_own(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / 'my "$proj`'
    odd.mkdir()
    (odd / "launcher.py").symlink_to(worker_host.worker_launcher.__file__)
    (odd / "environment").symlink_to(sys.prefix)
    monkeypatch.setattr(worker_host.worker_launcher, "__file__", str(odd / "launcher.py"))
    monkeypatch.setattr(worker_host.sys, "executable", str(odd / "environment" / "bin" / "python"))
    opened = WorkerHost(tmp_path)
    try:
        with started(opened, tmp_path, "-c", "print(6)") as launcher:
            assert launcher.communicate(timeout=60)[0] == "6\n"
    finally:
        opened.close()


@pytest.mark.parametrize(("text", "code"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_launcher_has_the_exit_code_of_what_it_started(
    host: WorkerHost, tmp_path: Path, module: str, text: str, code: int
) -> None:
    (tmp_path / "millrace_reports" / "report.py").write_text(text)
    with started(host, tmp_path, "-m", module) as launcher:
        assert launcher.wait(60) == code


def test_workers_draw_other_random_numbers(host: WorkerHost, tmp_path: Path, module: str) -> None:
    (tmp_path / "millrace_reports" / "report.py").write_text(RANDOM)
    drawn: list[str] = []
    for _ in range(2):
        with started(host, tmp_path, "-m", module) as launcher:
            drawn += launcher.communicate(timeout=60)[0].split()
    assert len(set(drawn)) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_ends_the_launcher_ends_what_it_started(
    host: WorkerHost, tmp_path: Path, deaf: str, number: signal.Signals
) -> None:
    with started(host, tmp_path, "-m", deaf) as launcher:
        processes = running(launcher)
        launcher.send_signal(number)
        assert psutil.wait_procs(processes, 30)[1] == []


def test_it_ends_with_all_that_was_forked_and_writes_nothing_outside_its_folder(
    tmp_path: Path, deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, temporary = tmp_path / "scratch", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    opened = WorkerHost(folder)
    assert opened.variables[PYTHON_VARIABLE] == sys.executable
    with started(opened, tmp_path, "-m", deaf) as launcher:
        processes = running(launcher)
        opened.close()
        assert psutil.wait_procs(processes, 30)[1] == []
        assert launcher.wait(60) == 1
    assert not psutil.pid_exists(opened.pid)
    assert sorted(path.name for path in folder.iterdir()) == ["python", "workers"]
    assert list(temporary.iterdir()) == []


def test_what_was_forked_ends_when_the_host_is_killed(tmp_path: Path, deaf: str) -> None:
    opened = WorkerHost(tmp_path)
    with started(opened, tmp_path, "-m", deaf) as launcher:
        child, grandchild = running(launcher)
        os.kill(opened.pid, signal.SIGKILL)
        child.wait(30)
        grandchild.kill()
        assert launcher.wait(60) == 1
    opened.close()


def test_a_folder_in_which_nothing_can_be_run_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker_host.os, "access", lambda *_: False)
    with pytest.raises(OSError, match="noexec"):
        WorkerHost(tmp_path)
