"""Read files of rows for tests: JSON and CSV, with the location of each row."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import orjson

from millrace.errors import FileUnusable, SourceLocation
from millrace.limited_files import read_limited

_MAX_FILE_BYTES = 100_000_000

LocatedRows = list[tuple[SourceLocation, Any]]


def content(path: Path) -> bytes:
    """Return the bytes of a file of at most 100 MB; its rows are all held in memory."""
    try:
        return read_limited(path, _MAX_FILE_BYTES)
    except OSError as error:
        hint = "check its name; a path begins in the folder of the test"
        raise FileUnusable(f"cannot read {path}", why=error.strerror, hint=hint) from None


def is_array(data: bytes) -> bool:
    """Return whether JSON is one array, and not an object a line."""
    return data.lstrip().startswith(b"[")


def json_rows(data: bytes, path: Path) -> LocatedRows:
    """Return the rows of a file of JSON: an array, or a value a line."""
    place = SourceLocation(str(path), 1)
    try:
        if is_array(data):
            return [(SourceLocation(str(path)), row) for row in orjson.loads(data)]
        rows = []
        for number, line in enumerate(data.splitlines(), 1):
            place = SourceLocation(str(path), number)
            if line.strip():
                rows.append((place, orjson.loads(line)))
    except orjson.JSONDecodeError as error:
        raise FileUnusable(f"{path} is not JSON", why=str(error), place=place) from None
    return rows


def csv_rows(data: bytes, path: Path) -> LocatedRows:
    """Return the rows of a file of CSV by the names in its first line; an empty cell is no value."""
    try:
        table = csv.DictReader(io.StringIO(data.decode("utf-8-sig")), strict=True)
        rows = []
        for row in table:
            place = SourceLocation(str(path), table.line_num)
            if None in row or None in row.values():
                hint = "a cell with a comma in it is put in double quotes"
                raise FileUnusable("a row has not as many cells as the first line", place=place, hint=hint)
            rows.append((place, {name: text for name, text in row.items() if text}))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileUnusable(f"{path} is not CSV", why=str(error)) from None
    return rows
