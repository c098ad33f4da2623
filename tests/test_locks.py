"""A lock lasts as long as a process holds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millrace.locks import FolderLock


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        other = FolderLock(tmp_path)
        assert not other.try_acquire()
        other.release()
    again = FolderLock(tmp_path)
    assert again.try_acquire()
    again.release()


def test_a_folder_that_must_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FolderLock(tmp_path / "gone", make=False)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        FolderLock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_child_goes_on_holding_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    assert lock.try_acquire()
    waiter = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[lock.fd]
    )
    lock.release()
    other = FolderLock(tmp_path)
    assert not other.try_acquire()
    waiter.communicate(b"\n")
    assert other.try_acquire()
    other.release()
