"""Marks in dead topics."""

from __future__ import annotations

from millrace.dead_letters.offset_ledger import (
    MARKER_KEY,
    RedriveMarkers,
    marked_ranges,
    marker_record,
    ranges_of_offsets,
)


def test_offsets_become_spans() -> None:
    assert list(ranges_of_offsets([5, 3, 4, 9, 3])) == [(3, 6), (9, 10)]
    assert list(ranges_of_offsets([])) == []


def test_a_mark_is_told_from_other_records() -> None:
    record = marker_record(2, [7, 8, 11], {"fix": "mend.py:mend"})
    assert (record.key, record.partition) == (MARKER_KEY, 2)
    assert marked_ranges(record.key, record.value) == [(7, 9), (11, 12)]
    assert marked_ranges(b"other", record.value) is None
    assert marked_ranges(MARKER_KEY, b"no JSON") is None
    assert marked_ranges(MARKER_KEY, None) is None


def test_what_is_marked_is_known_by_place() -> None:
    marks = RedriveMarkers()
    marks.add("t", 0, [(3, 6)])
    marks.add("t", 0, [(9, 10), (5, 7)])
    marks.add("t", 1, [(0, 1)])
    assert [offset for offset in range(12) if marks.contains("t", 0, offset)] == [3, 4, 5, 6, 9]
    assert marks.contains("t", 1, 0)
    assert not marks.contains("u", 0, 3)
