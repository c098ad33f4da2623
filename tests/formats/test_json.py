"""JSON messages to columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from formats.records import decode, decoder, outcomes, reasons, rows
from millrace.errors import InvalidSchema
from millrace.formats.json import Json
from millrace.formats.json_decoder import MIN_PIECE_ROWS, JsonDecoder
from millrace.pipeline.schema import parse_schema

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


def one(ddl: str, value: bytes) -> object:
    """What becomes of one message: the value of its only column, or a reason."""
    (found,) = outcomes(decode(decoder("json", ddl), [value]), 1)
    return next(iter(found.values())) if isinstance(found, dict) else found


def field(kind: str, text: str) -> object:
    """What becomes of one field of a type."""
    return one(f"a {kind}", b'{"a":' + text.encode() + b"}")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", '"x"', "x"),
        ("string", r'"\ud83d\ude00\u0000"', "😀\0"),
        ("string", "null", None),
        ("boolean", "true", True),
        ("tinyint", "-128", -128),
        ("smallint", "32767", 32767),
        ("int", "2147483647", 2147483647),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("double", "1", 1.0),
        ("double", "1e-400", 0.0),
        ("float", "0.5", 0.5),
        ("decimal(5,2)", "1.2", Decimal("1.20")),
        ("decimal(5,2)", '"1.2"', Decimal("1.20")),
        ("decimal(5,2)", "1.005", Decimal("1.01")),
        ("decimal(5,2)", "-1.005", Decimal("-1.01")),
        ("decimal(20,2)", "123456789012345678.91", Decimal("123456789012345678.91")),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("timestamp", '"2024-01-01T00:00:00Z"', NEW_YEAR),
        ("timestamp", '"2024-01-01 00:00:00"', NEW_YEAR),
        ("timestamp", '"2024-01-01"', NEW_YEAR),
        ("timestamp", '"2024-01-01T02:30:00+02:30"', NEW_YEAR),
        ("timestamp", '"2024-01-01T00:00:00.123456789Z"', NEW_YEAR.replace(microsecond=123456)),
        ("timestamp", '"1969-12-31T23:59:59.123456789Z"', datetime(1969, 12, 31, 23, 59, 59, 123456, UTC)),
        ("timestamp", "1704067200", NEW_YEAR),
        ("timestamp_ntz", '"2024-01-01T12:00:00"', datetime(2024, 1, 1, 12)),
        ("binary", '"YWJj"', b"abc"),
        ("array<int>", "[1,null,2]", [1, None, 2]),
        ("map<string,int>", '{"x":1,"y":null}', [("x", 1), ("y", None)]),
        ("struct<x: int, y: array<date>>", '{"y":["2024-01-01"],"z":1}', {"x": None, "y": [date(2024, 1, 1)]}),
        ("array<struct<x: float>>", '[{"x":0.5},null]', [{"x": 0.5}, None]),
    ],
)
def test_what_each_type_takes(kind: str, text: str, value: object) -> None:
    assert field(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("string", "1", "column a: wrong type: expected string, got number"),
        ("string", "{}", "column a: wrong type: expected string, got object"),
        ("boolean", "1", "column a: wrong type: expected boolean, got number"),
        ("boolean", '"true"', "column a: wrong type: expected boolean, got string"),
        ("int", '"1"', "column a: wrong type: expected int, got string"),
        ("int", "true", "column a: wrong type: expected int, got boolean"),
        ("int", "1.0", "column a: not an integer: 1.0"),
        ("int", "2147483648", "column a: out of range for int"),
        ("bigint", "9223372036854775808", "column a: out of range for bigint"),
        ("bigint", "123456789012345678901234567890", "column a: out of range for bigint"),
        ("double", '"1.5"', "column a: wrong type: expected number, got string"),
        ("double", "NaN", "not JSON: unexpected character, expected a JSON value at character 6"),
        ("double", "1e999", "not JSON: number is infinity when parsed as double at character 6"),
        ("double", "1.7976931348623159e308", "not JSON: number is infinity when parsed as double at character 6"),
        ("float", "1e39", "column a: out of range for float"),
        ("decimal(5,2)", "1000", "column a: does not fit decimal(5,2)"),
        ("decimal(5,2)", "999.995", "column a: does not fit decimal(5,2)"),
        ("decimal(38,2)", "1" * 38, "column a: does not fit decimal(38,2)"),
        ("decimal(5,2)", '"x"', "column a: not a number: 'x'"),
        ("date", '"2024-02-30"', "column a: not a date: '2024-02-30'"),
        ("date", "19000", "column a: wrong type: expected date, got number"),
        ("timestamp", '"2026-02-30T12:00:00Z"', "column a: not a timestamp: '2026-02-30T12:00:00Z'"),
        ("timestamp", "1.5", "column a: wrong type: expected timestamp, got number"),
        ("timestamp", "1704067200000", "column a: timestamp out of range (a number is in seconds)"),
        ("timestamp_ntz", '"2024-01-01T00:00:00Z"', "column a: not a timestamp_ntz: '2024-01-01T00:00:00Z'"),
        ("binary", '"!"', "column a: not base64"),
        ("array<int>", '[1,"2"]', "column a[1]: wrong type: expected int, got string"),
        ("map<string,int>", '{"x":"y"}', "column a['x']: wrong type: expected int, got string"),
        ("struct<x: int NOT NULL>", "{}", "column a.x: missing"),
        ("struct<x: array<date>>", '{"x":["y"]}', "column a.x[0]: not a date: 'y'"),
    ],
)
def test_what_each_type_refuses(kind: str, text: str, reason: str) -> None:
    assert field(kind, text) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value (a tombstone)"),
        (b"", "empty"),
        (b'{"a":"x"', "not JSON: unexpected end of data at character 9"),
        (b"502 Bad Gateway", "not JSON: unexpected content after document at character 5"),
        (b'["x"]', "not a JSON object: an array"),
        (b'"{}"', "not a JSON object: a string"),
        (b"17", "not a JSON object: a number"),
        (b"null", "not a JSON object: null"),
        (b'{"a":"x"}{"a":"y"}', "not JSON: unexpected content after document at character 10"),
        (b'{"a":"x"} {"a":"y"}', "not JSON: unexpected content after document at character 11"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"b":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"\\ud800"}', "not JSON: no low surrogate in string at character 7"),
        (b'{"a":"x","b":NaN}', "not JSON: unexpected character, expected a JSON value at character 14"),
        (b"{}", "column a: missing"),
        (b'{"a":null}', "column a: missing"),
        (b'{"A":"x"}', "column a: missing"),
    ],
)
def test_why_a_message_is_bad(value: bytes | None, reason: str) -> None:
    alone = decode(decoder("json", "a string NOT NULL"), [value])
    among = decode(decoder("json", "a string NOT NULL"), [b'{"a":"1"}', value, b'{"a":"2"}'])
    assert reasons(alone) == {0: reason}
    assert reasons(among) == {1: reason}
    assert rows(among) == [{"a": "1"}, {"a": "2"}]
    assert among.good is not None
    assert among.good.to_pylist() == [0, 2]


def test_blanks_unknown_fields_and_repeated_ones_do_no_harm() -> None:
    values = [
        b' {"a":1} \r\n',
        b'{"b":{"a":2},"a":1}',
        b'{\n"a"\t:\n1 }',
        b'{"a":2,"a":1}',
        b'{"b":"to Infinity","a":1}',
    ]
    decoded = decode(decoder("json", "a int"), values)
    assert rows(decoded) == [{"a": 1}] * len(values)
    assert decoded.good is None
    assert decoded.bad == []


def test_the_first_column_in_the_order_of_the_schema_is_blamed() -> None:
    decoded = decode(decoder("json", "a int, b int NOT NULL, c int"), [b'{"c":"x"}', b'{"c":"x","b":1}'])
    assert reasons(decoded) == {0: "column b: missing", 1: "column c: wrong type: expected int, got string"}


def test_nesting_as_deep_as_the_message_is_long_is_bad() -> None:
    deep = b'{"a":1,"b":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for ddl in ("a int", "a decimal(5,2)", "a int, b map<string,int>"):
        decoded = decode(decoder("json", ddl), [b'{"a":1}', deep])
        assert [one.index for one in decoded.bad] == [1]


def test_slices_large_values_and_empty_batches() -> None:
    lines = [b'{"a":%d}' % number for number in range(10)]
    ours = decoder("json", "a int")
    assert rows(ours.decode(pa.array(lines).slice(3, 4))) == [{"a": number} for number in range(3, 7)]
    assert rows(ours.decode(pa.array(lines, pa.large_binary()).slice(8))) == [{"a": 8}, {"a": 9}]
    empty = ours.decode(pa.array([], pa.binary()))
    assert (len(empty.rows), empty.rows.schema.names, empty.good, empty.bad) == (0, ["a"], None, [])


def test_batches_of_any_size_with_bad_ones_anywhere() -> None:
    count = MIN_PIECE_ROWS * 9 + 5
    values = [b'{"a":%d,"at":"2024-01-01T00:00:00Z"}' % number for number in range(count)]
    broken = {
        0: b'{"a":"x"}',
        MIN_PIECE_ROWS: b"{",
        MIN_PIECE_ROWS * 3: b'{"a":1,"at":"x"}',
        count - 1: b'{"a":1}{"a":2}',
    }
    ours = decoder("json", "a int, at timestamp")
    for _ in range(3):  # it remembers how well the last batch went
        for spoilt in ({}, broken):
            given = [spoilt.get(index, value) for index, value in enumerate(values)]
            decoded = decode(ours, given)
            assert list(reasons(decoded)) == list(spoilt)
            assert decoded.rows.column("a").to_pylist() == [index for index in range(count) if index not in spoilt]


def test_records_glued_together_send_no_others_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[bytes | None] = []
    of_one_by_one = JsonDecoder._records

    def noting(self: JsonDecoder, values: list[bytes | None]) -> object:
        slow.extend(values)
        return of_one_by_one(self, values)

    monkeypatch.setattr(JsonDecoder, "_records", noting)
    odd = [b'{"a":1}{"a":2}', b'{"a":1,"b":"}{"}']
    values = [b'{"a":%d}' % number for number in range(MIN_PIECE_ROWS * 9)]
    values[100:100] = odd
    ours = decoder("json", "a int")
    for _ in range(2):
        assert [one.index for one in decode(ours, values).bad] == [100]
    assert slow == odd * 2


def test_times_in_other_forms_are_read_in_every_batch() -> None:
    ours = decoder("json", "at timestamp")
    for text in ('"2024-01-01T00:00:00Z"', "1704067200", '"2024-01-01T00:00:00.000000001Z"', '"2024-01-01T00:00"') * 2:
        assert rows(decode(ours, [b'{"at":%s}' % text.encode()] * 3)) == [{"at": NEW_YEAR}] * 3


def test_json_needs_a_schema_whose_maps_have_strings_for_keys() -> None:
    with pytest.raises(InvalidSchema):
        Json().columns(None)
    with pytest.raises(InvalidSchema):
        Json().columns(parse_schema("a array<struct<m: map<int,string>>>"))
