"""Topics, their records and their readers."""

from __future__ import annotations

import threading
from typing import Any

from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import TopicTail
from millrace.clients.kafka.record import Record
from millrace.dashboard.kafka import tail
from millrace.dashboard.kafka.tail import some_records
from millrace.dashboard.kafka.topics import Topics
from millrace.telemetry.channels import RowBuffer

from .conftest import Put


def test_a_topic_as_kafka_describes_it(cluster: Cluster, topic: str, put: Put) -> None:
    put(topic, *(Record(b"x", partition=number) for number in (0, 0, 1)))
    consumer_groups.apply_reset(cluster, f"readers-{topic}", [consumer_groups.OffsetChange(topic, 0, None, 1)])
    looking = Topics(cluster)
    before = {one["name"]: one for one in looking.look()}[topic]
    (described,) = topics.describe(cluster, [topic])
    told = [(one["id"], one["leader"], one["start"], one["end"]) for one in before["partitions"]]
    assert told == [(one.id, one.leader, one.first, one.end) for one in described.partitions]
    assert before["groups"] == [{"group": f"readers-{topic}", "state": "empty", "lag": 1}]
    assert (before["rate"], before["internal"]) == (None, False)
    put(topic, b"x")
    after = {one["name"]: one for one in looking.look()}
    assert after[topic]["rate"] > 0
    assert after["__consumer_offsets"]["internal"] is True


def follow(cluster: Cluster, topic: str, ring: RowBuffer) -> tuple[threading.Event, threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=tail.follow, args=(cluster, topic, ring, stop))
    thread.start()
    return stop, thread


def wait_for_rows(ring: RowBuffer, many: int) -> list[dict[str, Any]]:
    waiting = threading.Event()
    while len(rows := ring.newest()) < many:
        waiting.wait(0.02)
    return rows


def test_a_tail_shows_what_was_there_and_what_comes(cluster: Cluster, topic: str, put: Put) -> None:
    markup, binary, long = "<script>alert(1)</script>\x00\u202e".encode(), b"\xff\xfe\x00", "ü".encode() * 500_000
    put(topic, *(Record(f"{number}".encode(), partition=0) for number in range(30)))
    ring = RowBuffer(tail.KEPT)
    stop, thread = follow(cluster, topic, ring)
    try:
        assert [row["value"] for row in wait_for_rows(ring, 20)] == [str(number) for number in range(10, 30)]
        put(topic, Record(markup, b"k", 5, (("h", b"v"), ("n", None)), 1))
        put(topic, Record(binary, partition=1), Record(None, partition=1))
        first, second, third = wait_for_rows(ring, 23)[20:]
        assert (first["value"], first["key"], first["headers"]) == (markup.decode(), "k", {"h": "v", "n": None})
        assert (first["time"], first["partition"], first["offset"], first["binary"]) == (5, 1, 0, False)
        assert (second["value"], second["binary"]) == ("ff fe 00", True)
        assert (third["value"], third["binary"]) == (None, False)
        put(topic, Record(long, partition=2))
        last = wait_for_rows(ring, 24)[23]
        assert (last["cut"], last["binary"], last["value"]) == (True, False, "ü" * 2048)
    finally:
        stop.set()
        thread.join()


class _Record:
    def __init__(self, number: int) -> None:
        self.number = number


def test_more_than_the_eye_can_follow_is_counted_and_left_out() -> None:
    sieve = tail.TailFilter(100)
    got: Any = [_Record(number) for number in range(1000)]
    shown = sieve.take(got, 0.0)
    assert [one.number for one, _ in shown] == list(range(900, 1000))  # type: ignore[attr-defined]
    assert [skipped for _, skipped in shown] == [900] + [0] * 99
    assert sieve.take(got[:7], 0.0) == []
    (one, skipped), *_ = sieve.take(got[:5], 0.02)
    assert (one.number, skipped) == (3, 7 + 3)  # type: ignore[attr-defined]


def test_a_topic_that_is_too_fast_is_gone_on_with_at_its_newest_records(cluster: Cluster, topic: str, put: Put) -> None:
    put(topic, *(Record(f"{number}".encode(), partition=0) for number in range(200)))
    reading = {(topic, number): 0 for number in range(3)}
    with TopicTail(cluster, reading) as following:
        assert tail.catch_up(cluster, topic, following, reading, most=1000) == 0
        assert tail.catch_up(cluster, topic, following, reading, most=100) == 180
        assert reading[topic, 0] == 180
        got: list[Any] = []
        while len(got) < 20:
            got += following.take(0.1)
        assert [one.offset() for one in got] == list(range(180, 200))
    sieve = tail.TailFilter(100)
    sieve.skip(180)
    assert [skipped for _, skipped in sieve.take(got, 0.0)] == [180] + [0] * 19


def test_records_for_one_question(cluster: Cluster, topic: str, put: Put) -> None:
    put(topic, *(Record(f"{number}".encode(), partition=number % 3, timestamp=1000 + number) for number in range(9)))
    assert [one["value"] for one in some_records(cluster, topic, "newest", 4)] == ["5", "6", "7", "8"]
    assert len(some_records(cluster, topic, "earliest", 100)) == 9
    assert len(some_records(cluster, topic, "earliest", 5)) == 5
    assert {one["value"] for one in some_records(cluster, topic, "1970-01-01T00:00:01.006Z", 10)} == {"6", "7", "8"}
