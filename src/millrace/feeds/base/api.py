"""The contract of a feed.

- `Feed` is the base class: one file in `millrace.feeds` (or one entry point in the group `millrace.feeds`) defines
  one concrete subclass, a frozen dataclass whose fields are its options. The file's name is the feed's name, the
  first line of the class's docstring its help. docs/extending.md shows an example.
- `Run` is what a feed knows about the run that it is in, `Batch` what it yields.
- `Cursor` saves the position of a feed for the next run.
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
    """Records to send, and the callback for when the sink has all of them (or failed)."""

    records: Sequence[Record]
    done: Done | None = None


class Cursor:
    """The position of a feed, saved in a folder so that the next run resumes there.

    Two runs with one folder would overwrite each other's positions, so the first one locks it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock: FolderLock | None = None

    def load(self) -> str | None:
        """Return the last saved position, or None at the first run."""
        path = self._path()
        return (path.read_text("utf-8") or None) if path and path.exists() else None

    def save(self, position: str) -> None:
        """Save a position; the sink must have everything before it."""
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
    """The run that a feed is in."""

    rate: float | None = None
    """Records a second that the user asked for; None is as fast as possible. The pump limits the rate."""
    count: int | None = None
    """The number of records that the user asked for; None is without end. The pump does the counting."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set at the end of the run. A feed that waits must wait on this, or be woken by it."""
    cursor: Cursor = field(default_factory=lambda: Cursor(None))
    notify: Callable[[str], None] = lambda _: None
    """Prints one line for the user: connected, reconnecting, listening at …"""
    ready: Callable[[], None] = lambda: None
    """Called by a feed that listens, when clients may send."""


class Feed(ABC):
    """A source of records."""

    delivery_timeout: ClassVar[float | None] = None
    """Seconds after which undelivered records have failed; None leaves it to the sink."""

    @abstractmethod
    def batches(self, run: Run) -> Iterator[Batch]:
        """Yield records in order, in batches of any size, until the origin ends or `run.stop` is set."""


FEEDS = PluginRegistry("millrace.feeds", Feed, "feed")
