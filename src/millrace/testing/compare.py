"""Expected rows beside those that came: in any order, of the columns that are named; the difference as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from millrace.errors import InvalidTest, Place, did_you_mean
from millrace.testing import files
from millrace.testing.canonical import canonical, strays

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]


class Different(AssertionError):
    """What came is not what was expected."""

    def __init__(self, told: str, place: Place | None = None) -> None:
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
    if stray := next((one for row in expected for name in row for one in strays(row[name], kinds[name], name)), None):
        return f"{what} has no field {stray}"
    came = [[canonical(row[name], kinds[name]) for name in names] for row in found.select(names).to_pylist()]
    wanted = [[canonical(row.get(name), kinds[name]) for name in names] for row in expected]
    return _told(what, names, came, wanted)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table in the values that a test would write."""
    names = table.column_names
    kinds = {name: table.schema.field(name).type for name in names}
    return [{name: canonical(row[name], kinds[name]) for name in names} for row in table.to_pylist()]


def whole(steps: Sequence[pa.Table], mode: str, key: Sequence[str]) -> pa.Table:
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


def _told(what: str, names: list[str], came: list[list[Any]], wanted: list[list[Any]]) -> str | None:
    found, expected = Counter(map(row_key, came)), Counter(map(row_key, wanted))
    missing, extra = expected - found, found - expected
    if not missing and not extra:
        return None
    rows = [("-", _values(key)) for key in missing.elements()] + [("+", _values(key)) for key in extra.elements()]
    rows.sort(key=lambda row: ([_cell(value) for value in row[1]], row[0] == "+"))
    same = (found & expected).total()
    return f"{what}: {counted(missing.total(), extra.total(), same)}\n{table_of(names, rows)}"


def counted(missing: int, extra: int, same: int = 0) -> str:
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
    data = files.content(path)
    if form == "json":
        return [row for _, row in files.json_rows(data, path)]
    return [{name: _meant(text) for name, text in row.items()} for _, row in files.csv_rows(data, path)]


def _meant(text: str) -> Any:
    """Cells of CSV know no types: a number is one where it looks like one."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
