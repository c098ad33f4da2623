"""The contract of a feed, and where feeds are found.

A feed is one file in this folder (or one entry point in the group `millrace.feeds`) that defines one concrete
subclass of `Feed`: a frozen dataclass whose fields are its options. The file's name is the feed's name, the
first line of the class's docstring its help. docs/extending.md shows a whole one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from millrace.atomic_files import write_whole
from millrace.clients.kafka.record import Done, Record
from millrace.errors import FeedInUse
from millrace.locks import FolderLock
from millrace.plugins import PluginRegistry


class Batch(NamedTuple):
    """Records to send, and what to do when all of them are safe (or cannot be)."""

    records: Sequence[Record]
    done: Done | None = None


class Cursor:
    """How far a feed has read its origin, kept in a folder so that the next run goes on from there.

    Two runs that save to one place would undo each other's positions, so the first to ask holds a lock.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock: FolderLock | None = None

    def load(self) -> str | None:
        """The last saved position, or None at the first run."""
        path = self._path()
        return (path.read_text("utf-8") or None) if path and path.exists() else None

    def save(self, position: str) -> None:
        """Remember a position; everything before it must be safe in the sink."""
        path = self._path()
        if path:
            write_whole(path, position)

    def _path(self) -> Path | None:
        if self._folder is None:
            return None
        if self._lock is None:
            lock = FolderLock(self._folder)
            if not lock.try_acquire():
                lock.release()
                raise FeedInUse(
                    "another run of this feed writes to the same place",
                    why=f"it holds {self._folder / 'lock'}",
                    hint="stop it, or write to another topic",
                )
            self._lock = lock
        return self._folder / "position"


@dataclass(frozen=True)
class Run:
    """What a feed may know of the run it is in."""

    rate: float | None = None
    """Records a second that the user asked for; None is as fast as possible. The pump does the pacing."""
    count: int | None = None
    """How many records the user asked for; None is without end. The pump does the counting."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the run is over. A feed that waits must wait on this, or be woken by it."""
    cursor: Cursor = field(default_factory=lambda: Cursor(None))
    say: Callable[[str], None] = lambda _: None
    """Tells the user one line: connected, reconnecting, listening at …"""
    ready: Callable[[], None] = lambda: None
    """Called by a feed that others send to, when they may."""


class Feed(ABC):
    """A source of records."""

    patience: ClassVar[float | None] = None
    """Seconds after which records that have not arrived have failed; None leaves it to the sink."""

    @abstractmethod
    def batches(self, run: Run) -> Iterator[Batch]:
        """Records in order, in batches of any size; ends when the origin does or when `run.stop` is set."""


FEEDS = PluginRegistry("millrace.feeds", Feed, "feed")
