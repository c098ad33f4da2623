"""Rows that came beside rows that were expected."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.dead_letters.letter import DeadLetter
from millrace.errors import InvalidTest
from millrace.testing.compare import dead_difference, difference, expected_rows, plain_rows, whole_table

AT = datetime(2026, 5, 4, 12, tzinfo=UTC)
CAME = pa.table(
    {
        "tag": ["rain", "tram", "rain"],
        "count": [1, 2, 1],
        "at": pa.array([AT] * 3, pa.timestamp("us", "UTC")),
        "share": [0.1 + 0.2, 0.5, None],
        "price": pa.array([Decimal("1.50")] * 3, pa.decimal128(10, 2)),
        "window": [{"start": AT, "end": AT}] * 3,
    }
)


def test_rows_are_the_same_in_any_order_by_the_columns_that_are_named() -> None:
    assert difference("t", CAME, [{"tag": "tram"}, {"tag": "rain"}, {"tag": "rain"}]) is None
    assert difference("t", CAME.slice(0, 0), []) is None


def test_values_are_compared_in_the_types_of_the_table() -> None:
    row = {
        "at": "2026-05-04T14:00:00+02:00",
        "share": 0.3,
        "price": 1.5,
        "window": {"start": "2026-05-04 12:00:00", "end": 1777896000000},
    }
    assert difference("t", CAME.slice(0, 1), [row]) is None


def test_a_difference_is_a_table_of_what_is_missing_and_what_is_not_expected() -> None:
    told = difference("t", CAME, [{"tag": "rain", "count": 1}, {"tag": "tram", "count": 3}])
    assert told is not None
    assert told.splitlines() == [
        "t: rows 1 as expected, 1 missing (-), 2 not expected (+)",
        "     tag   count",
        "  +  rain  1",
        "  +  tram  2",
        "  -  tram  3",
    ]


def test_a_column_that_is_not_there_is_told() -> None:
    assert "'tags'" in (difference("t", CAME, [{"tags": "rain"}]) or "")


def test_what_is_expected_must_be_rows(tmp_path: Path) -> None:
    for wrong in ("rain", 3, {"tag": "rain"}, ["rain"], [{}]):
        with pytest.raises(InvalidTest):
            expected_rows(wrong, tmp_path)
    (tmp_path / "rows.csv").write_text("tag,count\nrain,1\n")
    (tmp_path / "rows.json").write_text('{"tag":"rain","count":1}\n')
    for form in ("csv", "json"):
        assert expected_rows({form: f"rows.{form}"}, tmp_path) == [{"tag": "rain", "count": 1}]


def test_a_table_after_several_steps() -> None:
    first, second = CAME.slice(0, 2), CAME.slice(2, 1)
    assert whole_table([first, second], "append", ()).num_rows == 3
    assert whole_table([first, second], "complete", ()).num_rows == 1
    assert [row["tag"] for row in plain_rows(whole_table([first, second], "update", ["tag"]))] == ["tram", "rain"]


def test_a_key_that_is_no_column_is_told() -> None:
    with pytest.raises(InvalidTest):
        whole_table([CAME], "update", ["tga"])


def test_what_is_no_number_is_not_null() -> None:
    found = pa.table({"share": [float("nan"), None, float("inf"), -0.0]})
    assert plain_rows(found) == [{"share": "NaN"}, {"share": None}, {"share": "Infinity"}, {"share": 0.0}]
    assert difference("t", found, [{"share": one} for one in (".nan", None, "Infinity", 0)]) is None
    assert difference("t", found, [{"share": one} for one in (float("nan"), None, float("inf"), 0)]) is None
    for wrong in ([None, None, "Infinity", 0], ["NaN", "NaN", "Infinity", 0]):
        assert difference("t", found, [{"share": one} for one in wrong])


def test_every_digit_of_whole_numbers_and_decimals_counts() -> None:
    long = Decimal("12345678901234567890123456789012345.678")
    found = pa.table({"n": [2**53 + 1], "price": pa.array([long], pa.decimal128(38, 3))})
    assert difference("t", found, [{"n": 2**53 + 1, "price": str(long)}]) is None
    assert difference("t", found, [{"n": 2**53}])
    assert difference("t", found, [{"n": 2**70}])
    assert difference("t", found, [{"price": str(long + Decimal("0.001"))}])


def test_a_field_that_a_column_does_not_have_is_told() -> None:
    window = {"start": AT, "end": AT, "strat": None}
    assert "'window.strat'" in (difference("t", CAME.slice(0, 1), [{"window": window}]) or "")


def test_dead_letters_are_counted_or_told_by_their_parts(tmp_path: Path) -> None:
    letters = [DeadLetter(value=b"{broken", reason="not JSON: at 1"), DeadLetter(value=b"\xff", reason="not UTF-8")]

    def told(expected: object, found: list[DeadLetter] = letters) -> str:
        return dead_difference("posts", found, expected, tmp_path) or ""

    assert told(2) == told("any") == ""
    assert told([{"reason": "UTF-8"}, {"value": "{broken", "reason": "not JSON"}]) == ""
    assert "2 dead letters, not 1" in told(1)
    assert "1 dead letter, not 2" in told(2, letters[:1])
    assert "1 not expected" in told([{"reason": "JSON"}])
    alike = [DeadLetter(value=b"a", reason="x"), DeadLetter(value=b"b", reason="x")]
    assert told([{"reason": "x"}, {"value": "a"}], alike) == ""
    assert told([{"value": "a"}, {"value": "a"}], alike)
    with pytest.raises(InvalidTest):
        told([{"reson": "x"}])
