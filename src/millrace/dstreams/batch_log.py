"""A folder beside a checkpoint, wherever that is: on this machine, or in any file system that Hadoop knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from millrace.drafts import write_whole
from millrace.errors import FileUnusable


class Folder(ABC):
    """Small files by name; each is whole or not there."""

    @abstractmethod
    def names(self) -> list[str]:
        """What is in it; nothing when there is no such folder."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """What a file holds; None when there is none."""

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file; it is safe when this returns."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; not being there is fine."""

    @abstractmethod
    def under(self, name: str) -> Folder:
        """The folder of that name in this one."""


class LocalFolder(Folder):
    """On a disk that this process sees."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """What is in it."""
        return [one.name for one in self.path.iterdir()] if self.path.is_dir() else []

    def read(self, name: str) -> bytes | None:
        """What a file holds."""
        file = self.path / name
        return file.read_bytes() if file.is_file() else None

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file."""
        try:
            write_whole(self.path / name, content)
        except OSError as error:
            told = f"{self.path / name} cannot be written"
            raise FileUnusable(told, why=error.strerror, hint="the checkpoint's folder must be writable") from None

    def delete(self, name: str) -> None:
        """Remove a file or a folder of files."""
        place = self.path / name
        if place.is_dir():
            for one in place.iterdir():
                one.unlink()
            place.rmdir()
        else:
            place.unlink(missing_ok=True)

    def under(self, name: str) -> Folder:
        """The folder of that name."""
        return LocalFolder(self.path / name)


class HadoopFolder(Folder):
    """In a file system of Hadoop's, through Spark's JVM."""

    def __init__(self, jvm: Any, configuration: Any, path: str) -> None:
        self._jvm, self._configuration, self.path = jvm, configuration, path
        self._system = self._place().getFileSystem(configuration)

    def names(self) -> list[str]:
        """What is in it."""
        if not self._system.exists(self._place()):
            return []
        return [one.getPath().getName() for one in self._system.listStatus(self._place())]

    def read(self, name: str) -> bytes | None:
        """What a file holds."""
        place = self._place(name)
        if not self._system.exists(place):
            return None
        opened = self._system.open(place)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(opened))
        finally:
            opened.close()

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file: whole under another name, then named."""
        draft, place = self._place(f".{name}.draft"), self._place(name)
        written = self._system.create(draft, True)
        try:
            written.write(bytearray(content))
            if hasattr(written, "hsync"):
                written.hsync()
        finally:
            written.close()
        if not self._system.rename(draft, place):  # HDFS does not replace
            self._system.delete(place, False)
            if not self._system.rename(draft, place):
                raise FileUnusable(f"{self.path}/{name} cannot be written", hint="check the checkpoint's file system")

    def delete(self, name: str) -> None:
        """Remove a file or a folder of files."""
        self._system.delete(self._place(name), True)

    def under(self, name: str) -> Folder:
        """The folder of that name."""
        return HadoopFolder(self._jvm, self._configuration, f"{self.path}/{name}")

    def _place(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.path}/{name}" if name else self.path)


def folder_at(place: str, jvm: Any, configuration: Any) -> Folder:
    """The folder of a checkpoint as Spark names it: a path, or a URL."""
    parts = urlsplit(place)
    if parts.scheme in ("", "file"):
        return LocalFolder(Path(unquote(parts.path) if parts.scheme else place))
    return HadoopFolder(jvm, configuration, place.rstrip("/"))
