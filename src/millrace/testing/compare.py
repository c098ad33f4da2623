"""Expected rows beside those that came: in any order, of the columns that are named; the difference as a table.

A value in the one form in which it is compared and shown, by the type of its column.

Expected dead letters beside those that were buried.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date
from decimal import Context, Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from millrace.clients.kafka.record import text_or_none
from millrace.dead_letters.letter import DeadLetter
from millrace.errors import InvalidTest, SourceLocation, did_you_mean
from millrace.testing import row_files
from millrace.testing.input_rows import test_moment
from millrace.units import format_count

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


def stray_fields(value: Any, kind: pa.DataType, path: str) -> Iterator[str]:
    """The fields within an expected value that its type does not have, in words."""
    import pyarrow.types as types

    if types.is_struct(kind) and isinstance(value, Mapping):
        known = {one.name: one.type for one in kind}
        for name, one in value.items():
            if name not in known:
                yield f"{f'{path}.{name}'!r}: {path} has {', '.join(known)}"
            else:
                yield from stray_fields(one, known[name], f"{path}.{name}")
    elif (types.is_list(kind) or types.is_large_list(kind)) and isinstance(value, list | tuple):
        for one in value:
            yield from stray_fields(one, kind.value_type, path)
    elif types.is_map(kind) and isinstance(value, Mapping):
        for name, one in value.items():
            yield from stray_fields(one, kind.item_type, f"{path}.{name}")


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
        text = text_or_none(value)
        return value.hex() if text is None else text
    return value


def _moment(value: Any) -> Any:
    try:
        at = test_moment(value).astimezone(UTC)
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


Row = Mapping[str, Any]


class Different(AssertionError):
    """What came is not what was expected."""

    def __init__(self, told: str, place: SourceLocation | None = None) -> None:
        super().__init__(f"{place}: {told}" if place else told)
        self.told, self.place = told, place


def expected_rows(rows: Any, folder: Path) -> list[Row]:
    """Rows as a test writes them: a list, or a file by its form."""
    if isinstance(rows, Mapping) and len(rows) == 1 and next(iter(rows)) in ("json", "csv"):
        ((form, file),) = rows.items()
        rows = _of_file(form, folder / str(file))
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidTest("expected rows are a list, or json or csv with a file", hint="an empty one is []")
    found = list(rows)
    for row in found:
        if not isinstance(row, Mapping) or not row:
            raise InvalidTest(f"an expected row has columns, as {{tag: rain}}: {row!r} has none")
    return found


def difference(what: str, found: pa.Table, expected: Sequence[Row]) -> str | None:
    """What is missing and what is unexpected, as a table; None when all is there."""
    names = list(dict.fromkeys(name for row in expected for name in row)) or found.column_names
    unknown = [name for name in names if name not in found.column_names]
    if unknown:
        return f"{what} has no column {unknown[0]!r}: it has {', '.join(found.column_names)}"
    kinds = {name: found.schema.field(name).type for name in names}
    if stray := next(
        (one for row in expected for name in row for one in stray_fields(row[name], kinds[name], name)), None
    ):
        return f"{what} has no field {stray}"
    came = [[canonical(row[name], kinds[name]) for name in names] for row in found.select(names).to_pylist()]
    wanted = [[canonical(row.get(name), kinds[name]) for name in names] for row in expected]
    return _difference_text(what, names, came, wanted)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table in the values that a test would write."""
    names = table.column_names
    kinds = {name: table.schema.field(name).type for name in names}
    return [{name: canonical(row[name], kinds[name]) for name in names} for row in table.to_pylist()]


def whole_table(steps: Sequence[pa.Table], mode: str, key: Sequence[str]) -> pa.Table:
    """What a table holds after several steps: in complete mode the last, with a key the newest row of each."""
    import pyarrow as pa

    if not steps:
        raise InvalidTest("nothing was given", hint="give rows first")
    if mode == "complete":
        return steps[-1]
    every = pa.concat_tables(steps)
    if not key:
        return every
    for name in key:
        if name not in every.column_names:
            raise InvalidTest(f"there is no column {name!r} to be a key", hint=did_you_mean(name, every.column_names))
    newest = {repr([row[name] for name in key]): at for at, row in enumerate(every.to_pylist())}
    return every.take(sorted(newest.values()))


def _difference_text(what: str, names: list[str], came: list[list[Any]], wanted: list[list[Any]]) -> str | None:
    found, expected = Counter(map(row_key, came)), Counter(map(row_key, wanted))
    missing, extra = expected - found, found - expected
    if not missing and not extra:
        return None
    rows = [("-", _values(key)) for key in missing.elements()] + [("+", _values(key)) for key in extra.elements()]
    rows.sort(key=lambda row: ([_cell(value) for value in row[1]], row[0] == "+"))
    same = (found & expected).total()
    return f"{what}: {row_counts(missing.total(), extra.total(), same)}\n{table_of(names, rows)}"


