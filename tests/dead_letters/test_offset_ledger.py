"""A ledger knows what was dealt with, and never claims more than that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millrace.dead_letters.offset_ledger import DecoderId, OffsetLedger


def reader(batch: int | None = 0, query: str = "q", lineage: str = "l") -> DecoderId:
    return DecoderId(query, lineage, batch)


def held(ledger: OffsetLedger, who: DecoderId) -> list[int]:
    return sorted(set(range(2000)) - set(ledger.missing(who, range(2000))))


def test_what_is_between_two_tasks_of_one_batch_is_not_dealt_with_until_the_next_batch() -> None:
    both = OffsetLedger().with_range(reader(0), (50, 60)).with_range(reader(0), (10, 12))
    assert held(both, reader(0)) == [10, 11, *range(50, 60)]
    later = both.with_range(reader(1), (100, 101))
    assert held(later, reader(1)) == [*range(10, 60), 100]


def test_an_attempt_of_an_old_batch_does_not_turn_the_ledger_back() -> None:
    ledger = (
        OffsetLedger().with_range(reader(5), (10, 20)).with_range(reader(4), (3, 5)).with_range(reader(5), (30, 31))
    )
    assert held(ledger, reader(5)) == [3, 4, *range(10, 20), 30]


def test_only_readers_that_judge_alike_count_for_each_other() -> None:
    ledger = OffsetLedger().with_range(reader(0, "a", "same"), (10, 20))
    assert held(ledger, reader(7, "b", "same")) == list(range(10, 20))
    assert held(ledger, reader(0, "a", "other")) == []


def test_without_batches_every_task_counts_for_itself() -> None:
    ledger = OffsetLedger().with_range(reader(None), (0, 2)).with_range(reader(None), (10, 12))
    assert held(ledger, reader(None)) == [0, 1, 10, 11]


spans = some.tuples(some.integers(0, 150), some.integers(1, 30)).map(lambda one: (one[0], one[0] + one[1]))


@given(some.lists(some.tuples(some.sampled_from("ab"), spans), max_size=20))
def test_the_text_gives_the_ledger_back(entries: list[tuple[str, tuple[int, int]]]) -> None:
    ledger = OffsetLedger()
    for query, span in entries:
        ledger = ledger.with_range(reader(0, query, query), span)
    assert OffsetLedger.parse(ledger.text()) == ledger
    for query in "ab":
        dealt = {offset for name, (first, end) in entries if name == query for offset in range(first, end)}
        assert held(ledger, reader(0, query, query)) == sorted(dealt)


def test_what_is_too_much_is_forgotten_from_the_oldest_on() -> None:
    ledger = OffsetLedger()
    for number in range(500):
        ledger = ledger.with_range(reader(0, str(number), str(number)), (number, number + 1))
    assert len(ledger.text()) < 4096
    read = OffsetLedger.parse(ledger.text())
    assert held(read, reader(0, "499", "499")) == [499]
    assert held(read, reader(0, "0", "0")) == []
    torn = OffsetLedger()
    for number in range(0, 2000, 2):
        torn = torn.with_range(reader(0), (number, number + 1))
    assert len(torn.text()) < 4096
    assert 1998 in held(OffsetLedger.parse(torn.text()), reader(0))


@pytest.mark.parametrize("text", [None, "", "x", "{}", "7", "[1]", '[["a"]]', '[["a", 1, 2]]', '[["a", 1, [[1]]]]'])
def test_text_of_others_means_that_nothing_is_known(text: str | None) -> None:
    assert OffsetLedger.parse(text) == OffsetLedger()
