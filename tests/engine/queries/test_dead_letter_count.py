"""Counting bad records: a batch that comes again counts once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.engine.queries.bad_records import DeadLetterCount, DeadLetterCountParam

FOUND = st.builds(
    lambda batch, newest: DeadLetterCount(0, batch, newest),
    st.integers(0, 5),
    st.dictionaries(st.sampled_from(["t[0]@1", "t[1]@7", "t[2]@9"]), st.integers(1, 9), max_size=3),
)


def test_batches_add_up() -> None:
    total = DeadLetterCount()
    for batch in range(3):
        total = total.plus(DeadLetterCount(0, batch, {"t[0]@1": 2})).plus(DeadLetterCount(0, batch, {"t[1]@5": 1}))
    assert int(total) == 9


def test_a_batch_that_comes_again_counts_once() -> None:
    first = DeadLetterCount().plus(DeadLetterCount(0, 0, {"t[0]@1": 4})).plus(DeadLetterCount(0, 1, {"t[0]@9": 2}))
    again = first.plus(DeadLetterCount(0, 1, {"t[0]@9": 2})).plus(DeadLetterCount(0, 1, {"t[1]@3": 1}))
    assert (int(first), int(again)) == (6, 7)


@given(st.lists(FOUND, max_size=12))
def test_every_batch_told_twice_in_order_counts_as_once(told: list[DeadLetterCount]) -> None:
    told = sorted(told, key=lambda one: one.batch)
    by_batch: dict[int, dict[str, int]] = {}
    for one in told:
        by_batch.setdefault(one.batch, {}).update(one.newest)
    total, adding = DeadLetterCountParam().zero(DeadLetterCount(7)), DeadLetterCountParam()
    for batch in sorted(by_batch):
        for one in [one for one in told if one.batch == batch] * 2:
            total = adding.addInPlace(total, one)
    assert int(total) == sum(sum(found.values()) for found in by_batch.values())
