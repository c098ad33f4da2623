"""Files that are whole or not there, also after the machine itself has failed: a draft on disk, then its name."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from millrace.object_stores import StorePath


class AtomicFile:
    """A new content of a file, under a hidden name until it is whole. As a context it is named unless that raises."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """Begin; a private one can be read by its owner alone."""
        self.path = path
        self._draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.file = os.fdopen(os.open(self._draft, flags, 0o600 if private else 0o666), "w+b")

    def finish(self) -> None:
        """Give it its name; it is safe when this returns."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            self._draft.replace(self.path)
        except BaseException:
            self.abandon()
            raise
        sync_folder(self.path.parent)

    def abandon(self) -> None:
        """Leave the file as it was."""
        with suppress(OSError):  # a full disk: what is left in memory cannot be written, and need not be
            self.file.close()
        self._draft.unlink(missing_ok=True)

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()


def write_whole(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file, and its folder if that is missing; it has the old content or the new one, never less."""
    encoded = content.encode() if isinstance(content, str) else content
    if isinstance(path, StorePath):  # stores know nothing else
        path.write_bytes(encoded)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path, private=private) as draft:
        draft.file.write(encoded)


def sync_folder(folder: Path) -> None:
    """A new name is safe when the folder that has it is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
