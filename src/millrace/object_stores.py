"""Folders on a store that several machines reach (s3a://…, hdfs://…), as paths like any other.

Who can reach a store mounts it; until then a path of one can be named, and not be read.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from typing import Any, Self

from millrace.errors import FileUnusable

_URL = re.compile(r"[a-z][a-z0-9+.-]+://[^/]*", re.IGNORECASE)


class StoreFailed(OSError):
    """A store that does not answer, or does not do what it is asked."""


class Store(ABC):
    """Whole objects by their URLs. What is not there raises FileNotFoundError, what fails StoreFailed."""

    @abstractmethod
    def read(self, url: str) -> bytes:
        """All of a file."""

    @abstractmethod
    def write(self, url: str, content: bytes, *, new: bool = False) -> None:
        """A file, whole or not at all; FileExistsError where it must be new and is not."""

    @abstractmethod
    def names(self, url: str) -> list[str]:
        """What is in a folder; nothing where there is none."""

    @abstractmethod
    def is_folder(self, url: str) -> bool | None:
        """Whether it is a folder or a file; None when it is not there."""

    @abstractmethod
    def remove(self, url: str) -> bool:
        """Remove a file, or a folder with all that is in it; whether it was there."""


_mounted: list[Store] = []


@contextmanager
def mounted(store: Store) -> Iterator[None]:
    """A time in which paths of stores can be used."""
    _mounted.append(store)
    try:
        yield
    finally:
        _mounted.remove(store)


def is_mounted() -> bool:
    """Return whether paths of stores can be used now."""
    return bool(_mounted)


def is_url(text: str) -> bool:
    """Return whether a text is a URL of a store; file:// is the disk."""
    return bool(_URL.match(text)) and not text.startswith("file:")


def names_authority(url: str) -> bool:
    """Return whether a URL names its store; otherwise (hdfs:///out) Hadoop's settings do."""
    return not url.partition("://")[2].startswith("/")


def path_of(text: str) -> Path:
    """Return a path on a store or on the disk."""
    if not is_url(text):
        return Path(text.removeprefix("file://")).expanduser()
    if not names_authority(text):
        raise FileUnusable(f"{text} does not name its store", hint="write it as hdfs://HOST:PORT/FOLDER")
    return StorePath(text)


def state_path(text: str) -> Path:
    """Return the path of a state directory, which is never a whole store."""
    if is_url(text) and "/" not in text.partition("://")[2].strip("/"):
        raise FileUnusable(f"{text} names no folder of a store", hint="write it as s3a://BUCKET/FOLDER")
    return path_of(text)


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it exists."""
    import shutil

    if isinstance(folder, StorePath):
        folder.store.remove(str(folder))
    else:
        shutil.rmtree(folder, ignore_errors=True)


class StorePath(PosixPath):
    """A path on a store. What the disk alone can do raises: nothing lands by mistake in a local folder `s3a:`."""

    @property
    def store(self) -> Store:
        """Who reaches it."""
        if not _mounted:
            raise FileUnusable(f"{self} is on a store, which this command does not reach", hint="name a folder instead")
        return _mounted[-1]

    def __str__(self) -> str:
        scheme, *rest = self.parts
        return f"{scheme}//{'/'.join(rest)}"

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is not on a disk")

    def absolute(self) -> Self:
        """As it is: there is no folder that it could be relative to."""
        return self

    def resolve(self, strict: bool = False) -> Self:
        """As it is: stores have no links."""
        del strict
        return self

    def read_bytes(self) -> bytes:
        return self.store.read(str(self))

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def write_bytes(self, data: Any) -> int:
        self.store.write(str(self), bytes(data))
        return len(data)

    def exists(self, **_: Any) -> bool:
        return self.store.is_folder(str(self)) is not None

    def is_dir(self, **_: Any) -> bool:
        return self.store.is_folder(str(self)) is True

    def is_file(self, **_: Any) -> bool:
        return self.store.is_folder(str(self)) is False

    def iterdir(self) -> Generator[Self, None, None]:
        yield from (self / name for name in self.store.names(str(self)))

    def glob(self, pattern: str, **_: Any) -> Generator[Self, None, None]:
        """As of the disk, without `**`; a pattern's last part may be a plain name."""
        first, _slash, rest = pattern.partition("/")
        for path in self.iterdir():
            if fnmatchcase(path.name, first):
                yield from path.glob(rest) if rest else (path,)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder of a store exists if it has files."""

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        del mode
        self.store.write(str(self), b"", new=not exist_ok)

    def unlink(self, missing_ok: bool = False) -> None:
        if not self.store.remove(str(self)) and not missing_ok:
            raise FileNotFoundError(str(self))

    def open(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self} is not on a disk")

    def stat(self, **_: Any) -> Any:
        raise TypeError(f"{self} is not on a disk")
