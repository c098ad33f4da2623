"""How far shards are read, through splits and merges."""

from __future__ import annotations

from millrace.clients.kinesis.client import Shard, Stream
from millrace.clients.kinesis.shard_positions import SequenceRange, ShardPosition, ShardReadLimit, records_between

A, B = Shard("a"), Shard("b")
CHILD, OTHER, MERGED = Shard("a1", ("a",)), Shard("a2", ("a",)), Shard("m", ("a2", "b"))


def _ended(reach: ShardReadLimit, *names: str) -> ShardReadLimit:
    return ShardReadLimit(
        reach.stream,
        reach.created,
        reach.since,
        {name: ShardPosition(ended=True) if name in names else one for name, one in reach.shards.items()},
    )


def test_the_first_look_takes_all_shards_from_the_start_and_later_ones_from_their_oldest_record() -> None:
    first = ShardReadLimit("s", 1, since=50).grown([A, B], now=100)
    assert first.shards == {"a": ShardPosition(since=50, seen=100), "b": ShardPosition(since=50, seen=100)}
    later = _ended(first, "a").grown([A, B, CHILD, OTHER], now=200)
    assert later.shards["a1"] == ShardPosition(seen=200)


def test_children_wait_for_all_of_their_parents() -> None:
    listed = [A, B, CHILD, OTHER, MERGED]
    reach = ShardReadLimit("s", 1).grown(listed, now=1)
    assert reach.waiting(listed) == {"a1", "a2", "m"}
    assert _ended(reach, "a").waiting(listed) == {"m"}
    assert _ended(reach, "a", "a2").waiting(listed) == {"m"}
    assert _ended(reach, "a", "a2", "b").waiting(listed) == set()


def test_a_closed_shard_is_kept_until_its_children_are_listed_and_it_is_not() -> None:
    reach = _ended(ShardReadLimit("s", 1).grown([A, B], now=1), "a")
    assert reach.childless([A, B]) == {"a"}
    grown = reach.grown([A, B, CHILD, OTHER], now=2)
    assert grown.childless([A, B, CHILD, OTHER]) == set()
    assert "a" in grown.shards
    assert set(grown.grown([B, CHILD, OTHER], now=3).shards) == {"b", "a1", "a2"}


def test_a_reach_survives_json_and_tells_what_lies_between() -> None:
    start = ShardReadLimit("s", 1, 5, {"a": ShardPosition("10", "7", seen=3), "b": ShardPosition("4", "2", seen=3)})
    end = ShardReadLimit(
        "s",
        1,
        5,
        {"a": ShardPosition("12", "11", seen=9), "b": ShardPosition("4", "2", seen=9), "c": ShardPosition("9", "1")},
    )
    assert ShardReadLimit.of(end.to_json()) == end
    assert records_between(start, end) == [SequenceRange("a", "11", "12"), SequenceRange("c", "1", "9")]
    assert records_between(end, end) == []


def test_a_stream_of_the_same_name_is_told_by_when_it_was_made() -> None:
    assert ShardReadLimit("s", 1_000_400).is_of(Stream("s", 1_000_000, 1))
    assert not ShardReadLimit("s", 1_005_000).is_of(Stream("s", 1_000_000, 1))
