"""Compare expected rows and dead letters with actual ones.

- `difference` compares rows in any order, by the columns that are named, and returns the difference as a table.
- `canonical` brings a value into the form in which it is compared and shown, by the type of its column.
- `dead_difference` compares dead letters, of which a test may name any part.
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
"""Significant digits of a fraction: sums may differ in later ones."""
_NAMES = {
    **dict.fromkeys(("nan", ".nan"), "NaN"),
    **dict.fromkeys(("inf", "infinity", ".inf", "+infinity", "+inf"), "Infinity"),
    **dict.fromkeys(("-inf", "-infinity", "-.inf"), "-Infinity"),
}
BITS = 63
"""The size of a whole number in JSON."""
_EXACT = Context(prec=100)
"""All digits of decimals are compared."""


def canonical(value: Any, kind: pa.DataType) -> Any:
    """Return a value in the form in which it is compared and shown; unchanged if it does not fit its type."""
    import pyarrow.types as types

    if value is None:
        return None
    if types.is_struct(kind) and isinstance(value, Mapping):
        return {field.name: canonical(value.get(field.name), field.type) for field in kind}
    if (types.is_list(kind) or types.is_large_list(kind)) and isinstance(value, list | tuple):
        return [canonical(element, kind.value_type) for element in value]
    if types.is_map(kind) and isinstance(value, Mapping | list):
        pairs = value.items() if isinstance(value, Mapping) else value  # as Arrow has it
        return {str(name): canonical(item, kind.item_type) for name, item in pairs}
    return _simple(value, kind)


def stray_fields(value: Any, kind: pa.DataType, path: str) -> Iterator[str]:
    """Yield a description of each field within an expected value that its type does not have."""
    import pyarrow.types as types

    if types.is_struct(kind) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in kind}
        for name, content in value.items():
            if name not in fields:
                yield f"{f'{path}.{name}'!r}: {path} has {', '.join(fields)}"
            else:
                yield from stray_fields(content, fields[name], f"{path}.{name}")
    elif (types.is_list(kind) or types.is_large_list(kind)) and isinstance(value, list | tuple):
        for element in value:
            yield from stray_fields(element, kind.value_type, path)
    elif types.is_map(kind) and isinstance(value, Mapping):
        for name, item in value.items():
            yield from stray_fields(item, kind.item_type, f"{path}.{name}")


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
    return _text_of_bytes(value)


def _moment(value: Any) -> Any:
    try:
        at = test_moment(value).astimezone(UTC)
    except InvalidTest:
        return value
    return at.isoformat(timespec="microseconds" if at.microsecond else "seconds").replace("+00:00", "Z")


def _fraction(value: Any) -> Any:
    """Round to the significant digits; NaN and the infinities become their names."""
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
    """The actual rows are not the expected ones."""

    def __init__(self, text: str, place: SourceLocation | None = None) -> None:
        super().__init__(f"{place}: {text}" if place else text)
        self.text, self.place = text, place


def expected_rows(rows: Any, folder: Path) -> list[Row]:
    """Return the rows of an expectation: a list, or a file as {"json": FILE}."""
    if isinstance(rows, Mapping) and len(rows) == 1 and next(iter(rows)) in ("json", "csv"):
        ((form, file),) = rows.items()
        rows = _rows_of_file(form, folder / str(file))
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidTest("expected rows are a list, or json or csv with a file", hint="an empty one is []")
    listed = list(rows)
    for row in listed:
        if not isinstance(row, Mapping) or not row:
            raise InvalidTest(f"an expected row has columns, as {{tag: rain}}: {row!r} has none")
    return listed


def difference(what: str, actual: pa.Table, expected: Sequence[Row]) -> str | None:
    """Return the missing and the unexpected rows as a table; None if there are none."""
    names = list(dict.fromkeys(name for row in expected for name in row)) or actual.column_names
    if unknown := [name for name in names if name not in actual.column_names]:
        return f"{what} has no column {unknown[0]!r}: it has {', '.join(actual.column_names)}"
    kinds = {name: actual.schema.field(name).type for name in names}
    stray = (text for row in expected for name in row for text in stray_fields(row[name], kinds[name], name))
    if first := next(stray, None):
        return f"{what} has no field {first}"
    actual_rows = [[canonical(row[name], kinds[name]) for name in names] for row in actual.select(names).to_pylist()]
    wanted = [[canonical(row.get(name), kinds[name]) for name in names] for row in expected]
    return _difference_text(what, names, actual_rows, wanted)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table with the values that a test would write."""
    names = table.column_names
    kinds = {name: table.schema.field(name).type for name in names}
    return [{name: canonical(row[name], kinds[name]) for name in names} for row in table.to_pylist()]


def whole_table(steps: Sequence[pa.Table], mode: str, key: Sequence[str]) -> pa.Table:
    """Return a table after several steps: in complete mode the last, with a key the newest row of each."""
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


def late_difference(table: str, late: int, expected: int) -> str:
    """Return the difference of two numbers of late rows in words."""
    return f"{table}: {format_count(late, 'row')} came too late, not {expected}"


