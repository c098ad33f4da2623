"""The command line inside the test's own process, and as one that goes on beside the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import pytest

from conftest import CommandLine
from millrace.cli.main import main
from millrace.clients.kafka.cluster import Cluster


class Ran(NamedTuple):
    """What a command wrote."""

    out: str
    err: str


Run = Callable[..., Ran]
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`millrace …` with no cluster named and nobody to ask; the exit code must be the expected one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    for name in [name for name in os.environ if name.startswith("MILLRACE_KAFKA")]:
        monkeypatch.delenv(name)

    def run(*arguments: str, code: int = 0) -> Ran:
        monkeypatch.setattr(sys, "argv", ["millrace", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as raised:
            main()
        ran = Ran(*capsys.readouterr())
        assert (raised.value.code or 0) == code, ran
        assert "Traceback" not in ran.err, ran.err
        return ran

    return run


@pytest.fixture
def run(cluster: Cluster, offline_run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`millrace …` with the broker of the run as its cluster."""
    monkeypatch.setenv("MILLRACE_KAFKA", cluster.bootstrap)
    return offline_run


@pytest.fixture
def start(millrace: CommandLine) -> Iterator[Start]:
    """`millrace …` as a process that goes on; at the end of the test it is gone, however the test ends."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        processes.append(millrace.start(*arguments))
        return processes[-1]

    yield start
    for process in processes:
        with process:
            process.kill()
