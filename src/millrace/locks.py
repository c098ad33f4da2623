"""A lock on a folder that lasts exactly as long as a process holds it, however that process ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path


class FolderLock:
    """An advisory lock on `FOLDER/lock`; as a context it waits until the lock is free.

    The system ties the lock to the open file: a child that inherits `fd` still holds it when its parent
    dies, and the lock is free when the last of them has ended. No stale lock is possible.
    """

    NAME = "lock"

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        """Open the lock; create the folder if it is missing and `make` is set."""
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(folder / self.NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)

    def try_acquire(self, timeout_s: float = 0.0) -> bool:
        """Take the lock if it is free, or becomes free within `timeout_s`; return whether it was taken."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.05)
            else:
                return True

    def release(self) -> None:
        """Let go; children that inherited the lock still hold it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> FolderLock:
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def in_use(folder: Path) -> bool:
    """Whether a process holds a folder's lock now; makes nothing."""
    if not (folder / "lock").exists():
        return False
    lock = FolderLock(folder)
    try:
        return not lock.try_acquire()
    finally:
        lock.release()
