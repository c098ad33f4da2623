"""One broken record does not spoil the proposal of a schema, and is told."""

from __future__ import annotations

from collections import Counter

import pytest

from millrace.errors import InputError
from millrace.formats.schema_inference import propose_schema
from millrace.pipeline.schema import parse_schema

GOOD = [b'{"id":%d,"at":"2026-05-04T12:00:00Z","tags":["a"],"by":{"name":"ann"}}' % number for number in range(19)]
DDL = "id bigint, at timestamp, tags array<string>, by struct<name: string>"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'{"id":"seven"}', "column id: wrong type: expected bigint, got string"),
        (b'{"at":"soon"}', "column at: not a timestamp: 'soon'"),
        (b'{"tags":"a"}', "column tags: wrong type: expected array, got string"),
        (b'{"by":[]}', "column by: wrong type: expected object, got array"),
        (b'{"by":{"name":7}}', "column by.name: wrong type: expected string, got number"),
        (b"[1]", "not a JSON object"),
        (b'{"id":1', ""),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_one_broken_record_is_told_and_left_out(broken: bytes, reason: str) -> None:
    found = propose_schema([*GOOD[:9], broken, *GOOD[9:]])
    assert found.schema == parse_schema(DDL)
    assert (found.records, found.unfit.total()) == (20, 1)
    assert reason in next(iter(found.unfit))


def test_records_that_fit_are_not_told() -> None:
    found = propose_schema([*GOOD, b"{}", b'{"id":2.5}', b'{"id":1,"new":true}', b'{"at":null}'])
    assert found.schema == parse_schema(DDL.replace("bigint", "double") + ", new boolean")
    assert found.unfit == Counter()
    assert found.filled == {"id": 21, "at": 19, "tags": 19, "by": 19, "new": 1}


def test_records_with_none_of_the_usual_fields_add_no_columns() -> None:
    found = propose_schema([*GOOD, b'{"error":"boom","code":7}'])
    assert found.schema == parse_schema(DDL)
    assert (found.foreign, found.records) == (1, 20)
    several_kinds = [b'{"a":1}', b'{"b":1}', b'{"c":1}']
    assert propose_schema(several_kinds).schema == parse_schema("a bigint, b bigint, c bigint")


def test_where_many_differ_it_is_text_and_those_that_are_none_are_told() -> None:
    found = propose_schema([b'{"n":1}', b'{"n":"one"}', b'{"n":"two"}'])
    assert found.schema == parse_schema("n string")
    assert found.unfit == Counter({"column n: wrong type: expected string, got number": 1})


def test_a_text_that_looks_like_a_time_is_a_text_among_others() -> None:
    words = [b'{"text":"word %d"}' % number for number in range(19)]
    found = propose_schema([*words, b'{"text":"2026-05-04","more":1}'])
    assert found.schema == parse_schema("text string, more bigint")
    assert not found.unfit


def test_a_sample_without_an_object_is_an_error() -> None:
    with pytest.raises(InputError):
        propose_schema([b"no", b"17"])


def test_keys_that_differ_from_a_column_in_case_only() -> None:
    found = propose_schema(
        [*GOOD, b'{"ID":1,"id":2,"by":{"NAME":"ann"}}', b'{"Tags":[]}', b'{"tags":["a"],"BY":{"NAME":"x"}}']
    )
    assert found.unfit.total() == 0
    assert found.other_case == {("ID", "id"): 1, ("by.NAME", "by.name"): 1, ("Tags", "tags"): 1, ("BY", "by"): 1}
