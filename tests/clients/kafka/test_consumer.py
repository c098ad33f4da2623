"""Records out of a topic: from where, how many, and what a group remembers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from queue import Queue
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import (
    ReadRequest,
    committed_between,
    committed_records,
    count_committed,
    read_ranges,
    read_records,
    topic_ranges,
)
from millrace.clients.kafka.producer import Delivery, Producer, new_transactional_id
from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption, KafkaFailed, TopicGone, UnknownTopic

Put = Callable[..., object]
MOMENT = 1_700_000_000_000


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def taken(cluster: Cluster) -> Callable[..., list[Message]]:
    """Everything that a reading gives."""

    def take(topic: str, start: str | int | datetime = "earliest", **how: Any) -> list[Message]:
        return [message for batch in read_records(cluster, ReadRequest(topic, start, **how)) for message in batch]

    return take


@contextmanager
def reading(cluster: Cluster, *wanted: ReadRequest) -> Iterator[list[Future[list[Message]]]]:
    """Readings that go on in the background until the block ends."""

    def take(one: ReadRequest) -> list[Message]:
        return [message for batch in read_records(cluster, one) for message in batch]

    with ThreadPoolExecutor(len(wanted)) as pool:
        try:
            yield [pool.submit(take, one) for one in wanted]
        finally:
            for one in wanted:
                one.stop.set()


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def wait_for_members(cluster: Cluster, group: str, count: int) -> None:
    while not any(
        (one.name, one.state, len(one.members)) == (group, "stable", count)
        for one in consumer_groups.list_groups(cluster)
    ):
        pass


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", numbers(5)),
        (3, [b"3", b"4"]),
        (datetime.fromtimestamp((MOMENT + 2000) / 1000, UTC), [b"2", b"3", b"4"]),
        (datetime(1960, 1, 1, tzinfo=UTC), numbers(5)),
    ],
)
def test_where_reading_starts(
    taken: Callable[..., list[Message]], lane: str, put: Put, start: str | int | datetime, expected: list[bytes]
) -> None:
    put(lane, *(Record(b"%d" % number, timestamp=MOMENT + number * 1000) for number in range(5)))
    assert values(taken(lane, start, partition=0, most=len(expected))) == expected


def test_latest_is_only_what_comes_from_now_on(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, b"old")
    with reading(cluster, ReadRequest(lane, "latest", most=1)) as [found]:
        while not found.done():
            put(lane, b"new")
        assert values(found.result()) == [b"new"]


def test_only_the_chosen_partition(taken: Callable[..., list[Message]], topic: str, put: Put) -> None:
    put(topic, *(Record(b"%d" % number, partition=number % 3) for number in range(9)))
    assert values(taken(topic, partition=1, most=3)) == [b"1", b"4", b"7"]


def test_every_partition(taken: Callable[..., list[Message]], topic: str, put: Put) -> None:
    put(topic, *(Record(b"%d" % number, partition=number % 3) for number in range(9)))
    assert sorted(values(taken(topic, most=9))) == numbers(9)


@pytest.mark.parametrize("most", [1, 500, 501])
def test_not_one_record_more_than_asked_for(
    taken: Callable[..., list[Message]], lane: str, put: Put, most: int
) -> None:
    put(lane, *numbers(700))
    assert values(taken(lane, most=most)) == numbers(most)


def test_silence_ends_reading(taken: Callable[..., list[Message]], lane: str) -> None:
    assert taken(lane, timeout=0.1) == []


def test_a_set_event_ends_reading(cluster: Cluster, lane: str) -> None:
    one = ReadRequest(lane)
    with reading(cluster, one) as [found]:
        one.stop.set()
        assert found.result() == []


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"start": 0}, InvalidOption),
        ({"start": 99, "partition": 0}, InvalidOption),
        ({"start": 0, "partition": 0, "group": "g"}, InvalidOption),
        ({"start": datetime.now(UTC), "group": "g"}, InvalidOption),
        ({"group": ""}, InvalidOption),
        ({"group": "\udcff"}, InvalidOption),
        ({"partition": 9}, UnknownTopic),
    ],
)
def test_what_cannot_be_read(
    taken: Callable[..., list[Message]], topic: str, how: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        taken(topic, **how)


def test_an_unknown_topic_is_not_made(cluster: Cluster, taken: Callable[..., list[Message]], topic: str) -> None:
    with pytest.raises(UnknownTopic):
        taken(f"{topic}x")
    assert f"{topic}x" not in cluster.connect().topics


def test_a_group_goes_on_where_it_was(
    taken: Callable[..., list[Message]], cluster: Cluster, lane: str, put: Put, group: str
) -> None:
    put(lane, *numbers(10))
    assert values(taken(lane, group=group, most=4)) == numbers(4)
    assert consumer_groups.describe(cluster, group).positions[0].offset == 4
    assert values(taken(lane, group=group, most=6)) == numbers(10)[4:]
    assert consumer_groups.describe(cluster, group).lag == 0


def test_a_batch_that_was_not_asked_past_is_read_again(
    taken: Callable[..., list[Message]], cluster: Cluster, lane: str, put: Put, group: str
) -> None:
    put(lane, *numbers(10))
    assert len(taken(lane, group=group, most=4)) == 4
    with closing(read_records(cluster, ReadRequest(lane, "earliest", group=group, most=3))) as batches:
        assert next(batches)[0].value() == b"4"
    assert consumer_groups.describe(cluster, group).positions[0].offset == 4
    assert values(taken(lane, group=group, most=6)) == numbers(10)[4:]


def test_a_group_that_is_new_starts_where_told(
    taken: Callable[..., list[Message]], cluster: Cluster, lane: str, put: Put, group: str
) -> None:
    put(lane, b"old")
    with reading(cluster, ReadRequest(lane, "latest", group=group, most=1)) as [found]:
        wait_for_members(cluster, group, 1)
        while not found.done():
            put(lane, b"new")
        assert values(found.result()) == [b"new"]


def test_a_group_can_read_one_partition(taken: Callable[..., list[Message]], topic: str, put: Put, group: str) -> None:
    put(topic, *(Record(b"%d" % number, partition=number % 3) for number in range(9)))
    assert values(taken(topic, group=group, partition=2, most=2)) == [b"2", b"5"]
    assert values(taken(topic, group=group, partition=2, most=1)) == [b"8"]


def test_without_a_group_nothing_is_remembered(
    taken: Callable[..., list[Message]], cluster: Cluster, lane: str, put: Put
) -> None:
    put(lane, b"a")
    assert len(taken(lane, most=1)) == len(taken(lane, most=1)) == 1
    assert not [one.name for one in consumer_groups.list_groups(cluster) if lane in one.topics]


def test_members_of_a_group_share_the_partitions(cluster: Cluster, topic: str, put: Put, group: str) -> None:
    arrived: Queue[tuple[int, bytes | None]] = Queue()
    wanted = [ReadRequest(topic, "earliest", group=group) for _ in range(2)]

    def pass_on(number: int) -> None:
        for batch in read_records(cluster, wanted[number]):
            for message in batch:
                arrived.put((number, message.value()))

    with ThreadPoolExecutor(2) as pool:
        try:
            both = [pool.submit(pass_on, number) for number in range(2)]
            wait_for_members(cluster, group, 2)
            put(topic, *(Record(b"%d" % number, partition=number % 3) for number in range(30)))
            found = [arrived.get(timeout=60) for _ in range(30)]
        finally:
            for one in wanted:
                one.stop.set()
    assert [one.result() for one in both] == [None, None]
    assert {reader for reader, _ in found} == {0, 1}
    assert sorted(value or b"" for _, value in found) == sorted(numbers(30))
    assert arrived.empty()


def test_a_member_without_partitions_ends_in_time_too(
    taken: Callable[..., list[Message]], cluster: Cluster, lane: str, group: str
) -> None:
    holder = Consumer(cluster.config(client_id="a-first-in-the-alphabet", group_id=group))
    holder.subscribe([lane])
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            holder.poll(0.1)

    with closing(holder), ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        try:
            wait_for_members(cluster, group, 1)
            assert taken(lane, group=group, timeout=0.1) == []
        finally:
            over.set()


@pytest.mark.parametrize("how", [{}, {"group": "g"}])
def test_a_topic_that_is_deleted_while_it_is_read_is_gone(
    cluster: Cluster, lane: str, put: Put, group: str, how: dict[str, str]
) -> None:
    put(lane, b"a")
    batches = read_records(cluster, ReadRequest(lane, "earliest", group=group if how else None))
    with closing(batches):
        assert values(next(batches)) == [b"a"]
        topics.delete(cluster, [lane])
        with pytest.raises(TopicGone) as raised:
            next(batches)
    assert raised.value.condition == "kafka.topic-gone"


def test_records_of_an_open_transaction_are_kept_back(
    taken: Callable[..., list[Message]], cluster: Cluster, lane: str, put: Put
) -> None:
    producer = Producer(cluster, lane, Delivery(transaction=new_transactional_id()))
    producer.begin()
    producer.send([Record(b"open")])
    producer.flush()
    put(lane, b"after")
    assert values(taken(lane, committed=False, most=2)) == [b"open", b"after"]
    with reading(cluster, ReadRequest(lane, "earliest", most=2)) as [found]:
        producer.commit()
        assert values(found.result()) == [b"open", b"after"]
    producer.close()


@pytest.fixture
def transactions(cluster: Cluster, lane: str) -> Iterator[ConfluentProducer]:
    """A record, an aborted one, a committed one, and one in a transaction that stays open."""
    writer = ConfluentProducer(cluster.config(transactional_id=new_transactional_id()))
    writer.init_transactions(30)
    for value, end in ((b"a", writer.commit_transaction), (b"b", writer.abort_transaction), (b"open", None)):
        writer.begin_transaction()
        writer.produce(lane, value)
        writer.flush(30)
        if end:
            end(30)
    yield writer
    with suppress(KafkaException):
        writer.abort_transaction(30)


def test_a_bounded_read_ends_before_a_transaction_that_is_open(
    cluster: Cluster, lane: str, put: Put, transactions: ConfluentProducer
) -> None:
    put(lane, b"after")
    assert [one.value() for batch in committed_records(cluster, [lane]) for one in batch] == [b"a"]
    assert count_committed(cluster, [lane]) == {(lane, 0): 1}
    ranges = topic_ranges(cluster, [lane])
    found = [one.value() for batch in read_ranges(cluster, ranges, require_all=False) for one in batch]
    assert found == [b"a"]


def test_a_bounded_read_waits_for_a_transaction_if_it_must_have_all(
    cluster: Cluster, lane: str, transactions: ConfluentProducer
) -> None:
    ranges = topic_ranges(cluster, [lane])
    with pytest.raises(KafkaFailed) as raised:
        list(read_ranges(cluster, ranges, open_transaction_timeout_s=0.5))
    assert f"{lane}[0]" in raised.value.message
    batches = read_ranges(cluster, ranges)
    found = [one.value() for one in next(batches)]
    transactions.commit_transaction(30)
    found += [one.value() for batch in batches for one in batch]
    assert found == [b"a", b"open"]


def test_a_bounded_read_gives_the_records_of_its_ranges_and_no_others(cluster: Cluster, topic: str, put: Put) -> None:
    put(topic, *(Record(b"%d" % number, partition=number % 3) for number in range(30)))
    ranges = {(topic, 0): (2, 4), (topic, 2): (9, 10)}
    found = sorted(one.value() or b"" for batch in read_ranges(cluster, ranges) for one in batch)
    assert found == [b"29", b"6", b"9"]
    assert list(read_ranges(cluster, {})) == []


def test_a_bounded_read_ends_at_its_time_limit(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, b"a")
    batches = read_ranges(cluster, {(lane, 0): (0, 5)}, time_limit_s=1.0)
    assert [one.value() for batch in batches for one in batch] == [b"a"]


def test_a_bounded_read_of_part_of_a_topic(cluster: Cluster, lane: str, put: Put) -> None:
    put(lane, *(Record(b"%d" % number, timestamp=MOMENT + number * 1000) for number in range(5)))
    end = datetime.fromtimestamp((MOMENT + 3000) / 1000, UTC)
    assert [one.value() for batch in committed_between(cluster, lane, 1, end) for one in batch] == [b"1", b"2"]
    assert list(committed_between(cluster, lane, end, "earliest")) == []
