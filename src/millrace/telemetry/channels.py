"""Channels: what changes in a run, by name, with versions, so that a client gets what it misses.

- `Slot` holds one value, `RowBuffer` the newest rows; both return the difference to a version.
- `plain_value` makes any value fit for JSON and a browser: finite numbers, valid text, bounded length.
- `error_fields`: an error as the dashboard shows it.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

from millrace.errors import MillraceError

MAX_TEXT_CHARS = 4096
"""The dashboard shows no more, and memory must not depend on what records hold."""
_MAX_EXACT_INTEGER = 2**53
"""Whole numbers up to here are the same in JavaScript."""
_MAX_DEPTH = 16


def plain_value(value: Any, max_chars: int = MAX_TEXT_CHARS, depth: int = 0) -> Any:
    """Return the value without what JSON lacks: no NaN, no half characters, no number that would be rounded."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is int:
        return value if -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER else _whole(value)
    if kind is float:
        return value if math.isfinite(value) else None
    return _text(value, max_chars) if kind is str else _other(value, max_chars, depth)


def _other(value: Any, max_chars: int, depth: int) -> Any:
    if isinstance(value, datetime):
        return milliseconds(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _many(value, max_chars, depth)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value[: 4 * max_chars]).decode("utf-8", "backslashreplace"), max_chars)
    if isinstance(value, Decimal):
        return None if not value.is_finite() else _text(str(value), max_chars)
    if isinstance(value, float):  # numpy's, and other kinds of one
        return plain_value(float(value))
    if isinstance(value, int):
        return plain_value(int(value))
    return _text(value.isoformat() if isinstance(value, date) else str(value), max_chars)


def _many(value: Mapping[Any, Any] | Iterable[Any], max_chars: int, depth: int) -> Any:
    if depth >= _MAX_DEPTH:
        return _text(str(value), max_chars)
    if isinstance(value, Mapping):
        return {_text(str(name), max_chars): plain_value(item, max_chars, depth + 1) for name, item in value.items()}
    return [plain_value(item, max_chars, depth + 1) for item in value]


def _whole(value: int) -> str:
    """Return a large integer as text; one that Python refuses to print, by its size."""
    return str(value) if value.bit_length() < 4096 else f"a number of {value.bit_length():,} bits"


def milliseconds(moment: datetime) -> int:
    """Return a moment in milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def _text(words: str, max_chars: int) -> str:
    short = words if len(words) <= max_chars else words[: max_chars - 1] + "…"
    return short if short.isascii() else short.encode("utf-8", "replace").decode("utf-8")


_MAX_PROBLEMS = 500


@dataclass(frozen=True, slots=True)
class Delta:
    """What a client misses: `replace` and `snapshot` replace all that it has, `append` adds rows.

    An append that leads from version 7 to version 9 has exactly two rows.
    """

    kind: str
    version: int
    data: Any


class Slot:
    """The latest value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.version = 0  # how often it was set
        self.value: Any = None

    def set(self, value: Any) -> None:
        """Set the value, as JSON can carry it."""
        plain = plain_value(value)
        with self._lock:
            self.value = plain
            self.version += 1

    def since(self, version: int | None) -> Delta | None:
        """Return what a client with that version (None: with nothing) misses; None when it misses nothing."""
        with self._lock:
            if version == self.version or self.version == 0:
                return None
            return Delta("replace", self.version, self.value)


class RowBuffer:
    """The newest `size` rows; a column may be added later, and is null in the rows before."""

    def __init__(self, size: int, columns: Iterable[str] = ()) -> None:
        self.size = size
        self._lock = threading.Lock()
        self.version = 0  # how many rows there have been
        self._indices = {name: index for index, name in enumerate(columns)}
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=size)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row; the oldest goes when there is no room."""
        self.extend((row,))

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, all or none of which a client sees."""
        plain = [{name: plain_value(value) for name, value in row.items()} for row in rows]
        with self._lock:
            for row in plain:
                for name in row:
                    self._indices.setdefault(name, len(self._indices))
                self._rows.append(tuple(row.get(name) for name in self._indices))
            self.version += len(plain)

    def clear(self) -> None:
        """Remove all rows; every client gets a snapshot."""
        with self._lock:
            self._rows.clear()
            self.version += 1

    def since(self, version: int | None) -> Delta | None:
        """Return what a client with that version (None: with nothing) misses; None when it misses nothing."""
        with self._lock:
            if version == self.version:
                return None
            missed = 0 if version is None else self.version - version
            kind, count = ("append", missed) if 0 < missed <= len(self._rows) else ("snapshot", len(self._rows))
            return Delta(kind, self.version, {"columns": self._columns(count), "size": self.size})

    def newest(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the newest rows, oldest first."""
        with self._lock:
            columns = self._columns(len(self._rows) if limit is None else min(limit, len(self._rows)))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _columns(self, count: int) -> dict[str, list[Any]]:
        rows = list(islice(reversed(self._rows), count))[::-1]
        return {
            name: [row[index] if index < len(row) else None for row in rows] for name, index in self._indices.items()
        }


Channel = Slot | RowBuffer


class Channels:
    """Every channel by its name. `epoch` is different in every process, so that versions are never mixed up."""

    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._problems: dict[str, tuple[str, int | None]] = {}
        """Why channels cannot be filled, and the versions that they had then."""

    def slot(self, name: str) -> Slot:
        """Return the slot of a name; it is created when there is none."""
        with self._lock:
            channel = self._channels.setdefault(name, Slot())
        if not isinstance(channel, Slot):
            raise TypeError(f"{name} is a row buffer")
        return channel

    def row_buffer(self, name: str, size: int, columns: Iterable[str] = ()) -> RowBuffer:
        """Return the row buffer of a name; it is created when there is none."""
        with self._lock:
            channel = self._channels.setdefault(name, RowBuffer(size, columns))
        if not isinstance(channel, RowBuffer):
            raise TypeError(f"{name} is a slot")
        return channel

    def get(self, name: str) -> Channel | None:
        """Return the channel of a name, if there is one."""
        return self._channels.get(name)

    def names(self) -> list[str]:
        with self._lock:
            return list(self._channels)

    def set_problem(self, name: str, message: str | None) -> None:
        """Set why a channel cannot be filled, until something is put into it again; None removes it."""
        with self._lock:
            self._problems.pop(name, None)
            if message is not None:
                self._problems[name] = (str(plain_value(message)), self._version(name))
                while len(self._problems) > _MAX_PROBLEMS:
                    del self._problems[next(iter(self._problems))]

    def problems(self) -> Mapping[str, str]:
        """Return why channels cannot be filled, by name."""
        with self._lock:
            self._problems = {
                name: problem for name, problem in self._problems.items() if problem[1] == self._version(name)
            }
            return {name: message for name, (message, _) in self._problems.items()}

    def _version(self, name: str) -> int | None:
        channel = self._channels.get(name)
        return channel.version if channel else None


def error_fields(error: MillraceError | None) -> dict[str, Any] | None:
    """Return the parts of an error; None when there is no error."""
    if error is None:
        return None
    where = str(error.place) if error.place else None
    return {"message": error.message, "why": error.why, "hint": error.hint, "where": where}
