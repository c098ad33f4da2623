"""Files of rows beside a test: what is in them, line by line."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import orjson

from millrace.errors import FileUnusable, SourceLocation
from millrace.limited_files import read_limited

_LARGEST_BYTES = 100_000_000

Lined = list[tuple[SourceLocation, Any]]
"""Rows, and where each begins."""


def content(path: Path) -> bytes:
    """The bytes of a file, at most 100 MB: its rows are all held in memory."""
    try:
        return read_limited(path, _LARGEST_BYTES)
    except OSError as error:
        hint = "check its name; a path begins in the folder of the test"
        raise FileUnusable(f"cannot read {path}", why=error.strerror, hint=hint) from None


def is_array(data: bytes) -> bool:
    """Whether JSON is one array, and not an object a line."""
    return data.lstrip().startswith(b"[")


def json_rows(data: bytes, path: Path) -> Lined:
    """What is in a file of JSON: an array, or a value a line."""
    place = SourceLocation(str(path), 1)
    try:
        if is_array(data):
            return [(SourceLocation(str(path)), row) for row in orjson.loads(data)]
        found = []
        for number, line in enumerate(data.splitlines(), 1):
            place = SourceLocation(str(path), number)
            if line.strip():
                found.append((place, orjson.loads(line)))
    except orjson.JSONDecodeError as error:
        raise FileUnusable(f"{path} is not JSON", why=str(error), place=place) from None
    return found


def csv_rows(data: bytes, path: Path) -> Lined:
    """The rows of a file of CSV by the names in its first line; an empty cell is no value."""
    try:
        table = csv.DictReader(io.StringIO(data.decode("utf-8-sig")), strict=True)
        found = []
        for row in table:
            place = SourceLocation(str(path), table.line_num)
            if None in row or None in row.values():
                hint = "a cell with a comma in it is put in double quotes"
                raise FileUnusable("a row has not as many cells as the first line", place=place, hint=hint)
            found.append((place, {name: text for name, text in row.items() if text}))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileUnusable(f"{path} is not CSV", why=str(error)) from None
    return found
