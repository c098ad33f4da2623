"""A record as text."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from confluent_kafka import Message

from millrace.cli.commands.kafka.record_output import RECORD_FORMATS, for_terminal, record_line
from millrace.clients.kafka.record import Record

BINARY = b"\xff\x00\xfe"
ENCODED = b64encode(BINARY).decode()


class Shown:
    """Stands in for a message of the client, which only the client can make."""

    def __init__(self, record: Record, kind: int = 1) -> None:
        self.record = record
        self.kind = kind

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.record.timestamp or -1

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self.record.headers) or None


def as_json(record: Record, **how: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(record_line(Shown(record, **how)))  # type: ignore[arg-type]
    return found


def test_a_record_has_exactly_the_promised_fields() -> None:
    assert as_json(Record(b"v", b"k", 1234, (("h", b"x"),))) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1234,
        "key": "k",
        "value": "v",
        "headers": {"h": "x"},
    }


def test_what_is_not_there_is_null() -> None:
    found = as_json(Record(None), kind=0)
    assert (found["key"], found["value"], found["timestamp"], found["headers"]) == (None, None, None, {})


def test_empty_is_not_null() -> None:
    found = as_json(Record(b"", b"", headers=(("h", b""), ("n", None))))
    assert (found["key"], found["value"], found["headers"]) == ("", "", {"h": "", "n": None})


def test_bytes_that_are_no_text_are_in_base64() -> None:
    found = as_json(Record(BINARY, BINARY))
    assert (found["key"], found["key_base64"]) == (None, ENCODED)
    assert (found["value"], found["value_base64"]) == (None, ENCODED)


def test_headers_that_are_no_text_are_in_base64() -> None:
    assert as_json(Record(b"", headers=(("h", BINARY),)))["headers"] == {"h": None, "h_base64": ENCODED}


def test_a_header_that_comes_twice_is_there_twice() -> None:
    found = as_json(Record(b"", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))))
    assert found["headers"] == {"a": ["1", "3"], "b": "2"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"b": 1,\r\n "a": [true, null]}', b'{"b": 1,   "a": [true, null]}'),
        (b"123456789012345678901234567890.10", b"123456789012345678901234567890.10"),
        (b'"text"', b'"text"'),
        (None, b"null"),
        (b"", b'""'),
        (b"plain", b'"plain"'),
        (b"{broken", b'"{broken"'),
        (b"NaN", b'"NaN"'),
        (b"\xff", '"�"'.encode()),
        (b"a\nb", rb'"a\nb"'),
    ],
)
def test_a_value_as_json_is_one_line_of_json(value: bytes | None, text: bytes) -> None:
    assert RECORD_FORMATS["json"](Shown(Record(value))) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("depth", [300, 2000])
def test_json_of_any_depth_is_shown(depth: int) -> None:
    value = b"[" * depth + b"]" * depth
    assert RECORD_FORMATS["json"](Shown(Record(value))) in (value, b'"%b"' % value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("form", "text"), [("text", b"v\xff"), ("keys", b"k\tv\xff")])
def test_text_is_the_bytes_as_they_are(form: str, text: bytes) -> None:
    assert RECORD_FORMATS[form](Shown(Record(b"v\xff", b"k"))) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(("form", "text"), [("text", b""), ("keys", b"\t")])
def test_null_is_nothing_as_text(form: str, text: bytes) -> None:
    assert RECORD_FORMATS[form](Shown(Record(None))) == text  # type: ignore[arg-type]


def test_a_real_message_is_shown(lane: str, put: Callable[..., object], drain: Callable[..., list[Message]]) -> None:
    put(lane, Record(b"v", BINARY, 1_700_000_000_000, (("a", b"1"), ("a", BINARY), ("n", None))))
    [message] = drain(lane)
    assert orjson.loads(record_line(message)) == {
        "topic": lane,
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": None,
        "key_base64": ENCODED,
        "value": "v",
        "headers": {"a": ["1", None], "a_base64": ENCODED, "n": None},
    }


@pytest.mark.parametrize("form", ["json", "record"])
def test_json_at_a_terminal_is_still_json(form: str) -> None:
    message = Shown(Record('"a\x9b31m\x7f"'.encode()))
    line = for_terminal(form)(message)  # type: ignore[arg-type]
    assert b"\\u009b31m\\u007f" in line
    assert json.loads(line) == json.loads(RECORD_FORMATS[form](message))  # type: ignore[arg-type]


def test_text_at_a_terminal_shows_control_characters_by_their_codes() -> None:
    message = Shown(Record("a\x9b31m".encode()))
    assert for_terminal("text")(message) == rb"a\x9b31m"  # type: ignore[arg-type]