def row_counts(missing: int, extra: int, same: int = 0) -> str:
    """How many rows are there, are missing, are too many."""
    parts = ((same, "as expected"), (missing, "missing (-)"), (extra, "not expected (+)"))
    told = [f"{number} {words}" for number, words in parts if number]
    return f"rows {', '.join(told)}"


def table_of(names: Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """Rows under the names of their columns, each after its mark."""
    lines = [["", *names], *([mark, *map(_cell, values)] for mark, values in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names) + 1)]
    return "\n".join("  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


_WORDS = ("", "null")
"""Texts that would look like something else without quotes."""


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) and value not in _WORDS else row_key(value).decode()


def row_key(value: Any) -> bytes:
    """A canonical value as bytes, which are equal when it is."""
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _values(key: bytes) -> list[Any]:
    return list(orjson.loads(key))


def _of_file(form: str, path: Path) -> list[Any]:
    data = row_files.content(path)
    if form == "json":
        return [row for _, row in row_files.json_rows(data, path)]
    return [{name: _meant(text) for name, text in row.items()} for _, row in row_files.csv_rows(data, path)]


def _meant(text: str) -> Any:
    """Cells of CSV know no types: a number is one where it looks like one."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


ANY_LETTERS = "any"
"""What a test says in the place of dead letters that it does not look at."""
_PARTS = ("value", "key", "reason", "topic", "partition", "offset", "file")


def dead_difference(source: str, found: Sequence[DeadLetter], expected: Any, folder: Path) -> str | None:
    """What is not as expected: their number, or a row each, of which every part that is named must be in it."""
    if expected == ANY_LETTERS:
        return None
    if is_count(expected):
        unlike = f"{source}: {format_count(len(found), 'dead letter')}, not {expected}{listed_letters(found)}"
        return None if len(found) == expected else unlike
    rows = expected_rows(expected, folder)
    for name in (name for row in rows for name in row if name not in _PARTS):
        raise InvalidTest(f"a dead letter has no {name!r}", hint=did_you_mean(name, _PARTS))
    return _unmatched(source, rows, [_letter(one) for one in found])


def unexpected_letters(source: str, letters: Sequence[DeadLetter]) -> str:
    """Dead letters that a test says nothing about, in words."""
    said = f"{source}: {format_count(len(letters), 'dead letter')}, and the test expects none"
    return f"{said}; it may say dead: {{{source}: {len(letters)}}}, or {ANY_LETTERS}{listed_letters(letters)}"


def is_count(expected: Any) -> bool:
    """Whether a test says how many."""
    return isinstance(expected, int) and not isinstance(expected, bool)


def listed_letters(letters: Sequence[DeadLetter]) -> str:
    """Letters, one a line."""
    told = [_letter(one) for one in letters]
    return "".join(f"\n  {one['value']}: {one['reason']}" for one in told)


def plain_letters(letters: Sequence[DeadLetter], like: Any, folder: Path) -> Any:
    """Dead letters as a test would expect them: counted, or told by the same parts, as those before were."""
    if is_count(like) or like == ANY_LETTERS:
        return len(letters)
    named = dict.fromkeys(name for row in expected_rows(like, folder) for name in row)
    return [{name: _letter(one)[name] for name in named or ("value", "reason")} for one in letters]


def _unmatched(source: str, rows: Sequence[Row], found: list[dict[str, Any]]) -> str | None:
    takers: dict[int, int] = {}
    missing = [row for at, row in enumerate(rows) if not _seated(at, rows, found, takers, set())]
    left = [one for at, one in enumerate(found) if at not in takers]
    if not missing and not left:
        return None
    names = list(dict.fromkeys(["value", "reason", *(name for row in missing for name in row)]))
    shown = [("-", [row.get(name) for name in names]) for row in missing]
    shown += [("+", [one.get(name) for name in names]) for one in left]
    return f"dead letters of {source}: {row_counts(len(missing), len(left))}\n{table_of(names, shown)}"


def _seated(at: int, rows: Sequence[Row], found: list[dict[str, Any]], takers: dict[int, int], asked: set[int]) -> bool:
    """Give a row a letter that fits it; one that another row has, if that one can have another."""
    for number, letter in enumerate(found):
        if number in asked or not all(_within(value, letter[name]) for name, value in rows[at].items()):
            continue
        asked.add(number)
        if number not in takers or _seated(takers[number], rows, found, takers, asked):
            takers[number] = at
            return True
    return False


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {name: _text_of_bytes(getattr(letter, name)) for name in _PARTS}


def _text_of_bytes(part: Any) -> Any:
    """Bytes as text, or in hexadecimal."""
    if not isinstance(part, bytes):
        return part
    text = text_or_none(part)
    return part.hex() if text is None else text


def _within(expected: Any, found: Any) -> bool:
    """Whether a part of a letter is what a test says; of words it may say a part."""
    return expected == found or (isinstance(expected, str) and isinstance(found, str) and expected in found)
