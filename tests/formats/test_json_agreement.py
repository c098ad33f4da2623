"""Whatever bytes come, each record has the same result alone, in a batch, and on either way through the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.records import decode, decoder, json_records, outcomes
from millrace.formats.base import Decoder
from millrace.formats.json_decoder import JsonDecoder

WIDE = (
    "id string, n int, l bigint, t tinyint, x double, f float, q boolean, p decimal(5,2), w decimal(38,4), b binary, "
    "d date, at timestamp, u timestamp_ntz, g array<string>, s struct<a: int, b: timestamp NOT NULL, c: array<date>>, "
    "h array<struct<a: float>>"
)
VALUES = {
    "id": ['"x"'],
    "n": ["1"],
    "l": ["3"],
    "t": ["1"],
    "x": ["1.5"],
    "f": ["0.1"],
    "q": ["true"],
    "p": ["1.25", '"2.5"'],
    "w": ["1"],
    "b": ['"YWJj"'],
    "d": ['"2024-01-01"'],
    "at": ['"2024-01-01T00:00:00Z"'],
    "u": ['"2024-01-01T00:00:00"'],
    "g": ['["a"]'],
    "s": ['{"a":1,"b":"2024-01-01T00:00:00Z"}'],
    "h": ['[{"a":1}]'],
}
QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@cache
def decoders(ddl: str) -> tuple[Decoder, Decoder, Decoder]:
    """One for batches, one for single records and one without the quick way; kept, as what they learn is no matter."""
    slow = decoder("json", ddl)
    assert isinstance(slow, JsonDecoder)
    slow._readers = []
    return decoder("json", ddl), decoder("json", ddl), slow


def all_ways(ddl: str, records: Sequence[bytes | None]) -> None:
    """Decode records together, alone and without the quick way, and compare."""
    batches, alone, slowly = decoders(ddl)
    together = outcomes(decode(batches, records), len(records))
    assert together == [outcomes(decode(alone, [record]), 1)[0] for record in records]
    assert together == outcomes(decode(slowly, records), len(records))


@QUICK
@given(st.lists(json_records(VALUES) | st.none(), max_size=4))
def test_columns_of_every_type(records: list[bytes | None]) -> None:
    all_ways(WIDE, records)


@QUICK
@given(st.lists(json_records({name: VALUES[name] for name in ("id", "n", "at")}) | st.none(), max_size=5))
def test_required_columns(records: list[bytes | None]) -> None:
    all_ways("id string NOT NULL, n int NOT NULL, at timestamp NOT NULL", records)


@QUICK
@given(st.lists(st.binary(max_size=40) | st.text(alphabet='{}[]":,a1 \n\\').map(str.encode), max_size=5))
def test_any_bytes(records: list[bytes]) -> None:
    all_ways("a int, b string", records)
    all_ways("a map<string,int>", records)


@pytest.mark.parametrize("glue", [b"", b" ", b"\n", b"\r\n", b","])
def test_no_broken_record_shifts_its_neighbours(glue: bytes) -> None:
    halves = (b'{"a":1', b'"b":"x"}')
    records = [b'{"a":7}', halves[0] + b"}" + glue + b"{" + halves[1], *halves, b'{"a":{}', b'{"b":"}', b'{"a":8}']
    all_ways("a int, b string", records)
