"""Reasons in kinds."""

from __future__ import annotations

import pytest

from millrace.dead_letters.letter import DeadLetter
from millrace.dead_letters.redrive_filter import DeadLetterSummary, reason_kind
from millrace.dead_letters.store import StoredDeadLetter


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("not JSON: unexpected end at line 1 column 17", "not JSON: unexpected end at line N column N"),
        ("no schema 0xFF12", "no schema N"),
        ("12:30:01 is no date", "N is no date"),
        ("not UTF-8 at byte 12, but base64 of -7", "not UTF-8 at byte N, but base64 of -N"),
        ("field 'at' is missing", "field 'at' is missing"),
    ],
)
def test_numbers_make_no_kinds(reason: str, expected: str) -> None:
    assert reason_kind(reason) == expected


def test_a_count() -> None:
    found = [
        StoredDeadLetter(DeadLetter(value=b"", reason=f"column {number}", pipeline="p"), "t.dead", 0, number, number)
        for number in range(5)
    ]
    count = DeadLetterSummary()
    for one in (*found, StoredDeadLetter(DeadLetter(value=b"", reason="empty", pipeline="o"), "t.dead", 0, 9, 2)):
        count.add(one)
    assert (count.letters, count.newest, count.pipelines) == (6, 4, {"p", "o"})
    assert count.kinds.most_common() == [("column N", 5), ("empty", 1)]
