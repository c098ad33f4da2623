"""Avro with a schema registry."""

from __future__ import annotations

import json
import logging
from typing import Any

import pyarrow as pa
import pytest

from formats.conftest import SmallRegistry
from formats.records import decode, reasons, rows
from formats.test_avro import body, record
from millrace.errors import InvalidOption, MillraceError, RegistryRefused, RegistryUnreachable
from millrace.formats.avro import Avro
from millrace.formats.base import DecodedRecords
from millrace.formats.schema_registry import registry_at
from millrace.pipeline.schema import parse_schema

OLD = record(("id", "string"))
NEW = record(("id", "string"), ("n", "int"))
OUTSIDE = 9


def message(number: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    """A message with a header."""
    return b"\0" + number.to_bytes(4) + body(schema, value)


def decoded(address: str, values: list[bytes | None], ddl: str = "id string NOT NULL, n int") -> DecodedRecords:
    """Decode messages that have headers."""
    return decode(Avro(registry=address).decoder(parse_schema(ddl)), values)


def batch() -> pa.RecordBatch:
    """Two rows to encode."""
    return pa.RecordBatch.from_pylist([{"id": "a"}, {"id": "b"}], pa.schema([("id", pa.string())]))


def test_each_record_is_read_with_the_schema_it_was_written_with(registry: SmallRegistry) -> None:
    old, new = registry.add("events", OLD), registry.add("events", NEW)
    values: list[bytes | None] = [message(new, NEW, {"id": "b", "n": 2}), message(old, OLD, {"id": "a"})] * 3
    for _ in range(2):
        assert rows(decoded(registry.address, values)) == [{"id": "b", "n": 2}, {"id": "a", "n": None}] * 3
    assert registry.asked == ["GET /schemas/ids/2", "GET /schemas/ids/1"]


def test_the_schema_of_the_reader_fills_in_defaults(registry: SmallRegistry) -> None:
    old = registry.add("events", OLD)
    mine = {"type": "record", "name": "Event", "fields": [*OLD["fields"], {"name": "n", "type": "int", "default": 7}]}
    made = Avro(registry=registry.address, avro_schema=json.dumps(mine))
    assert made.columns(None) == parse_schema("id string NOT NULL, n int NOT NULL")
    assert rows(decode(made.decoder(None), [message(old, OLD, {"id": "a"})])) == [{"id": "a", "n": 7}]


def test_what_is_bad(registry: SmallRegistry) -> None:
    new = registry.add("events", NEW)
    proto = registry.add("other", {}, schemaType="PROTOBUF")
    odd = registry.add("odd", record(("next", ["null", "Event"])))
    good = message(new, NEW, {"id": "a", "n": 1})
    unusable = [message(number, OLD, {"id": "a"}) for number in (OUTSIDE, proto, odd)]
    garbage = b"\0\xff\xff\xff\xff!"
    found = decoded(registry.address, [good, None, b"", b"\0\0\0", b"{}xxxx", *unusable, garbage, good[:-1], good])
    why = reasons(found)
    assert rows(found) == [{"id": "a", "n": 1}] * 2
    assert why[1] == "no value (a tombstone)"
    assert why[2] == why[3] == why[4]
    assert "header" in why[2]
    assert why[5] == f"unknown schema id {OUTSIDE}"
    assert why[6] == f"schema id {proto} is not Avro but PROTOBUF"
    assert "refers to itself" in why[7]
    assert why[8] == "unknown schema id 4294967295"


def test_an_unknown_id_is_asked_for_once_a_batch_and_again_in_the_next(registry: SmallRegistry) -> None:
    value = message(1, OLD, {"id": "a"})
    assert len(decoded(registry.address, [value] * 5).bad) == 5
    assert registry.asked == ["GET /schemas/ids/1"]
    registry.add("events", OLD)
    assert len(rows(decoded(registry.address, [value] * 5))) == 5


def test_schemas_that_refer_to_others(registry: SmallRegistry) -> None:
    place = record(("lat", "double"), name="Place")
    registry.add("places", place)
    referring = record(("id", "string"), ("pos", "Place"))
    names = [{"name": "Place", "subject": "places", "version": 1}]
    number = registry.add("events", referring, references=names)
    whole = record(("id", "string"), ("pos", place))
    value = message(number, whole, {"id": "a", "pos": {"lat": 0.5}})
    assert rows(decoded(registry.address, [value], "pos struct<lat: double>")) == [{"pos": {"lat": 0.5}}]


def test_a_registry_that_is_away_stops_the_run_and_makes_no_dead_letter(registry: SmallRegistry) -> None:
    value = message(registry.add("events", OLD), OLD, {"id": "a"})
    registry.close()
    with pytest.raises(RegistryUnreachable) as raised:
        decoded(registry.address.replace("http://", "http://me:s3cret@"), [value])
    assert raised.value.exit_code == 1
    assert "s3cret" not in repr(raised.value) + "".join(raised.value.lines())


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, b"oops"),
        (503, b'{"error_code":50003,"message":"later"}'),
        (404, b"<html>no such page</html>"),
        (404, b'{"detail":"Not Found"}'),
        (200, b"<html>hello</html>"),
        (200, b"{}"),
        (301, b""),
    ],
)
def test_what_answers_and_is_no_registry(registry: SmallRegistry, status: int, answer: bytes) -> None:
    registry.status, registry.body = status, answer
    with pytest.raises(RegistryUnreachable):
        decoded(registry.address, [message(1, OLD, {"id": "a"})])
    with pytest.raises(MillraceError):
        Avro(registry=registry.address, subject="x").encoder(batch().schema).encode(batch())


def test_passwords_are_used_and_never_shown(
    registry: SmallRegistry, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    value = message(registry.add("events", OLD), OLD, {"id": "a"})
    registry.user = "me@home:s3cret/"
    address = registry.address.replace("http://", "http://me%40home:s3cret%2F@")
    assert rows(decoded(address, [value], "id string")) == [{"id": "a"}]
    registry_at.cache_clear()
    registry.user = "somebody:else"
    with pytest.raises(RegistryRefused) as raised:
        decoded(address, [value])
    shown = [*raised.value.lines(), repr(Avro(registry=address)), caplog.text, *capsys.readouterr()]
    assert not [text for text in shown if "s3cret" in text]


@pytest.mark.parametrize("address", ["localhost:8081", "ftp://me:s3cret@host", "http://", "http://me:s3cret@host:port"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        decoded(address, [b"\0\0\0\0\1"])
    assert "s3cret" not in "".join(raised.value.lines())


def test_rows_are_written_with_a_schema_that_is_registered_once(registry: SmallRegistry) -> None:
    encoder = Avro(registry=registry.address, subject="out/1-value").encoder(batch().schema)
    messages = [*encoder.encode(batch()).to_pylist(), *encoder.encode(batch()).to_pylist()]
    assert registry.asked == ["POST /subjects/out%2F1-value/versions"]
    assert rows(decoded(registry.address, messages, "id string")) == [{"id": "a"}, {"id": "b"}] * 2


def test_a_schema_that_the_registry_refuses(registry: SmallRegistry) -> None:
    registry.status, registry.body = 409, b'{"error_code":409,"message":"not compatible"}'
    with pytest.raises(RegistryRefused) as raised:
        Avro(registry=registry.address, subject="x").encoder(batch().schema).encode(batch())
    assert raised.value.why == "not compatible"


def test_a_subject_is_needed_to_write() -> None:
    with pytest.raises(InvalidOption):
        Avro(registry="http://registry").encoder(batch().schema)
