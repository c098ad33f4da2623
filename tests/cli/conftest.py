"""The command line inside the test's own process, for what needs no process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from millrace.cli.main import main
from millrace.clients.cluster import Cluster


class Ran(NamedTuple):
    """What a command wrote."""

    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`millrace …` with no cluster named; the exit code must be the expected one."""
    monkeypatch.chdir(tmp_path)
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
