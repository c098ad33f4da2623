"""A folder beside a checkpoint, wherever that is: on this machine, or in any file system that Hadoop knows.

What each batch of a stream reads, written ahead, so that a batch that comes again is the same batch.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from millrace.atomic_files import write_whole
from millrace.errors import CheckpointIncompatible, FileUnusable, StateMismatch


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


Note = dict[str, Any]
"""What a batch reads, in words that JSON has."""
_ROOM = "millrace"
_OWNER = "owner.json"
_ENDING = ".json"
_FORGOTTEN = "forgotten"


class DStreamBatchLog:
    """The notes of one stream by batch time (in milliseconds); without a checkpoint they are in memory only."""

    def __init__(self, checkpoint: Folder | None, stream: str) -> None:
        self._folder = checkpoint.under(_ROOM).under(stream) if checkpoint else None
        self._known: dict[int, Note] = {}
        self._forgotten = -1
        """The newest batch whose note was removed."""
        if self._folder:
            self._load(self._folder)

    def _load(self, folder: Folder) -> None:
        for name in folder.names():
            if name.endswith(_ENDING) and name.removesuffix(_ENDING).isdigit():
                self._known[int(name.removesuffix(_ENDING))] = json.loads(folder.read(name) or b"{}")
        self._forgotten = int(folder.read(_FORGOTTEN) or -1)

    def at(self, time: int) -> Note | None:
        """What the batch of a time reads; None when that is not decided yet."""
        if time <= self._forgotten and time not in self._known:
            raise CheckpointIncompatible(
                f"what the batch of {time} read is no longer known",
                why="no checkpoint that is newer needs it, and this one is older",
                hint="start from the newest checkpoint, or anew with another folder",
            )
        return self._known.get(time)

    def last(self) -> tuple[int, Note] | None:
        """The newest one with its time."""
        return max(self._known.items(), key=lambda one: one[0], default=None)

    def before(self, time: int) -> Note | None:
        """The newest one of an earlier batch."""
        earlier = [one for one in self._known if one < time]
        return self._known[max(earlier)] if earlier else None

    def write(self, time: int, note: Note) -> None:
        """Decide a batch: it is safe on disk when this returns."""
        if self._folder:
            self._folder.write(f"{time}{_ENDING}", json.dumps(note).encode())
        self._known[time] = note

    def forget(self, before: int) -> None:
        """Remove what is older, but never the newest: the next batch begins where that ends."""
        gone = sorted(time for time in self._known if time < before)[: len(self._known) - 1]
        if not gone:
            return
        if self._folder:
            self._folder.write(_FORGOTTEN, str(gone[-1]).encode())
        for time in gone:
            if self._folder:
                self._folder.delete(f"{time}{_ENDING}")
            del self._known[time]
        self._forgotten = gone[-1]


def require_own(checkpoint: Folder, program: str, streams: list[str]) -> None:
    """The one rule of whose a checkpoint is: its folder belongs to the program that first wrote notes there.

    Spark would run the functions of the other program, whatever this one says.
    """
    room = checkpoint.under(_ROOM)
    found = room.read(_OWNER)
    if found is None:
        room.write(_OWNER, json.dumps({"program": program, "streams": streams}).encode())
        return
    owner = json.loads(found)
    if owner["program"] != program:
        raise StateMismatch(
            f"the checkpoint belongs to {owner['program']}, not to {program}",
            why=f"{owner['program']} reads {'; '.join(owner['streams'])}",
            hint="give each program a checkpoint folder of its own; one that was renamed starts anew with another",
        )


def forget_others(checkpoint: Folder, streams: list[str]) -> None:
    """Remove the notes of streams of earlier starts, which began anew in the same folder."""
    room = checkpoint.under(_ROOM)
    for name in room.names():
        if name != _OWNER and name not in streams and not name.startswith("."):
            room.delete(name)


def oldest_checkpoint(checkpoint: Folder) -> int | None:
    """The time of the oldest of Spark's checkpoints that is still there."""
    times = [name.removeprefix("checkpoint-").removesuffix(".bk") for name in checkpoint.names()]
    return min((int(time) for time in times if time.isdigit()), default=None)
