"""Encode the rows that a test gives as messages of their source: bytes, and the columns beside them.

- `RowEncoder` encodes rows, texts and files of rows for one source.
- `stray_columns` finds columns that a source does not have, which in a test are mistakes.
- `test_moment` reads a time as tests write it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import orjson

from millrace.connectors.base.api import MessageSource, Source
from millrace.connectors.files import FilesSource
from millrace.errors import InvalidOption, InvalidTest, SourceLocation, did_you_mean
from millrace.pipeline.schema import Array, Map, Schema, Simple, Struct, Type
from millrace.testing import row_files
from millrace.testing.recording import read_recording
from millrace.testing.spec import LocatedValue, place_of
from millrace.units import parse_time

_AS_IT_IS = "a message that has more is given as a text, or {text: FILE}"


def stray_column(source: str, name: str, known: Iterable[str], place: SourceLocation | None) -> InvalidTest:
    """Return the error for a column, or a field of one, that a source does not have."""
    hint = f"{did_you_mean(name, known)} ({_AS_IT_IS})"
    return InvalidTest(f"{source!r} has no column {name!r}", place=place, hint=hint)


def stray_columns(
    source: str, value: Any, kind: Type, place: SourceLocation | None, path: str = ""
) -> Iterator[InvalidTest]:
    """Yield the errors for all fields of a value that its type does not have."""
    if isinstance(kind, Struct) and isinstance(value, Mapping):
        fields = {f"{path}{field.name}": field.type for field in kind.fields}
        for name, content in value.items():
            at = place_of(value, name) or place
            if (full := f"{path}{name}") in fields:
                yield from stray_columns(source, content, fields[full], at, f"{full}.")
            else:
                yield stray_column(source, full, fields, at)
    elif isinstance(kind, Array) and isinstance(value, list | tuple):
        for element in value:
            yield from stray_columns(source, element, kind.element, place, path)
    elif isinstance(kind, Map) and isinstance(value, Mapping):
        for name, content in value.items():
            yield from stray_columns(source, content, kind.value, place_of(value, name) or place, f"{path}{name}.")


_TEXT_TYPES = ("string", "timestamp", "timestamp_ntz", "date", "binary")
FORMS = ("csv", "json", "text", "records")
"""The forms of a file of rows."""
DEFAULT_TIMESTAMP = datetime(2026, 1, 1, tzinfo=UTC)
"""The timestamp of a record for which the test has none: always the same, so that results are."""

Message = dict[str, Any]


def has_typed_rows(reader: Source) -> bool:
    """Return whether Spark itself reads such a source's rows with their types; tests encode them as JSON."""
    return not isinstance(reader, MessageSource) or getattr(reader, "format", "") in ("parquet", "orc")


