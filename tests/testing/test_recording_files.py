"""Records in a file keep their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import FileUnusable
from millrace.testing.recording import read_recording, recording_line

PLACE = {"topic": "posts", "partition": 2, "offset": 7, "timestamp": 1_777_896_000_000}


@pytest.mark.parametrize("content", [b'{"a": 1}', b"\xff\x00", b"", None, "°".encode()])
def test_bytes_come_back_as_they_were(content: bytes | None) -> None:
    headers = [("h", content), ("h", b"second"), ("g", None)]
    line = recording_line({**PLACE, "key": content, "value": content, "headers": headers})
    (back,) = read_recording(line, Path("x"))
    assert back == {
        **PLACE,
        "key": content,
        "value": content,
        "headers": [{"key": name, "value": value} for name, value in headers],
    }


def test_what_kafka_consume_printed_is_read_too() -> None:
    line = b'{"topic":"t","key":null,"key_base64":"/w==","value":"v","headers":{"a":["1","2"],"b":null}}'
    (back,) = read_recording(line, Path("x"))
    assert (back["key"], back["value"]) == (b"\xff", b"v")
    assert back["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": b"2"},
        {"key": "b", "value": None},
    ]


def test_what_is_no_record_is_told_with_its_line() -> None:
    with pytest.raises(FileUnusable, match="x:2"):
        list(read_recording(b'{"value":"a"}\nbroken\n', Path("x")))
