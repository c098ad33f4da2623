"""How old what waits is, from how topics have grown."""

from __future__ import annotations

import pytest

from millrace.dashboard.kafka.lag import EndOffsets

PLACE = ("posts", 0)


def grown(*looks: tuple[float, int]) -> EndOffsets:
    ends = EndOffsets()
    for moment, end in looks:
        ends.add(moment, {PLACE: end})
    return ends


def test_what_has_been_read_to_the_end_does_not_wait() -> None:
    assert grown((0, 10)).waited(PLACE, 10, 5) == 0
    assert grown((0, 10)).waited(PLACE, 12, 5) == 0, "Spark may know more than the last look"
    assert EndOffsets().waited(PLACE, 0, 5) == 0


def test_the_age_is_interpolated_between_two_looks() -> None:
    ends = grown((0, 0), (1, 100), (2, 200), (3, 200), (4, 300))
    assert ends.waited(PLACE, 0, 5) == pytest.approx(5)
    assert ends.waited(PLACE, 50, 5) == pytest.approx(4.5)
    assert ends.waited(PLACE, 150, 5) == pytest.approx(3.5)
    assert ends.waited(PLACE, 200, 5) == pytest.approx(2), "nothing came between 2 and 3"
    assert ends.waited(PLACE, 250, 5) == pytest.approx(1.5)


def test_what_was_there_before_the_first_look_has_no_known_age() -> None:
    assert grown((0, 100), (1, 200)).waited(PLACE, 50, 5) is None
    assert grown((0, 100)).waited(PLACE, 50, 5) is None


def test_rates() -> None:
    assert grown((0, 10)).rates() == {}
    assert grown((0, 0), (1, 100), (2, 300)).rates() == {"posts": 150}
    assert grown((0, 0), (10, 1000), (11, 1100)).rates() == {"posts": 100}, "over the last seconds only"
    assert grown((0, 0), (60, 600)).rates() == {"posts": 10}, "or since the look before, however long ago"
    assert grown((0, 100), (1, 0)).rates() == {"posts": 0}, "a topic that was made anew"
