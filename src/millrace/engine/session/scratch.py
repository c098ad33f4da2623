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
"""How the names of scratch folders begin."""
_REMOVED = ".removed"
"""How the names of those end that are being removed: no process makes a new file in them."""
_NAMES_FOLDER = re.compile(r"-Djava\.io\.tmpdir=")
_HADOOP = "spark.hadoop.hadoop.tmp.dir"
_BUFFERS = "LOCAL_DIRS"
"""Where Hadoop keeps what it sends to a store; without it, in /tmp. Its `hadoop.tmp.dir` must not have a space."""
_SWEEP_WAIT_S = 2.0

_log = logging.getLogger(__name__)


class Scratch:
    """A new scratch folder, locked by this process."""

    def __init__(self, near: Path | None = None) -> None:
        """Make it in TMPDIR if that is set, else in the folder `near`, else where temporary files go.

        Abandoned scratch folders in these places are removed meanwhile.
        """
        parent = _parent(near)
        try:
            self.folder, self._lock = _made(parent)
        except OSError as error:
            raise _unusable(parent, error.strerror or str(error)) from None
        self._pid = os.getpid()
        atexit.register(self.remove)  # for one who is interrupted before there is a JVM that removes it
        places = {parent, _temporary(), *([] if near is None else [near.resolve()])}
        # Beside the start of Spark: shuffle files of a large run take a moment.
        self._sweep = threading.Thread(target=_remove_all_abandoned, args=(places,), name="scratch", daemon=True)
        self._sweep.start()

    @property
    def held(self) -> int:
        """The descriptor of the lock: a child that inherits it keeps the folder for as long as it lives."""
        return self._lock.fd

    def java_options(self, settings: Mapping[str, str]) -> str:
        """Return what the driver's JVM is started with to use the folder; a folder that the user gives it wins.

        Without a `spark.local.dir` Spark uses Java's folder too. We set none, because it would be sent to executors.
        """
        own = names_java_option(_NAMES_FOLDER, settings)
        return "" if own else _quoted(f"-Djava.io.tmpdir={self.folder}")

    def variables(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the JVM and its Python workers that name the folder."""
        found = {"TMPDIR": str(self.folder)}
        if _HADOOP not in settings and _BUFFERS not in os.environ:
            found[_BUFFERS] = str(self.folder)
        return found

    def remove(self) -> None:
        """Remove it, after the JVM has ended; what cannot be removed is left to the next run.

        Nothing happens in a process that was forked from the one that has made it.
        """
        if self._lock.fd >= 0 and self._pid == os.getpid():
            self._sweep.join(_SWEEP_WAIT_S)  # which may just be looking whether this one is abandoned
            _remove(self.folder)
            self._lock.release()
            atexit.unregister(self.remove)


def is_scratch(path: Path) -> bool:
    """Whether a path has the name of a scratch folder."""
    return path.name.startswith(PREFIX)


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders of this account in a folder, except those that a process still holds."""
    if _objection(parent):  # others could put another folder in the place of one that was looked at
        return
    for path in filter(is_scratch, list(parent.iterdir())):
        try:
            if _is_own_folder(path):
                _remove_if_abandoned(path)
        except OSError as error:
            _log.debug("the scratch folder %s is not removed: %s", path, error)


def _remove_all_abandoned(parents: set[Path]) -> None:
    for parent in parents:
        with suppress(OSError):
            remove_abandoned(parent)


def _is_own_folder(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove_if_abandoned(folder: Path) -> None:
    lock = FolderLock(folder, make=False)
    try:
        if lock.try_acquire() and _is_lock_of(lock, folder):
            _remove(folder)
    finally:
        lock.release()


def _remove(folder: Path) -> None:
    """Remove a folder whose lock is held; symbolic links in it are removed, not followed."""
    removed = folder if folder.name.endswith(_REMOVED) else folder.with_name(folder.name + _REMOVED)
    try:
        # First the name: a process that has just made the folder and waits for its lock does not find it any more,
        # and neither does a Python worker that outlives its JVM by a moment.
        folder.rename(removed)
    except OSError as error:
        _log.debug("the scratch folder %s is not removed: %s", folder, error)
    else:
        shutil.rmtree(removed, ignore_errors=True)  # what is left of it is for the next run


def _made(parent: Path) -> tuple[Path, FolderLock]:
    """A new folder that is locked; another run may take it for abandoned until it is."""
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
    """Whether the folder is still where its lock was opened."""
    try:
        return os.path.samestat(os.fstat(lock.fd), os.lstat(folder / lock.NAME))
    except FileNotFoundError:
        return False


def _parent(near: Path | None) -> Path:
    named = os.environ.get("TMPDIR")
    if near is not None and not named:
        with suppress(OSError):  # the log cannot be made there either, which says why
            near.mkdir(parents=True, exist_ok=True)
        folder = near.resolve()
        if not _objection(folder) and not _forbids_libraries(folder):
            return folder
    folder = Path(named).resolve() if named else _temporary()
    if why := _objection(folder):
        raise _unusable(folder, why)
    return folder


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir()).resolve()
    except FileNotFoundError:  # no folder for temporary files can be written to
        return Path("/tmp")  # noqa: S108 - looked at before it is used


def _forbids_libraries(folder: Path) -> bool:
    """Whether the file system is mounted such that Java cannot load the libraries that it unpacks there."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))  # only Linux has it


def _objection(folder: Path) -> str | None:
    """Why a folder must not hold scratch folders; None if it may."""
    try:
        found = folder.stat()
    except OSError as error:
        return error.strerror
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    if found.st_uid not in (0, os.geteuid()):
        return "it belongs to another account"
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        return "every account may write to it, and it has no sticky bit"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this account may not write to it"
    if "," in str(folder):
        return "its name has a comma, at which Spark separates folders"
    return None


def _unusable(folder: Path, why: str | None) -> FileUnusable:
    return FileUnusable(
        f"{folder} cannot hold Spark's temporary files", why=why, hint="set TMPDIR to a folder of your own"
    )


def _quoted(option: str) -> str:
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
