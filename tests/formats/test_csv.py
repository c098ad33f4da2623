"""Lines of CSV to columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.records import TEXTS, decode, decoder, outcomes, reasons, rows
from millrace.errors import InvalidOption, InvalidSchema
from millrace.formats.csv import Csv
from millrace.pipeline.schema import parse_schema

WIDE = "id string NOT NULL, n int, x double, f float, q boolean, at timestamp, d date, u timestamp_ntz, p decimal(5,2)"
LINE = b"a,1,1.5,0.5,true,2024-01-01T00:00:00Z,2024-01-01,2024-01-01 12:00,1.25"
ROW = {
    "id": "a",
    "n": 1,
    "x": 1.5,
    "f": 0.5,
    "q": True,
    "at": datetime(2024, 1, 1, tzinfo=UTC),
    "d": date(2024, 1, 1),
    "u": datetime(2024, 1, 1, 12),
    "p": Decimal("1.25"),
}


def test_a_line_is_a_row() -> None:
    assert rows(decode(decoder("csv", WIDE), [LINE, LINE + b"\r\n"])) == [ROW, ROW]


def test_quotes() -> None:
    values = [b'"a,b",1', b'"a ""b""",2', b'"",3', b'"a\nb",4\n', b'a,"5"']
    assert rows(decode(decoder("csv", "s string, n int"), values)) == [
        {"s": "a,b", "n": 1},
        {"s": 'a "b"', "n": 2},
        {"s": "", "n": 3},
        {"s": "a\nb", "n": 4},
        {"s": "a", "n": 5},
    ]


def test_other_signs() -> None:
    ours = decoder("csv", "s string, t string", separator="|", quote="'", null="-")
    assert rows(decode(ours, [b"a|-", b"'|'|'-'", b"|x"])) == [
        {"s": "a", "t": None},
        {"s": "|", "t": "-"},
        {"s": "", "t": "x"},
    ]
    assert rows(decode(decoder("csv", "s string, t string", separator="\\t", quote=""), [b'"\t"'])) == [
        {"s": '"', "t": '"'}
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (None, "no value (a tombstone)"),
        (b"", "empty"),
        (b"\n", "empty"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"a,1", "2 fields instead of 9"),
        (LINE + b",", "10 fields instead of 9"),
        (b'"a"', "1 field instead of 9"),
        (LINE + b"\n" + LINE, "not one line of CSV from character 67 on"),
        (b'a"b' + LINE[1:], "not one line of CSV from character 1 on"),
        (b'"a' + LINE[1:], "not one line of CSV from character 1 on"),
        (LINE[1:], "column id: missing"),
        (LINE.replace(b",1,", b",1.0,"), "column n: not an integer: '1.0'"),
        (LINE.replace(b",1,", b",0x1F,"), "column n: not an integer: '0x1F'"),
        (LINE.replace(b",1,", b",9999999999,"), "column n: out of range for int"),
        (LINE.replace(b",1.5,", b",NaN,"), "column x: not a number: 'NaN'"),
        (LINE.replace(b",1.5,", b",1e999,"), "column x: out of range for double"),
        (LINE.replace(b",0.5,", b",1e39,"), "column f: out of range for float"),
        (LINE.replace(b"true", b"1"), "column q: not true or false: '1'"),
        (LINE.replace(b"T00:00:00Z", b"T25:00:00Z"), "column at: not a timestamp: '2024-01-01T25:00:00Z'"),
        (LINE.replace(b",2024-01-01,", b",01.01.2024,"), "column d: not a date: '01.01.2024'"),
        (LINE.replace(b"12:00,", b"12:00Z,"), "column u: not a timestamp_ntz: '2024-01-01 12:00Z'"),
        (LINE.replace(b"1.25", b"1000"), "column p: does not fit decimal(5,2)"),
        (LINE.replace(b"1.25", b"1" * 38), "column p: does not fit decimal(5,2)"),
    ],
)
def test_why_a_line_is_bad(line: bytes | None, reason: str) -> None:
    decoded = decode(decoder("csv", WIDE), [LINE, line, LINE])
    assert reasons(decoded) == {1: reason}
    assert rows(decoded) == [ROW, ROW]


texts = st.sampled_from(TEXTS) | st.text(max_size=5) | st.integers().map(str) | st.floats().map(str)
lines = (
    st.lists(texts | texts.map(lambda text: f'"{text}"'), min_size=7, max_size=9)
    .map(",".join)
    .map(lambda text: text.encode("utf-8", "surrogatepass"))
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(lines | st.binary(max_size=20) | st.none(), max_size=5))
def test_any_bytes_have_the_same_result_alone_and_among_others(values: list[bytes | None]) -> None:
    ours = decoder("csv", "id string, n int, l bigint, x double, f float, q boolean, at timestamp, p decimal(38,2)")
    together = outcomes(decode(ours, values), len(values))
    assert together == [outcomes(decode(ours, [value]), 1)[0] for value in values]


def test_what_csv_cannot_be() -> None:
    with pytest.raises(InvalidSchema):
        Csv().columns(parse_schema("a array<string>"))
    with pytest.raises(InvalidSchema):
        Csv().columns(None)
    for options in ({"separator": ""}, {"separator": ", "}, {"separator": '"'}, {"quote": "''"}, {"quote": "\n"}):
        with pytest.raises(InvalidOption):
            Csv(**options).decoder(parse_schema("a string"))