class RowEncoder:
    """Encodes rows for one source, with the columns that its messages carry beside the value."""

    def __init__(self, name: str, reader: Source) -> None:
        self.name, self.reader = name, reader
        self.kind = "json" if has_typed_rows(reader) else str(getattr(reader, "format", "json"))
        self.carried = dict(reader.carried) if isinstance(reader, MessageSource) else {}
        declared = reader.declared if isinstance(reader, MessageSource) else reader.columns()
        self._columns = declared or Schema(())
        self._names = self._columns.names
        self._count = 0

    def messages(self, rows: Any, folder: Path) -> list[Message]:
        """Return the messages for rows: a list, a text of lines, or a file by its form."""
        return [self._with_metadata(message) for message in list(self._encode(rows, folder))]

    def _encode(self, rows: Any, folder: Path) -> Iterator[Message]:
        if isinstance(rows, str):
            yield from (self._message(line) for line in rows.splitlines() if line.strip())
        elif isinstance(rows, Mapping) and len(rows) == 1 and next(iter(rows)) in FORMS:
            ((form, file),) = rows.items()
            yield from self._encode_file(form, folder / str(file))
        elif isinstance(rows, Iterable) and not isinstance(rows, Mapping | bytes):
            yield from (self._message(row) for row in rows)
        else:
            raise InvalidTest(
                f"rows for {self.name!r} are a list, a text of lines, or one of {', '.join(FORMS)} with a file"
            )

    def _encode_file(self, form: str, path: Path) -> Iterator[Message]:
        data = row_files.content(path)
        if form == "records":
            yield from read_recording(data, path)
        elif form == "csv" and self.kind != "csv":
            yield from (
                self._message(self._typed_cells(row, place), place) for place, row in row_files.csv_rows(data, path)
            )
        elif form == "json" and (self.kind != "json" or row_files.is_array(data)):
            yield from (self._message(row, place) for place, row in row_files.json_rows(data, path))
        elif form == "json":
            yield from self._json_lines(data, path)
        else:
            lines = [line for line in data.splitlines() if line.strip()]
            header = form == "csv" and lines and self._is_header(lines[0])
            yield from ({"value": line} for line in lines[1 if header else 0 :])

    def _json_lines(self, data: bytes, path: Path) -> Iterator[Message]:
        """Yield lines unchanged, also broken ones; a column that the source does not have is a mistake here too."""
        for number, line in enumerate(data.splitlines(), 1):
            with suppress(orjson.JSONDecodeError):
                if isinstance(row := orjson.loads(line), dict):
                    self._require_known(row, SourceLocation(str(path), number))
            if line.strip():
                yield {"value": line}

    def _is_header(self, line: bytes) -> bool:
        names = next(csv.reader([line.decode("utf-8", "replace")], delimiter=self._separator()))
        return [name.strip().lower() for name in names] == [name.lower() for name in self._names]

    def _typed_cells(self, row: Mapping[str, str], place: SourceLocation) -> dict[str, Any]:
        """Return a row of CSV with the types that the source declares."""
        types = {field.name: field.type.name for field in self._columns.fields if isinstance(field.type, Simple)}

        def typed(name: str, text: str) -> Any:
            if types.get(name, "string") in _TEXT_TYPES:
                return text
            try:
                return json.loads(text.lower())
            except ValueError:
                raise InvalidTest(f"{name!r} of {self.name!r} is {types[name]}, not {text!r}", place=place) from None

        return {name: typed(name, text) for name, text in row.items()}

    def _message(self, row: Any, place: SourceLocation | None = None) -> Message:
        if isinstance(row, str | bytes):
            return {"value": row.encode() if isinstance(row, str) else row}
        if not isinstance(row, Mapping):
            raise InvalidTest(f"a row for {self.name!r} is columns or text, not {row!r}", place=place)
        beside = {name: row[name] for name in self.carried if name in row and name not in self._names}
        own = row.without(beside) if isinstance(row, LocatedValue) else {n: row[n] for n in row if n not in beside}
        if "value" in own and (self.kind in ("text", "raw") or "value" not in self._names):
            for name in (name for name in own if name != "value"):
                raise stray_column(self.name, name, ["value", *self.carried], place_of(row, name) or place)
            return {**beside, "value": _bytes(own["value"])}
        self._require_known(own, place)
        return {**beside, "value": self._encoded(own)}

    def _require_known(self, row: Mapping[str, Any], place: SourceLocation | None) -> None:
        """Raise InvalidTest for a column that the source does not have: decoding would ignore it."""
        if self._names and self.kind in ("json", "csv"):
            for mistake in stray_columns(self.name, row, Struct(self._columns.fields), place):
                raise mistake

    def _encoded(self, row: Mapping[str, Any]) -> bytes:
        if self.kind == "json":
            return json.dumps(row, default=_as_text, ensure_ascii=False, separators=(",", ":")).encode()
        if self.kind == "csv":
            line = io.StringIO()
            writer = csv.writer(line, delimiter=self._separator(), lineterminator="")
            writer.writerow([_cell(row.get(name)) for name in self._names])
            return line.getvalue().encode()
        hint = "give its messages as text, as bytes, or as records that millrace record has saved"
        raise InvalidTest(f"columns cannot be written as {self.kind} for {self.name!r}", hint=hint)

    def _with_metadata(self, message: Message) -> Message:
        """Return the message with all columns that its source carries, with constant defaults."""
        self._count += 1
        topic = next(iter(self.reader.topics()), self.name)
        defaults = {"topic": topic, "partition": 0, "offset": self._count - 1, "file": f"{self.name}.given"}
        complete = {"source": self.name, "value": message["value"]}
        for name, kind in self.carried.items():
            value = message.get(name)
            if kind == "timestamp":
                complete[name] = DEFAULT_TIMESTAMP if value is None else test_moment(value)
            elif kind == "binary":
                complete[name] = None if value is None else _bytes(value)
            elif kind == "string" and name not in defaults:
                complete[name] = str(self._count - 1 if value is None else value)
            else:
                complete[name] = defaults.get(name) if value is None else value
        return complete

    def _separator(self) -> str:
        own = self.reader.separator if isinstance(self.reader, FilesSource) else None
        return own or str(getattr(self.reader, "more", {}).get("separator", ","))


def test_moment(value: Any) -> datetime:
    """Return a time as tests write it; without a zone it is UTC, as in Spark's session."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    text = str(value)
    try:
        if text.isdigit():
            return parse_time(text)
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, InvalidOption):
        hint = "write it as 2026-01-31T12:00:00Z, or as milliseconds since 1970"
        raise InvalidTest(f"{text!r} is not a point in time", hint=hint) from None


def _as_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def _cell(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else "" if value is None else value
