import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.feeds.simulation.malformed_records import WAYS, MalformedShape, WellFormed, malform

SCHEMA = "id string, count int, tags array<string>, at timestamp"
VALUE = b'{"id":"caf\xc3\xa9","count":3,"tags":["a"],"at":"2026-01-31T12:00:00.000Z"}'
CSV = b"7,3,a,2026-01-31T12:00:00.000Z"
SHAPE = MalformedShape.of(SCHEMA, "at")


def test_the_shape_says_where_the_time_is_and_what_is_more_than_text():
    assert MalformedShape(3, (1, 2, 3)) == SHAPE
    assert MalformedShape.of("id string, at string", "at") == (1, (1,))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(5))
def test_no_strict_reader_takes_a_malformed_record(way, seed, misfit):
    assert misfit(SCHEMA, VALUE) is None
    assert misfit(SCHEMA, way(WellFormed(VALUE, SHAPE, random.Random(seed)))) is not None


@pytest.mark.parametrize("way", WAYS)
def test_lines_without_names_break_too(way):
    assert way(WellFormed(CSV, SHAPE, random.Random(1))) != CSV


def test_what_is_not_broken_stays_as_it_was():
    broken = WellFormed(VALUE, SHAPE, random.Random(1)).changed(1, b"NaN")
    assert broken == VALUE.replace(b":3,", b":NaN,")


def test_a_null_value_and_bytes_that_are_not_text_are_among_the_ways():
    broken = {malform(VALUE, SHAPE, random.Random(seed)) for seed in range(200)}
    assert None in broken
    assert b"" in broken
    assert any(b"\xff" in value for value in broken if value)


def test_the_way_is_chosen_by_the_generator():
    assert malform(VALUE, SHAPE, random.Random(5)) == malform(VALUE, SHAPE, random.Random(5))


@given(st.binary(max_size=40), st.integers(0, 1000))
def test_any_bytes_can_be_malformed(value, seed):
    for way in WAYS:
        assert isinstance(way(WellFormed(value, SHAPE, random.Random(seed))), bytes | None)


@pytest.mark.parametrize("row", [{}, {"": None}, {"é": "\ud800"}, {"a": {"b": [1, 2]}}, {"a": 10**30}, [], 1, "a"])
def test_any_json_can_be_malformed(row):
    for way in WAYS:
        way(WellFormed(json.dumps(row).encode(), SHAPE, random.Random(1)))
