"""What JSON cannot carry becomes something that it can."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.telemetry.channels import MAX_TEXT_CHARS, plain_value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (None, None),
        (True, True),
        (2**53, 2**53),
        (2**53 + 1, "9007199254740993"),
        (-(2**70), str(-(2**70))),
        (Decimal("1.10"), "1.10"),
        (Decimal("NaN"), None),
        (b"\xff\x00a", "\\xff\x00a"),
        ("\ud800x", "?x"),
        ("<b>&amp;</b>", "<b>&amp;</b>"),
        (datetime(2026, 1, 1, tzinfo=UTC), 1767225600000),
        (date(2026, 1, 1), "2026-01-01"),
        ({1: {math.nan}}, {"1": [None]}),
    ],
)
def test_values(value: object, shown: object) -> None:
    assert plain_value(value) == shown


def test_a_number_beyond_all_measure() -> None:
    assert plain_value(10**100_000) == "a number of 332,193 bits"


def test_long_texts_are_cut() -> None:
    assert plain_value("x" * 1_000_000) == "x" * (MAX_TEXT_CHARS - 1) + "…"
    assert len(plain_value(b"x" * 1_000_000)) == MAX_TEXT_CHARS
    assert plain_value("x" * MAX_TEXT_CHARS) == "x" * MAX_TEXT_CHARS


def test_deep_values_end_somewhere() -> None:
    deep: list[object] = []
    for _ in range(500):
        deep = [deep]
    assert orjson.loads(orjson.dumps(plain_value(deep)))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=20,
)


@given(anything)
def test_anything_can_be_encoded(value: object) -> None:
    orjson.dumps(plain_value(value), option=orjson.OPT_STRICT_INTEGER)
