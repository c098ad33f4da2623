"""Expected rows beside those that came: in any order, of the columns that are named; the difference as a table."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from millrace.clients import letters as forms
from millrace.clients.letters import Letter
from millrace.errors import FileUnusable, InvalidTest, Place
from millrace.testing.given import moment

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]
_DIGITS = 12
"""Digits of a fraction that count: sums may differ in the last ones."""


class Different(AssertionError):
    """What came is not what was expected."""

    def __init__(self, told: str, place: Place | None = None) -> None:
        super().__init__(f"{place}: {told}" if place else told)
        self.told, self.place = told, place


def expected_rows(rows: Any, folder: Path) -> list[Row]:
    """Rows as a test writes them: a list, or a file by its form."""
    if isinstance(rows, Mapping) and len(rows) == 1 and next(iter(rows)) in ("json", "csv"):
        ((form, file),) = rows.items()
        return _of_file(form, folder / str(file))
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise InvalidTest("expected rows are a list, or json or csv with a file", hint="an empty one is []")
    found = list(rows)
    for row in found:
        if not isinstance(row, Mapping):
            raise InvalidTest(f"an expected row has columns, as {{tag: rain}}: {row!r} has none")
    return found


def difference(what: str, found: pa.Table, expected: Sequence[Row]) -> str | None:
    """What is missing and what is unexpected, as a table; None when all is there."""
    names = list(dict.fromkeys(name for row in expected for name in row)) or found.column_names
    unknown = [name for name in names if name not in found.column_names]
    if unknown:
        return f"{what} has no column {unknown[0]!r}: it has {', '.join(found.column_names)}"
    kinds = {name: found.schema.field(name).type for name in names}
    came = [[canonical(row[name], kinds[name]) for name in names] for row in found.select(names).to_pylist()]
    wanted = [[canonical(row.get(name), kinds[name]) for name in names] for row in expected]
    return _told(what, names, came, wanted)


def dead_difference(source: str, found: Sequence[Letter], expected: Any) -> str | None:
    """The same of dead letters: their number, or a row each, of which every part that is named must be in it."""
    told = [_letter(one) for one in found]
    if isinstance(expected, int):
        if len(found) == expected:
            return None
        listed = "".join(f"\n  {one['value']}: {one['reason']}" for one in told)
        return f"{source}: {len(found)} dead letters, not {expected}{listed}"
    left = list(told)
    missing = []
    for row in expected_rows(expected, Path()):
        fitting = next((one for one in left if all(_within(row[name], one.get(name)) for name in row)), None)
        if fitting is None:
            missing.append(row)
        else:
            left.remove(fitting)
    if not missing and not left:
        return None
    names = list(dict.fromkeys(["value", "reason", *(name for row in missing for name in row)]))
    rows = [("-", [row.get(name) for name in names]) for row in missing]
    rows += [("+", [one.get(name) for name in names]) for one in left]
    return f"dead letters of {source}: {_counted(len(missing), len(left))}\n{_table(names, rows)}"


def plain_letters(letters: Sequence[Letter], like: Any) -> Any:
    """Dead letters as a test would expect them: counted, or told, as those before were."""
    if isinstance(like, int):
        return len(letters)
    return [{name: _letter(one)[name] for name in ("value", "reason")} for one in letters]


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
    newest = {repr([row.get(name) for name in key]): at for at, row in enumerate(every.to_pylist())}
    return every.take(sorted(newest.values()))


def canonical(value: Any, kind: pa.DataType) -> Any:
    """A value in the one form in which it is compared and shown; one that does not fit its type is left as it is."""
    import pyarrow.types as types

    if value is None:
        return None
    if types.is_struct(kind) and isinstance(value, Mapping):
        return {one.name: canonical(value.get(one.name), one.type) for one in kind}
    if (types.is_list(kind) or types.is_large_list(kind)) and isinstance(value, list | tuple):
        return [canonical(one, kind.value_type) for one in value]
    if types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return {str(name): canonical(one, kind.item_type) for name, one in pairs}
    return _simple(value, kind)


def _simple(value: Any, kind: pa.DataType) -> Any:
    import pyarrow.types as types

    if types.is_timestamp(kind):
        return _moment(value)
    if types.is_date(kind):
        return value.isoformat() if isinstance(value, date) else str(value)
    if types.is_decimal(kind):
        return _decimal(value)
    if types.is_floating(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return value if not math.isfinite(value) else float(f"{value:.{_DIGITS}g}")
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


def _decimal(value: Any) -> Any:
    try:
        return format(Decimal(str(value)).normalize(), "f")
    except InvalidOperation:
        return value


def _told(what: str, names: list[str], came: list[list[Any]], wanted: list[list[Any]]) -> str | None:
    found, expected = Counter(map(_key, came)), Counter(map(_key, wanted))
    missing, extra = expected - found, found - expected
    if not missing and not extra:
        return None
    rows = [("-", _values(key)) for key in missing.elements()] + [("+", _values(key)) for key in extra.elements()]
    rows.sort(key=lambda row: ([_cell(value) for value in row[1]], row[0] == "+"))
    same = (found & expected).total()
    return f"{what}: {_counted(missing.total(), extra.total(), same)}\n{_table(names, rows)}"


def _counted(missing: int, extra: int, same: int = 0) -> str:
    parts = ((same, "as expected"), (missing, "missing (-)"), (extra, "not expected (+)"))
    told = [f"{number} {words}" for number, words in parts if number]
    return f"rows {', '.join(told)}"


def _table(names: Sequence[str], rows: Sequence[tuple[str, Sequence[Any]]]) -> str:
    lines = [["", *names], *([mark, *map(_cell, values)] for mark, values in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names) + 1)]
    return "\n".join("  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) else _key(value).decode()


def _key(value: Any) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _values(key: bytes) -> list[Any]:
    return list(orjson.loads(key))


def _letter(letter: Letter) -> dict[str, Any]:
    return {
        "value": None if letter.value is None else canonical_bytes(letter.value),
        "key": None if letter.key is None else canonical_bytes(letter.key),
        "reason": letter.reason,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "file": letter.file,
    }


def canonical_bytes(content: bytes) -> str:
    """Bytes as text, or in hexadecimal."""
    text = forms.text(content)
    return content.hex() if text is None else text


def _within(expected: Any, found: Any) -> bool:
    """Whether a part of a letter is what a test says; of words it may say a part."""
    return expected == found or (isinstance(expected, str) and isinstance(found, str) and expected in found)


def _of_file(form: str, path: Path) -> list[Row]:
    try:
        data = path.read_bytes()
        if form == "json":
            array = data.lstrip().startswith(b"[")
            return list(orjson.loads(data)) if array else [orjson.loads(one) for one in data.splitlines() if one]
    except OSError as error:
        raise FileUnusable(f"cannot read {path}", why=error.strerror) from None
    except orjson.JSONDecodeError as error:
        raise FileUnusable(f"{path} is not JSON", why=str(error)) from None
    return [_of_cells(row) for row in csv.DictReader(io.StringIO(data.decode("utf-8")))]


def _of_cells(row: Mapping[str, str]) -> Row:
    """Cells of CSV know no types: a number is one where it looks like one."""

    def meant(text: str) -> Any:
        try:
            return orjson.loads(text) if text else None
        except orjson.JSONDecodeError:
            return text

    return {name: meant(text) for name, text in row.items()}
