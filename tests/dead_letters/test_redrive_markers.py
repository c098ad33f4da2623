"""Marks in dead topics."""

from __future__ import annotations

from millrace.dead_letters.offset_ledger import MARK_KEY, RedriveMarkers, marked_spans, spans_of_offsets, to_record


def test_offsets_become_spans() -> None:
    assert list(spans_of_offsets([5, 3, 4, 9, 3])) == [(3, 6), (9, 10)]
    assert list(spans_of_offsets([])) == []


def test_a_mark_is_told_from_other_records() -> None:
    record = to_record(2, [7, 8, 11], {"fix": "mend.py:mend"})
    assert (record.key, record.partition) == (MARK_KEY, 2)
    assert marked_spans(record.key, record.value) == [(7, 9), (11, 12)]
    assert marked_spans(b"other", record.value) is None
    assert marked_spans(MARK_KEY, b"no JSON") is None
    assert marked_spans(MARK_KEY, None) is None


def test_what_is_marked_is_known_by_place() -> None:
    marks = RedriveMarkers()
    marks.add("t", 0, [(3, 6)])
    marks.add("t", 0, [(9, 10), (5, 7)])
    marks.add("t", 1, [(0, 1)])
    assert [offset for offset in range(12) if marks.has("t", 0, offset)] == [3, 4, 5, 6, 9]
    assert marks.has("t", 1, 0)
    assert not marks.has("u", 0, 3)
