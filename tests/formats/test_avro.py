"""Avro messages to columns, and rows to Avro messages."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.records import decode, outcomes, reasons, rows
from millrace.errors import FileUnusable, InvalidOption, InvalidSchema, RunError
from millrace.formats.arrow_types import arrow_schema
from millrace.formats.avro import Avro
from millrace.formats.base import DecodedRecords
from millrace.pipeline.schema import parse_schema


def record(*fields: tuple[str, Any], name: str = "Event") -> dict[str, Any]:
    """An Avro record."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    """An Avro type with a meaning."""
    return {"type": kind, "logicalType": name, **more}


def body(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """A record in bytes, without a header."""
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


EVENT = record(
    ("id", "string"),
    ("n", ["null", "int", "long"]),
    ("at", logical("long", "timestamp-millis")),
    ("seen", ["null", logical("long", "timestamp-micros")]),
    ("local", logical("long", "local-timestamp-micros")),
    ("day", logical("int", "date")),
    ("price", ["null", logical("bytes", "decimal", precision=5, scale=2)]),
    ("x", "double"),
    ("blob", "bytes"),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["VIEW", "CLICK"]}),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": ["null", "long"]}),
    ("pos", record(("lat", "float"), name="Pos")),
    ("other", ["null", "Pos"]),
    ("key", logical("string", "uuid")),
    ("hour", logical("int", "time-millis")),
)
VALUE = {
    "id": "a",
    "n": 5,
    "at": datetime(2024, 1, 1, tzinfo=UTC),
    "seen": datetime(2024, 1, 1, 0, 0, 0, 1, UTC),
    "local": datetime(2024, 1, 1),
    "day": date(2024, 1, 1),
    "price": Decimal("1.25"),
    "x": float("inf"),
    "blob": b"\xff",
    "kind": "CLICK",
    "tags": ["x"],
    "counts": {"x": 1, "y": None},
    "pos": {"lat": 0.5},
    "other": None,
    "key": UUID(int=1),
    "hour": time(12, 30),
}
ROW = VALUE | {"counts": [("x", 1), ("y", None)], "key": str(UUID(int=1)), "hour": "12:30:00"}
GOOD = body(EVENT, VALUE)


def decoded(values: list[bytes | None], ddl: str | None = None, schema: dict[str, Any] = EVENT) -> DecodedRecords:
    """Decode bytes without headers."""
    made = Avro(avro_schema=json.dumps(schema))
    return decode(made.decoder(parse_schema(ddl) if ddl else None), values)


def test_the_columns_of_an_avro_schema() -> None:
    assert Avro(avro_schema=json.dumps(EVENT)).columns(None) == parse_schema(
        "id string NOT NULL, n bigint, at timestamp NOT NULL, seen timestamp, local timestamp_ntz NOT NULL, "
        "day date NOT NULL, price decimal(5,2), x double NOT NULL, blob binary NOT NULL, kind string NOT NULL, "
        "tags array<string> NOT NULL, counts map<string,bigint> NOT NULL, pos struct<lat: float NOT NULL> NOT NULL, "
        "other struct<lat: float NOT NULL>, key string NOT NULL, hour string NOT NULL"
    )


def test_every_type() -> None:
    assert rows(decoded([GOOD])) == [ROW]


def test_columns_by_name_with_the_types_that_were_declared() -> None:
    assert rows(decoded([GOOD], "pos struct<lat: double>, n double, id string, none int")) == [
        {"pos": {"lat": 0.5}, "n": 5.0, "id": "a", "none": None}
    ]


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("id int", "column id: wrong type: expected int, got string"),
        ("n tinyint, at bigint", "column at: wrong type: expected bigint, got timestamp"),
        ("none int NOT NULL", "column none: missing"),
        ("local timestamp_ntz, at timestamp_ntz", "column at: wrong type: expected timestamp_ntz, got timestamp"),
        ("price decimal(2,2)", "column price: does not fit decimal(2,2)"),
    ],
)
def test_what_does_not_fit_its_column(ddl: str, reason: str) -> None:
    assert reasons(decoded([GOOD], ddl)) == {0: reason}


def test_broken_records() -> None:
    values = [None, b"", GOOD, GOOD[:-1], GOOD + b"xy", b"\xff" * 30]
    found = decoded(values)
    assert list(reasons(found)) == [0, 1, 3, 4, 5]
    assert reasons(found)[0] == "no value (a tombstone)"
    assert reasons(found)[4] == "not Avro of this schema: 2 bytes are left over"
    assert rows(found) == [ROW]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.binary(max_size=60)
        | st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=3)).map(lambda cut: GOOD[: cut[0]] + cut[1])
        | st.tuples(st.integers(0, len(GOOD)), st.binary(max_size=3)).map(lambda cut: cut[1] + GOOD[cut[0] :])
        | st.just(GOOD)
        | st.none(),
        max_size=4,
    )
)
def test_any_bytes_have_the_same_result_alone_and_among_others(values: list[bytes | None]) -> None:
    together = outcomes(decoded(values), len(values))
    assert repr(together) == repr([outcomes(decoded([value]), 1)[0] for value in values])


def test_a_schema_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "event.avsc"
    file.write_text(json.dumps(record(("a", "int"))))
    made = Avro(avro_schema=str(file))
    file.unlink()  # it was read at once: workers may not have it
    assert made.columns(None) == parse_schema("a int NOT NULL")
    with pytest.raises(FileUnusable):
        Avro(avro_schema=str(file))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '"int"',
        '{"type":"record"}',
        json.dumps(record(("a", "no_such_type"))),
        json.dumps(record(("next", ["null", "Event"]))),
        json.dumps(record(("a", {"type": "array", "items": "null"}))),
        json.dumps(record(("a", {"type": "array", "items": record(name="Empty")}))),
    ],
)
def test_schemas_that_cannot_be_used(text: str) -> None:
    with pytest.raises(InvalidOption):
        Avro(avro_schema=text).decoder(None)


def test_what_must_be_given() -> None:
    with pytest.raises(InvalidOption):
        Avro().decoder(parse_schema("a int"))
    with pytest.raises(InvalidSchema):
        Avro(registry="http://registry").columns(None)
    with pytest.raises(InvalidSchema):
        Avro(registry="http://registry").columns(parse_schema("a map<int,string>"))
    with pytest.raises(InvalidSchema):
        Avro(avro_schema=json.dumps(record(("a", ["int", "string"])))).columns(None)


ROWS = "id string NOT NULL, t tinyint, n int, l bigint, f float, x double, q boolean, d date, at timestamp, "
NESTED = "u timestamp_ntz, b binary, p decimal(10,2), g array<string>, m map<string,int>, s struct<a: int, b: date>"


def test_rows_become_what_they_were() -> None:
    schema = parse_schema(ROWS + NESTED)
    full = {"id": "a", "t": 1, "n": 2, "l": 3, "f": 0.5, "x": 1.5, "q": True, "d": date(2024, 1, 1)} | {
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "u": datetime(2024, 1, 1),
        "b": b"\0",
        "p": Decimal("12.50"),
        "g": ["x", None],
        "m": [("k", 1), ("l", None)],
        "s": {"a": 1, "b": None},
    }
    batch = pa.RecordBatch.from_pylist([full, {"id": "b"}], arrow_schema(schema))
    messages = Avro().encoder(batch.schema).encode(batch)
    assert messages.type == pa.binary()
    made = Avro(avro_schema=json.dumps(_derived(batch.schema)))
    assert decode(made.decoder(schema), messages.to_pylist()).rows.equals(batch)


def _derived(schema: pa.Schema) -> Any:
    from millrace.formats.avro_schema import avro_of

    return json.loads(avro_of(schema))


def test_rows_in_a_schema_that_was_given() -> None:
    given = json.dumps(record(("b", "long"), ("a", ["null", "string"])))
    batch = pa.RecordBatch.from_pylist([{"a": "x", "b": 1}], pa.schema([("a", pa.string()), ("b", pa.int32())]))
    (message,) = Avro(avro_schema=given).encoder(batch.schema).encode(batch).to_pylist()
    assert message == b"\x02\x02\x02x"


def test_rows_that_do_not_fit() -> None:
    batch = pa.RecordBatch.from_pylist([{"a": "x"}], pa.schema([("a", pa.string())]))
    with pytest.raises(RunError):
        Avro(avro_schema=json.dumps(record(("a", "int")))).encoder(batch.schema).encode(batch)


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([("a b", pa.string())]),
        pa.schema([("a", pa.duration("s"))]),
        pa.schema([("a", pa.map_(pa.int32(), pa.string()))]),
    ],
)
def test_columns_that_avro_cannot_hold(columns: pa.Schema) -> None:
    with pytest.raises(InvalidSchema):
        Avro().encoder(columns)
