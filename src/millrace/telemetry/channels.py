"""What changes, by name: a slot holds one value, a ring the newest rows; both can tell what a reader misses.

Any value as JSON can carry it to a browser: finite numbers, whole characters, bounded text.

An error as the page shows it.
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

LONGEST = 4096
"""Characters of a text that are kept: a page shows no more, and memory must not depend on what records hold."""
_EXACT = 2**53
"""Whole numbers up to here are the same in JavaScript."""
_DEEPEST = 16


def plain_value(value: Any, longest: int = LONGEST, depth: int = 0) -> Any:
    """The value without what JSON lacks: no NaN, no halves of characters, no number that would be rounded."""
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else _whole(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is str:
        return _text(value, longest)
    return _other(value, longest, depth)


def _other(value: Any, longest: int, depth: int) -> Any:
    if isinstance(value, datetime):
        return milliseconds(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _many(value, longest, depth)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value[: 4 * longest]).decode("utf-8", "backslashreplace"), longest)
    if isinstance(value, Decimal):
        return None if not value.is_finite() else _text(str(value), longest)
    if isinstance(value, float):  # numpy's, and other kinds of one
        return plain_value(float(value))
    if isinstance(value, int):
        return plain_value(int(value))
    return _text(value.isoformat() if isinstance(value, date) else str(value), longest)


def _many(value: Mapping[Any, Any] | Iterable[Any], longest: int, depth: int) -> Any:
    if depth >= _DEEPEST:
        return _text(str(value), longest)
    if isinstance(value, Mapping):
        return {_text(str(name), longest): plain_value(one, longest, depth + 1) for name, one in value.items()}
    return [plain_value(one, longest, depth + 1) for one in value]


def _whole(value: int) -> str:
    """A large whole number as text; one beyond all measure (Python refuses to write it) by its size."""
    return str(value) if value.bit_length() < 4096 else f"a number of {value.bit_length():,} bits"


def milliseconds(moment: datetime) -> int:
    """A moment in milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def _text(words: str, longest: int) -> str:
    short = words if len(words) <= longest else words[: longest - 1] + "…"
    if short.isascii():
        return short
    return short.encode("utf-8", "replace").decode("utf-8")


_MOST_TROUBLES = 500


@dataclass(frozen=True, slots=True)
class Delta:
    """What a reader misses: `replace` and `snapshot` stand for all that was before, `append` adds rows to it.

    An append that leads from version 7 to version 9 has exactly two rows.
    """

    kind: str
    version: int
    data: Any


class Slot:
    """One value, the latest; setting it again forgets the one before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 0
        self._value: Any = None

    @property
    def version(self) -> int:
        """How often it was set."""
        return self._version

    def set(self, value: Any) -> None:
        """Take a value in; what JSON cannot carry is made plain first."""
        made = plain_value(value)
        with self._lock:
            self._value = made
            self._version += 1

    @property
    def value(self) -> Any:
        """The value; None before there is one."""
        return self._value

    def since(self, version: int | None) -> Delta | None:
        """What a reader of that version (None: of nothing) misses; None when it misses nothing."""
        with self._lock:
            if version == self._version or self._version == 0:
                return None
            return Delta("replace", self._version, self._value)


class RowBuffer:
    """The newest rows, so many and no more; a column may come later, and is null in the rows before."""

    def __init__(self, size: int, columns: Iterable[str] = ()) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._version = 0
        self._places = {name: place for place, name in enumerate(columns)}
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=size)

    @property
    def version(self) -> int:
        """How many rows there have been."""
        return self._version

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row; the oldest goes when there is no room."""
        self.extend((row,))

    def extend(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows, all or none of which a reader sees."""
        made = [{name: plain_value(value) for name, value in row.items()} for row in rows]
        with self._lock:
            for row in made:
                for name in row:
                    self._places.setdefault(name, len(self._places))
                self._rows.append(tuple(row.get(name) for name in self._places))
            self._version += len(made)

    def clear(self) -> None:
        """Forget the rows; every reader begins anew."""
        with self._lock:
            self._rows.clear()
            self._version += 1

    def since(self, version: int | None) -> Delta | None:
        """What a reader of that version (None: of nothing) misses; None when it misses nothing."""
        with self._lock:
            if version == self._version:
                return None
            missed = None if version is None else self._version - version
            if missed is None or not 0 < missed <= len(self._rows):
                return Delta("snapshot", self._version, self._data(len(self._rows)))
            return Delta("append", self._version, self._data(missed))

    def newest(self, most: int | None = None) -> list[dict[str, Any]]:
        """The newest rows, oldest first."""
        with self._lock:
            columns = self._columns(len(self._rows) if most is None else min(most, len(self._rows)))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _data(self, count: int) -> dict[str, Any]:
        return {"columns": self._columns(count), "size": self.size}

    def _columns(self, count: int) -> dict[str, list[Any]]:
        rows = list(islice(reversed(self._rows), count))[::-1]
        return {
            name: [row[place] if place < len(row) else None for row in rows] for name, place in self._places.items()
        }


Channel = Slot | RowBuffer


class Channels:
    """Every channel by its name. `epoch` is another one in every process, so that versions are never mixed up."""

    def __init__(self) -> None:
        self.epoch = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._channels: dict[str, Channel] = {}
        self._troubles: dict[str, tuple[str, int | None]] = {}
        """Why channels cannot be filled, and the versions that they had then."""

    def slot(self, name: str) -> Slot:
        """The slot of a name; made when there is none."""
        with self._lock:
            found = self._channels.setdefault(name, Slot())
        if not isinstance(found, Slot):
            raise TypeError(f"{name} is a ring")
        return found

    def ring(self, name: str, size: int, columns: Iterable[str] = ()) -> RowBuffer:
        """The ring of a name; made when there is none."""
        with self._lock:
            found = self._channels.setdefault(name, RowBuffer(size, columns))
        if not isinstance(found, RowBuffer):
            raise TypeError(f"{name} is a slot")
        return found

    def get(self, name: str) -> Channel | None:
        """The channel of a name, if there is one."""
        return self._channels.get(name)

    def names(self) -> list[str]:
        """Every channel that there is."""
        with self._lock:
            return list(self._channels)

    def trouble(self, name: str, message: str | None) -> None:
        """Say why a channel cannot be filled, until something is put into it again, or (None) no longer."""
        with self._lock:
            self._troubles.pop(name, None)
            if message is not None:
                self._troubles[name] = (str(plain_value(message)), self._version(name))
                while len(self._troubles) > _MOST_TROUBLES:
                    del self._troubles[next(iter(self._troubles))]

    def troubles(self) -> Mapping[str, str]:
        """Why channels cannot be filled, by name."""
        with self._lock:
            over = [name for name, (_, version) in self._troubles.items() if version != self._version(name)]
            for name in over:
                del self._troubles[name]
            return {name: message for name, (message, _) in self._troubles.items()}

    def _version(self, name: str) -> int | None:
        channel = self._channels.get(name)
        return channel.version if channel else None


def error_fields(error: MillraceError | None) -> dict[str, Any] | None:
    """Its words by what they are; None when there is no error."""
    if error is None:
        return None
    where = str(error.place) if error.place else None
    return {"message": error.message, "why": error.why, "hint": error.hint, "where": where}
