"""Text and raw bytes: one column as it is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.records import decode, decoder, outcomes
from millrace.errors import InvalidSchema
from millrace.formats.raw import Raw
from millrace.formats.text import Text
from millrace.pipeline.schema import parse_schema

ANY = [b"a", b"", None, b"\xff\xfe", "é".encode()]


def test_text_is_utf8() -> None:
    assert outcomes(decode(decoder("text", None), ANY), len(ANY)) == [
        {"value": "a"},
        {"value": ""},
        "no value (a tombstone)",
        "not UTF-8 at byte 0",
        {"value": "é"},
    ]


def test_raw_is_anything() -> None:
    assert outcomes(decode(decoder("raw", None), ANY), len(ANY)) == [{"value": value} for value in ANY]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=6) | st.none()))
def test_text_is_bad_where_python_says_so(values: list[bytes | None]) -> None:
    for value, outcome in zip(values, outcomes(decode(decoder("text", None), values), len(values)), strict=True):
        try:
            text = value.decode() if value is not None else None
        except UnicodeDecodeError:
            text = None
        assert isinstance(outcome, str) if text is None else outcome == {"value": text}


def test_a_schema_may_name_the_column() -> None:
    assert Text().columns(parse_schema("line string")).names == ("line",)
    assert Text().columns(None) == parse_schema("value string")
    assert Raw().columns(None) == parse_schema("value binary")
    for wrong in ("a int", "a string, b string"):
        with pytest.raises(InvalidSchema):
            Text().columns(parse_schema(wrong))
    with pytest.raises(InvalidSchema):
        Raw().columns(parse_schema("a string"))
