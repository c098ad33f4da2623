"""How far the sink has safely come in an origin, so that the next run goes on from there.

An event on its way from an origin to a batch: its record, its place in the origin, its time.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from millrace.clients.kafka.record import Done, Record
from millrace.errors import FileUnusable, MillraceError, RecordRefused
from millrace.feeds.base.api import Run


@dataclass
class _Step:
    position: str | None
    safe: bool = False


class PositionTracker:
    """Saves positions in the order in which they were read, and never past a record that is not safe yet.

    Batches may be confirmed in any order and from any thread. A position stands for everything before it, so
    it is saved only when all the earlier batches are safe too; after one that failed nothing more is saved.
    """

    def __init__(self, run: Run, origin: str) -> None:
        self._run = run
        self._origin = origin
        self._steps: deque[_Step] = deque()
        self._lock = threading.Lock()
        self._unsaved: OSError | None = None
        self._failed: MillraceError | None = None

    def load(self) -> str | None:
        """The position of an earlier run, if it was one in this origin: that of another means nothing here."""
        text = self._run.cursor.load()
        if text is None:
            return None
        try:
            saved = json.loads(text)
            origin, position = str(saved["origin"]), str(saved["position"])
        except (ValueError, KeyError, TypeError):
            raise FileUnusable(
                "the saved position of this feed cannot be read",
                why=f"it holds {text[:80]!r}",
                hint="remove it to start from now",
            ) from None
        if origin != self._origin:
            self._run.say(f"the saved position is one in {origin}: starting from now in {self._origin}")
            return None
        return position

    def track(self, position: str | None) -> Done:
        """What to call when a batch that reaches up to this position is safe, or is not."""
        self._check()
        step = _Step(position)
        with self._lock:
            self._steps.append(step)

        def done(error: MillraceError | None) -> None:
            if isinstance(error, RecordRefused):
                # It will never be taken, so waiting for it would stop the feed for good: told, and passed over.
                self._run.say(f"an event was left out: {error.why or error.message}")
                error = None
            if error is None:
                self._settle(step)
            else:
                self._failed = self._failed or error
                self._run.stop.set()

        return done

    def _settle(self, step: _Step) -> None:
        with self._lock:
            step.safe = True
            reached = None
            while self._steps and self._steps[0].safe:
                reached = self._steps.popleft().position or reached
            if reached is not None:
                self._save(reached)

    def _save(self, position: str) -> None:
        try:
            self._run.cursor.save(json.dumps({"origin": self._origin, "position": position}))
        except OSError as error:
            # This is the sink's thread, which cannot do anything about it: the feed's raises it.
            self._unsaved = error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._unsaved is not None:
            raise FileUnusable("the position of this feed cannot be saved", why=str(self._unsaved))


class Event(NamedTuple):
    """What was read: a record to send, and how far into the origin it reaches.

    Without a record there is nothing to send and yet the position is past it; without a position it says
    nothing of how far the origin was read.
    """

    record: Record | None = None
    position: str | None = None


CONNECTED = Event()
"""Says that a connection stands, though nothing may come through it for a while."""


class Recent:
    """The last few thousand ids, to leave out what is sent again because a stream was rewound."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def repeats(self, key: bytes | None) -> bool:
        """Whether this id was here before; from now on it was."""
        if key is None:
            return False
        if key in self._ids:
            return True
        self._ids[key] = None
        if len(self._ids) > self._size:
            self._ids.popitem(last=False)
        return False


def event_fields(data: bytes) -> dict[str, Any]:
    """The fields of an event; none if it is not a JSON object, which is for the reader of the topic to judge."""
    try:
        read = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return read if isinstance(read, dict) else {}


def key_of(identity: object) -> bytes | None:
    """An event's id as a record's key."""
    return str(identity).encode() if isinstance(identity, str | int) else None


def time_of(text: object) -> int | None:
    """The milliseconds of an ISO 8601 time, if it is one and not in the future."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return not_future((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def not_future(millis: float) -> int | None:
    """A timestamp that Kafka can take: one from the future would keep its segment from ever being deleted."""
    return int(millis) if 0 <= millis <= time.time() * 1000 else None
