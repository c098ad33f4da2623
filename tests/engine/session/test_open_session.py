"""A session that is opened aside is closed whatever happens, and holds up nobody who is in a hurry."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from millrace.engine.session import session
from millrace.errors import SparkFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SESSION = cast("SparkSession", object())


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each session that was closed whether its JVM was killed at once."""
    told: list[bool] = []
    monkeypatch.setattr(session, "close_session", lambda _, *, at_once: told.append(at_once))
    return told


def test_it_is_closed_when_the_block_ends(closed: list[bool]) -> None:
    with session.open_in_background(lambda: SESSION) as found:
        assert found.result(60) is SESSION
    assert closed == [False]


def test_it_is_closed_at_once_when_that_is_interrupted(closed: list[bool]) -> None:
    with pytest.raises(KeyboardInterrupt), session.open_in_background(lambda: SESSION) as found:
        raise KeyboardInterrupt(found.result(60))
    assert closed == [True]


def test_one_that_is_still_starting_is_not_waited_for(closed: list[bool]) -> None:
    up = threading.Event()

    def slow() -> SparkSession:
        up.wait()
        return SESSION

    with pytest.raises(KeyboardInterrupt), session.open_in_background(slow):
        raise KeyboardInterrupt
    up.set()
    assert closed == []


def test_one_that_could_not_be_opened_tells_who_asks(closed: list[bool]) -> None:
    def fail() -> SparkSession:
        raise SparkFailed("no Java")

    with pytest.raises(SparkFailed), session.open_in_background(fail) as found:
        found.result(60)
    assert closed == []


@pytest.mark.parametrize(
    ("named", "is_own"),
    [(None, True), ("EXECUTABLE", True), ("python", True), ("environment/bin/python", False), ("no/python", False)],
)
def test_python_processes_are_forked_if_the_python_for_them_is_this_one(
    named: str | None, is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environment").symlink_to(sys.prefix)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if named is None:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    else:
        path = {"EXECUTABLE": sys.executable, "python": "python"}.get(named, str(tmp_path / named))
        monkeypatch.setenv("PYSPARK_PYTHON", path)
    assert session._is_own_python() is is_own
