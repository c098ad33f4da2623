"""A value in the one form in which it is compared and shown, by the type of its column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from millrace.clients import letters as forms
from millrace.errors import InvalidTest
from millrace.testing.given import moment

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS = 12
"""Digits of a fraction that count: sums may differ in the last ones."""
_NAMES = {
    **dict.fromkeys(("nan", ".nan"), "NaN"),
    **dict.fromkeys(("inf", "infinity", ".inf", "+infinity", "+inf"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity", "-.inf"), "-Infinity"),
}
BITS = 63
"""Of a whole number that JSON can say."""
_EXACT = Context(prec=100)
"""Of decimals every digit counts."""


def canonical(value: Any, kind: pa.DataType) -> Any:
    """A value in the one form in which it is compared and shown; one that does not fit its type is left as it is."""
    import pyarrow.types as types

    if value is None:
        return None
    if types.is_struct(kind) and isinstance(value, Mapping):
        return {one.name: canonical(value.get(one.name), one.type) for one in kind}
    if (types.is_list(kind) or types.is_large_list(kind)) and isinstance(value, list | tuple):
        return [canonical(one, kind.value_type) for one in value]
    if types.is_map(kind) and isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else value  # as Arrow has it
        return {str(name): canonical(one, kind.item_type) for name, one in pairs}
    return _simple(value, kind)


def strays(value: Any, kind: pa.DataType, path: str) -> Iterator[str]:
    """The fields within an expected value that its type does not have, in words."""
    import pyarrow.types as types

    if types.is_struct(kind) and isinstance(value, Mapping):
        known = {one.name: one.type for one in kind}
        for name, one in value.items():
            if name not in known:
                yield f"{f'{path}.{name}'!r}: {path} has {', '.join(known)}"
            else:
                yield from strays(one, known[name], f"{path}.{name}")
    elif (types.is_list(kind) or types.is_large_list(kind)) and isinstance(value, list | tuple):
        for one in value:
            yield from strays(one, kind.value_type, path)
    elif types.is_map(kind) and isinstance(value, Mapping):
        for name, one in value.items():
            yield from strays(one, kind.item_type, f"{path}.{name}")


def _simple(value: Any, kind: pa.DataType) -> Any:
    import pyarrow.types as types

    if types.is_timestamp(kind):
        return _moment(value)
    if types.is_date(kind):
        return value.isoformat() if isinstance(value, date) else str(value)
    if types.is_decimal(kind):
        return _decimal(value)
    if types.is_floating(kind) and not isinstance(value, bool):
        return _fraction(value)
    if types.is_integer(kind) and isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and value.bit_length() > BITS:
        return str(value)
    if types.is_string(kind) or types.is_large_string(kind):
        return value if isinstance(value, str) else str(value)
    if isinstance(value, bytes):
        text = forms.text(value)
        return value.hex() if text is None else text
    return value


def _moment(value: Any) -> Any:
    try:
        at = moment(value).astimezone(UTC)
    except InvalidTest:
        return value
    return at.isoformat(timespec="microseconds" if at.microsecond else "seconds").replace("+00:00", "Z")


def _fraction(value: Any) -> Any:
    """By the digits that count; what is no number has a name, as null is nothing at all."""
    if isinstance(value, str):
        return _NAMES.get(value.lower(), value)
    if not isinstance(value, int | float):
        return value
    if math.isfinite(value):
        return float(f"{value:.{_DIGITS}g}") + 0.0  # a zero has no sign
    return _NAMES[str(value)]


def _decimal(value: Any) -> Any:
    try:
        return format(_EXACT.normalize(Decimal(str(value))), "f")
    except InvalidOperation:
        return value
