"""A service that one of the processes of a test run starts and all of them use, until the last is done."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from millrace.locks import FolderLock


def run_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that every process of this test run has by the same name."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    folder.mkdir(exist_ok=True)
    return folder


_STOPS: list[Callable[[], None]] = []
"""What this process has started and others may still use."""


def stop_what_was_shared() -> None:
    """When the tests of this process are done: not in a test's own time, which the others may take longer than."""
    while _STOPS:
        _STOPS.pop()()


@contextmanager
def started_once(folder: Path, start: Callable[[], object], stop: Callable[[], None]) -> Iterator[None]:
    """Start it unless another process has; who started it stops it, when nobody uses it any more.

    Who asks for it after that starts it again.
    """
    users = folder / "users"
    with FolderLock(folder):
        first = not users.exists()
        users.mkdir(exist_ok=True)
        mine = users / str(os.getpid())
        mine.touch()
        if first:
            try:
                start()
            except BaseException:
                shutil.rmtree(users)  # who asks for it next tries again
                raise
    try:
        yield
    finally:
        mine.unlink()
        if first:
            _STOPS.append(partial(_stop_unused, folder, stop))


def _stop_unused(folder: Path, stop: Callable[[], None]) -> None:
    users = folder / "users"
    while True:
        with FolderLock(folder):
            if not any(psutil.pid_exists(int(user.name)) for user in users.iterdir()):
                stop()
                shutil.rmtree(users)
                return
        time.sleep(0.1)
