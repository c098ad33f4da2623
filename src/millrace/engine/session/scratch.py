"""The private folder for the temporary files of a Spark JVM: shuffle files, unpacked libraries, buffers.

- It is made before the JVM starts, and only this account can list or read it.
- It is removed when the JVM has ended. What a killed run has left is removed by the next one.
- This process and its JVM hold a lock in it, so no other run removes it while one of them lives.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from millrace.engine.session.spark_conf import names_java_option
from millrace.errors import FileUnusable
from millrace.locks import FolderLock

PREFIX = "millrace-scratch-"
_REMOVED_SUFFIX = ".removed"
"""Of folders that are being removed: no process creates a file in them."""
_JAVA_TMPDIR = re.compile(r"-Djava\.io\.tmpdir=")
_HADOOP_TMP_DIR = "spark.hadoop.hadoop.tmp.dir"
_HADOOP_BUFFER_DIRS = "LOCAL_DIRS"
"""Where Hadoop buffers uploads; without it, in /tmp. Its `hadoop.tmp.dir` cannot have a space in it."""
_SWEEP_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)


class Scratch:
    """A new scratch folder, locked by this process."""

    def __init__(self, near: Path | None = None) -> None:
        """Create it in TMPDIR if that is set, else in the folder `near`, else in the system's temporary folder.

        Abandoned scratch folders in these folders are removed in the background.
        """
        parent = _parent(near)
        try:
            self.folder, self._lock = _create(parent)
        except OSError as error:
            raise _unusable(parent, error.strerror or str(error)) from None
        self._pid = os.getpid()
        atexit.register(self.remove)  # in case of an interrupt before there is a JVM that removes it
        parents = {parent, _system_temporary_folder(), *([] if near is None else [near.resolve()])}
        # In a thread, while Spark starts: to remove the shuffle files of a large run takes a moment.
        self._sweep = threading.Thread(target=_remove_all_abandoned, args=(parents,), name="scratch", daemon=True)
        self._sweep.start()

    @property
    def lock_fd(self) -> int:
        """The descriptor of the lock: a child that inherits it keeps the folder while it lives."""
        return self._lock.fd

    def java_options(self, settings: Mapping[str, str]) -> str:
        """Return the options with which the driver's JVM uses the folder; empty if the user gives it another one.

        Without `spark.local.dir` Spark uses Java's folder too. We do not set it, because it would apply to executors.
        """
        escaped = str(self.folder).replace("\\", "\\\\").replace('"', '\\"')
        return "" if names_java_option(_JAVA_TMPDIR, settings) else f'"-Djava.io.tmpdir={escaped}"'

    def variables(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the JVM and its Python workers that name the folder."""
        variables = {"TMPDIR": str(self.folder)}
        if _HADOOP_TMP_DIR not in settings and _HADOOP_BUFFER_DIRS not in os.environ:
            variables[_HADOOP_BUFFER_DIRS] = str(self.folder)
        return variables

    def remove(self) -> None:
        """Remove it after the end of the JVM; the next run removes what cannot be removed now.

        A process that was forked from the one that has created the folder leaves it alone.
        """
        if self._lock.fd >= 0 and self._pid == os.getpid():
            self._sweep.join(_SWEEP_TIMEOUT_S)  # it may be checking whether this one is abandoned
            _remove(self.folder)
            self._lock.release()
            atexit.unregister(self.remove)


def is_scratch(path: Path) -> bool:
    """Return whether a path has the name of a scratch folder."""
    return path.name.startswith(PREFIX)


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders of this account in a folder, except those that a process still holds."""
    if _why_unusable(parent):  # others could replace a folder after it was checked
        return
    for path in filter(is_scratch, list(parent.iterdir())):
        try:
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                _remove_if_abandoned(path)
        except OSError as error:
            _log.debug("the scratch folder %s is not removed: %s", path, error)


def _remove_all_abandoned(parents: set[Path]) -> None:
    for parent in parents:
        with suppress(OSError):
            remove_abandoned(parent)


def _remove_if_abandoned(folder: Path) -> None:
    lock = FolderLock(folder, make=False)
    try:
        if lock.try_acquire() and _is_lock_of(lock, folder):
            _remove(folder)
    finally:
        lock.release()


def _remove(folder: Path) -> None:
    """Remove a folder whose lock is held; symbolic links in it are removed, not followed."""
    removed = folder if folder.name.endswith(_REMOVED_SUFFIX) else folder.with_name(folder.name + _REMOVED_SUFFIX)
    try:
        # Renamed first, so that it is not found by a process that has just created it and waits for its lock, nor by
        # a Python worker that outlives its JVM by a moment.
        folder.rename(removed)
    except OSError as error:
        _log.debug("the scratch folder %s is not removed: %s", folder, error)
    else:
        shutil.rmtree(removed, ignore_errors=True)  # the next run removes the rest


def _create(parent: Path) -> tuple[Path, FolderLock]:
    """Create and lock a folder; until it is locked, another run may take it for abandoned and remove it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = FolderLock(folder, make=False)
        except FileNotFoundError:
            continue
        if lock.try_acquire() and _is_lock_of(lock, folder):
            return folder, lock
        lock.release()


def _is_lock_of(lock: FolderLock, folder: Path) -> bool:
    """Return whether the folder is still the one whose lock was opened."""
    try:
        return os.path.samestat(os.fstat(lock.fd), os.lstat(folder / lock.NAME))
    except FileNotFoundError:
        return False


def _parent(near: Path | None) -> Path:
    tmpdir = os.environ.get("TMPDIR")
    if near is not None and not tmpdir:
        with suppress(OSError):  # the log cannot be created there either, and its error says why
            near.mkdir(parents=True, exist_ok=True)
        folder = near.resolve()
        if not _why_unusable(folder) and not _is_noexec(folder):
            return folder
    folder = Path(tmpdir).resolve() if tmpdir else _system_temporary_folder()
    if why := _why_unusable(folder):
        raise _unusable(folder, why)
    return folder


def _system_temporary_folder() -> Path:
    try:
        return Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:  # no folder for temporary files can be written to
        return Path("/tmp")  # noqa: S108 - checked before it is used


def _is_noexec(folder: Path) -> bool:
    """Return whether Java cannot load the libraries that it unpacks there, because the file system is noexec."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))  # only Linux has it


def _why_unusable(folder: Path) -> str | None:
    """Return why a folder cannot hold scratch folders; None if it can."""
    try:
        status = folder.stat()
    except OSError as error:
        return error.strerror
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if status.st_uid not in (0, os.geteuid()):
        return "it belongs to another account"
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return "every account may write to it, and it has no sticky bit"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this account may not write to it"
    if "," in str(folder):
        return "its name has a comma, at which Spark separates folders"
    return None


def _unusable(folder: Path, why: str | None) -> FileUnusable:
    hint = "set TMPDIR to a folder of your own"
    return FileUnusable(f"{folder} cannot hold Spark's temporary files", why=why, hint=hint)
