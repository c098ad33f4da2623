"""Rows that came beside rows that were expected."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from millrace.clients.letters import Letter
from millrace.errors import InvalidTest
from millrace.testing.comparing import dead_difference, difference, expected_rows, plain_rows, whole

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
    for wrong in ("rain", 3, {"tag": "rain"}, ["rain"]):
        with pytest.raises(InvalidTest):
            expected_rows(wrong, tmp_path)
    (tmp_path / "rows.csv").write_text("tag,count\nrain,1\n")
    (tmp_path / "rows.json").write_text('{"tag":"rain","count":1}\n')
    for form in ("csv", "json"):
        assert expected_rows({form: f"rows.{form}"}, tmp_path) == [{"tag": "rain", "count": 1}]


def test_a_table_after_several_steps() -> None:
    first, second = CAME.slice(0, 2), CAME.slice(2, 1)
    assert whole([first, second], "append", ()).num_rows == 3
    assert whole([first, second], "complete", ()).num_rows == 1
    assert [row["tag"] for row in plain_rows(whole([first, second], "update", ["tag"]))] == ["tram", "rain"]


def test_dead_letters_are_counted_or_told_by_their_parts() -> None:
    letters = [Letter(value=b"{broken", reason="not JSON: at 1"), Letter(value=b"\xff", reason="not UTF-8")]
    assert dead_difference("posts", letters, 2) is None
    assert dead_difference("posts", letters, [{"reason": "UTF-8"}, {"value": "{broken", "reason": "not JSON"}]) is None
    assert "2 dead letters, not 1" in (dead_difference("posts", letters, 1) or "")
    assert "1 not expected" in (dead_difference("posts", letters, [{"reason": "JSON"}]) or "")
