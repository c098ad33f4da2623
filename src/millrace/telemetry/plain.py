"""Any value as JSON can carry it to a browser: finite numbers, whole characters, bounded text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

LONGEST = 4096
"""Characters of a text that are kept: a page shows no more, and memory must not depend on what records hold."""
_EXACT = 2**53
"""Whole numbers up to here are the same in JavaScript."""
_DEEPEST = 16


def plain(value: Any, longest: int = LONGEST, depth: int = 0) -> Any:
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
        return plain(float(value))
    if isinstance(value, int):
        return plain(int(value))
    return _text(value.isoformat() if isinstance(value, date) else str(value), longest)


def _many(value: Mapping[Any, Any] | Iterable[Any], longest: int, depth: int) -> Any:
    if depth >= _DEEPEST:
        return _text(str(value), longest)
    if isinstance(value, Mapping):
        return {_text(str(name), longest): plain(one, longest, depth + 1) for name, one in value.items()}
    return [plain(one, longest, depth + 1) for one in value]


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
