"""A schema proposed from samples."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from formats.records import decode, decoder, json_records
from millrace.errors import InputError
from millrace.formats.schema_inference import infer_schema
from millrace.pipeline.schema import parse_schema


@pytest.mark.parametrize(
    ("samples", "ddl"),
    [
        ([b'{"b":1,"a":"x"}', b'{"c":true}'], "b bigint, a string, c boolean"),
        ([b'{"a":1,"b":"x"}', b'{"b":"y","a":2}'], "a bigint, b string"),
        ([b'{"a":1}', b'{"a":2.5}'], "a double"),
        ([b'{"a":18446744073709551615}'], "a double"),
        ([b'{"a":"2024-01-01"}'], "a date"),
        ([b'{"a":"2024-01-01T10:00:00Z"}', b'{"a":"2024-01-01"}'], "a timestamp"),
        ([b'{"a":"2024-01-01"}', b'{"a":"soon"}'], "a string"),
        ([b'{"a":"12"}', b'{"a":12}'], "a string"),
        ([b'{"a":{"x":1}}', b'{"a":{"y":[]}}'], "a struct<x: bigint, y: array<string>>"),
        ([b'{"a":[]}', b'{"a":[1,2.5,null]}'], "a array<double>"),
        ([b'{"a":[{"x":1},{"y":"z"}]}'], "a array<struct<x: bigint, y: string>>"),
        ([b'{"a":null}', b'{"a":{}}'], "a map<string,string>"),
        ([b'{"a":null}'], "a string"),
        ([b'{"a":1,"A":2,"a b":3}'], "a bigint, `a b` bigint"),
        ([b"[1]", b"\xff", b"", b'{"a":1}'], "a bigint"),
    ],
)
def test_types_are_wide_enough_for_all(samples: list[bytes], ddl: str) -> None:
    assert infer_schema(samples) == parse_schema(ddl)


@pytest.mark.parametrize("samples", [[], [b"no", b"17"], [b"{}"], [b'{"":0}']])
def test_nothing_to_see_is_an_error(samples: list[bytes]) -> None:
    with pytest.raises(InputError):
        infer_schema(samples)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(json_records({"a": ["1"], "b": ['"x"']}), min_size=1, max_size=3))
def test_it_is_a_schema_that_decodes_what_is_not_mixed(samples: list[bytes]) -> None:
    try:
        schema = infer_schema(samples)
    except InputError:
        return
    assert parse_schema(schema.ddl()) == schema
    decode(decoder("json", schema.ddl()), samples)