def _difference_text(what: str, names: list[str], actual: list[list[Any]], wanted: list[list[Any]]) -> str | None:
    actual_counts, expected_counts = Counter(map(row_key, actual)), Counter(map(row_key, wanted))
    missing, extra = expected_counts - actual_counts, actual_counts - expected_counts
    if not missing and not extra:
        return None
    rows = [("-", orjson.loads(key)) for key in missing.elements()]
    rows += [("+", orjson.loads(key)) for key in extra.elements()]
    rows.sort(key=lambda row: ([_cell(value) for value in row[1]], row[0] == "+"))
    same = (actual_counts & expected_counts).total()
    return f"{what}: {row_counts(missing.total(), extra.total(), same)}\n{table_of(names, rows)}"


def row_counts(missing: int, extra: int, same: int = 0) -> str:
    """Return the numbers of missing, unexpected and equal rows in words."""
    parts = ((same, "as expected"), (missing, "missing (-)"), (extra, "not expected (+)"))
    return f"rows {', '.join(f'{number} {words}' for number, words in parts if number)}"


def table_of(names: Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """Return rows under the names of their columns, each after its mark."""
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
    """Return bytes that are equal for equal canonical values."""
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _rows_of_file(form: str, path: Path) -> list[Any]:
    data = row_files.content(path)
    if form == "json":
        return [row for _, row in row_files.json_rows(data, path)]
    return [{name: _typed_cell(text) for name, text in row.items()} for _, row in row_files.csv_rows(data, path)]


def _typed_cell(text: str) -> Any:
    """Return a cell of CSV as the number or JSON value that it looks like."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


ANY_LETTERS = "any"
"""Stands for any number of dead letters in a test."""
_PARTS = ("value", "key", "reason", "topic", "partition", "offset", "file")


def dead_difference(source: str, letters: Sequence[DeadLetter], expected: Any, folder: Path) -> str | None:
    """Return the difference of dead letters and their expected number, or rows of which they have every part."""
    if expected == ANY_LETTERS:
        return None
    if is_count(expected):
        text = f"{source}: {format_count(len(letters), 'dead letter')}, not {expected}{listed_letters(letters)}"
        return None if len(letters) == expected else text
    rows = expected_rows(expected, folder)
    for name in (name for row in rows for name in row if name not in _PARTS):
        raise InvalidTest(f"a dead letter has no {name!r}", hint=did_you_mean(name, _PARTS))
    return _unmatched(source, rows, [_parts_of(letter) for letter in letters])


def unexpected_letters(source: str, letters: Sequence[DeadLetter]) -> str:
    """Return a description of dead letters for which a test has no expectation."""
    text = f"{source}: {format_count(len(letters), 'dead letter')}, and the test expects none"
    return f"{text}; it may say dead: {{{source}: {len(letters)}}}, or {ANY_LETTERS}{listed_letters(letters)}"


def is_count(expected: Any) -> bool:
    """Return whether an expectation is a number."""
    return isinstance(expected, int) and not isinstance(expected, bool)


def listed_letters(letters: Sequence[DeadLetter]) -> str:
    """Return dead letters, one a line."""
    return "".join(f"\n  {parts['value']}: {parts['reason']}" for parts in map(_parts_of, letters))


def plain_letters(letters: Sequence[DeadLetter], like: Any, folder: Path) -> Any:
    """Return dead letters in the form of an earlier expectation: their number, or rows with the same parts."""
    if is_count(like) or like == ANY_LETTERS:
        return len(letters)
    names = dict.fromkeys(name for row in expected_rows(like, folder) for name in row)
    return [{name: _parts_of(letter)[name] for name in names or ("value", "reason")} for letter in letters]


def _unmatched(source: str, rows: Sequence[Row], letters: list[dict[str, Any]]) -> str | None:
    row_of_letter: dict[int, int] = {}
    missing = [row for number, row in enumerate(rows) if not _match(number, rows, letters, row_of_letter, set())]
    extra = [letter for number, letter in enumerate(letters) if number not in row_of_letter]
    if not missing and not extra:
        return None
    names = list(dict.fromkeys(["value", "reason", *(name for row in missing for name in row)]))
    shown = [("-", [row.get(name) for name in names]) for row in missing]
    shown += [("+", [letter.get(name) for name in names]) for letter in extra]
    return f"dead letters of {source}: {row_counts(len(missing), len(extra))}\n{table_of(names, shown)}"


def _match(
    row: int, rows: Sequence[Row], letters: list[dict[str, Any]], row_of_letter: dict[int, int], tried: set[int]
) -> bool:
    """Assign a letter to a row, moving another row to another letter if necessary (bipartite matching)."""
    for number, letter in enumerate(letters):
        if number in tried or not all(_fits(value, letter[name]) for name, value in rows[row].items()):
            continue
        tried.add(number)
        if number not in row_of_letter or _match(row_of_letter[number], rows, letters, row_of_letter, tried):
            row_of_letter[number] = row
            return True
    return False


def _parts_of(letter: DeadLetter) -> dict[str, Any]:
    return {name: _text_of_bytes(getattr(letter, name)) for name in _PARTS}


def _text_of_bytes(part: Any) -> Any:
    """Return bytes as text, or in hexadecimal."""
    if not isinstance(part, bytes):
        return part
    text = text_or_none(part)
    return part.hex() if text is None else text


def _fits(expected: Any, actual: Any) -> bool:
    """Return whether a part of a letter equals the expected one, or is a text that contains it."""
    return expected == actual or (isinstance(expected, str) and isinstance(actual, str) and expected in actual)
