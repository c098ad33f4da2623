import random

import pytest

from millrace.feeds.simulation.samples import SIZE, bell, draws, spread, zipf


def test_a_table_is_full_and_each_item_has_its_share():
    table = spread("abc", (1, 2, 5), 80)
    assert {item: table.count(item) for item in "abc"} == {"a": 10, "b": 20, "c": 50}


def test_rounding_never_changes_the_length():
    assert len(spread(range(5000), zipf(5000, 0.9))) == SIZE
    assert len(set(spread(range(5000), zipf(5000, 0.9)))) == 5000


def test_weights_fall_with_rank():
    assert zipf(3, 1.0) == pytest.approx([1, 1 / 2, 1 / 3])


def test_draws_stay_in_a_table():
    places = draws(random.Random(1), 20_000)
    assert 0 <= min(places) < 100
    assert SIZE - 100 < max(places) < SIZE


def test_the_bell_is_normal():
    table = bell()
    assert len(table) == SIZE
    assert sum(table) == pytest.approx(0, abs=1e-6)
    assert sum(x * x for x in table) / SIZE == pytest.approx(1, abs=0.01)
