"""Records into a topic: what arrives, what is counted, what is promised."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from millrace.clients.kafka import producer as producers
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import COMPRESSIONS, Delivery, Producer, new_transactional_id, request_producer_id
from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption, KafkaFailed, KafkaUnreachable, MillraceError, NotDelivered, RecordRefused
from millrace.services.process import free_port

Drain = Callable[..., list[Message]]
TOO_LARGE = Record(random.Random(1).randbytes(2_000_000))  # it does not compress


@pytest.fixture
def nowhere() -> Cluster:
    """An address at which nobody listens."""
    return Cluster(f"127.0.0.1:{free_port()}", timeout=0.5)


@pytest.fixture
def transaction(cluster: Cluster, lane: str) -> Iterator[Callable[..., Producer]]:
    """A producer whose transaction has begun."""
    producers: list[Producer] = []

    def begin(id_: str | None = None) -> Producer:
        producers.append(Producer(cluster, lane, Delivery(transaction=id_ or new_transactional_id())))
        producers[-1].begin()
        return producers[-1]

    yield begin
    for producer in producers:
        producer.give_up()
        producer.close()


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_records_arrive_whole(cluster: Cluster, topic: str, drain: Drain) -> None:
    headers = (("a", b"1"), ("a", b"2"), ("none", None))
    producer = Producer(cluster, topic)
    producer.send([Record(b"v", b"k", 1_700_000_000_000, headers, 2), Record(None, b"gone", partition=1)])
    producer.close()
    tombstone, whole = sorted(drain(topic), key=lambda message: message.partition())
    assert (whole.value(), whole.key(), whole.partition()) == (b"v", b"k", 2)
    assert whole.timestamp()[1] == 1_700_000_000_000
    assert whole.headers() == list(headers)
    assert (tombstone.value(), tombstone.key(), tombstone.partition()) == (None, b"gone", 1)
    assert (producer.delivered, producer.failed, producer.waiting()) == (2, 0, 0)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(cluster: Cluster, lane: str, drain: Drain, acks: str) -> None:
    producer = Producer(cluster, lane, Delivery(acks))
    producer.send([Record(b"a"), Record(b"b")])
    producer.close()
    assert producer.delivered == 2
    assert values(drain(lane)) == [b"a", b"b"]


def test_every_compression(cluster: Cluster, lane: str, drain: Drain) -> None:
    for compression in COMPRESSIONS:
        producer = Producer(cluster, lane, Delivery(idempotence=False, compression=compression))
        producer.send([Record(compression.encode() * 100)])
        producer.close()
    assert values(drain(lane)) == [compression.encode() * 100 for compression in COMPRESSIONS]


def test_records_of_a_key_stay_in_order(cluster: Cluster, topic: str, drain: Drain) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, b"key-%d" % (number % 7)) for number in range(7000)])
    producer.close()
    found = sorted(drain(topic), key=lambda message: message.key() or b"")  # keeps the order within a key
    assert len(found) == producer.delivered == 7000
    for key, messages in groupby(found, key=lambda message: message.key()):
        number = int(str(key, "ascii").removeprefix("key-"))
        assert [int(message.value() or b"") for message in messages] == list(range(number, 7000, 7))


@pytest.mark.parametrize(
    "choices",
    [
        {"acks": "2"},
        {"acks": "0", "idempotence": True},
        {"acks": "1", "transaction": "t"},
        {"idempotence": False, "transaction": "t"},
        {"compression": "zip"},
        {"timeout": 0.0},
        {"timeout": 1e9},
        {"transaction": ""},
        {"transaction": "\udcff"},
    ],
)
def test_contradictions(choices: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Delivery(**choices)


def test_a_record_that_is_too_large_fails_alone(cluster: Cluster, lane: str, drain: Drain) -> None:
    producer = Producer(cluster, lane)
    producer.send([Record(b"a"), TOO_LARGE, Record(b"b")])
    producer.close()
    assert (producer.delivered, producer.failed) == (2, 1)
    assert producer.failure().condition == "kafka.not-delivered"
    assert isinstance(producer.reason, RecordRefused)
    assert values(drain(lane)) == [b"a", b"b"]


def test_a_partition_that_is_not_there_fails(cluster: Cluster, lane: str) -> None:
    producer = Producer(cluster, lane)
    producer.send([Record(b"a", partition=9)])
    producer.close()
    assert (producer.delivered, producer.failed) == (0, 1)


def test_done_is_called_once_a_send(cluster: Cluster, lane: str) -> None:
    producer = Producer(cluster, lane)
    told: list[tuple[str, MillraceError | None]] = []
    producer.send([Record(b"a"), Record(b"b")], lambda reason: told.append(("good", reason)))
    producer.send([Record(b"c"), TOO_LARGE, TOO_LARGE], lambda reason: told.append(("bad", reason)))
    producer.send([], lambda reason: told.append(("empty", reason)))
    producer.close()
    assert sorted(name for name, _ in told) == ["bad", "empty", "good"]
    reasons = dict(told)
    assert reasons["good"] is reasons["empty"] is None
    assert isinstance(reasons["bad"], RecordRefused)


def test_deliveries_are_told_while_nothing_is_sent(cluster: Cluster, lane: str) -> None:
    producer = Producer(cluster, lane)
    settled = threading.Event()
    producer.send([Record(b"a")], lambda _: settled.set())
    assert settled.wait(60)
    producer.close()


def test_records_that_nobody_takes_in_time_fail(nowhere: Cluster) -> None:
    producer = Producer(nowhere, "topic", Delivery(timeout=0.2))
    producer.send([Record(b"a")])
    producer.close()
    assert (producer.delivered, producer.failed) == (0, 1)
    assert producer.reason is not None


def test_records_that_are_given_up_fail(nowhere: Cluster) -> None:
    producer = Producer(nowhere, "topic")
    producer.send([Record(b"a"), Record(b"b")])
    assert producer.waiting()
    producer.give_up()
    assert (producer.waiting(), producer.delivered, producer.failed) == (0, 0, 2)
    producer.close()


def test_a_producer_asks_for_its_id_when_it_has_something_to_send(
    nowhere: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(producers, "request_producer_id", lambda _client, topic, *_: asked.put(topic))
    Producer(nowhere, "idle").close()
    producer = Producer(nowhere, "topic")
    producer.send([Record(b"a")])
    assert asked.get(timeout=60) == "topic"  # of the idle one: nothing, it would create the topic
    producer.give_up()
    producer.close()
    assert asked.empty()


@pytest.mark.parametrize(("answers", "closed", "calls"), [(True, False, 2), (False, False, 1), (True, True, 1)])
def test_the_request_for_an_id_ends_at_the_first_failure_and_when_closed(
    answers: bool, closed: bool, calls: int
) -> None:
    asked: list[str] = []

    class Client:
        def list_topics(self, topic: str, timeout: float) -> None:
            asked.append(topic)
            if not answers:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    request_producer_id(Client(), "topic", lambda: closed and bool(asked))  # type: ignore[arg-type]
    assert asked == ["topic"] * calls


def test_a_transaction_with_nobody_is_unreachable(nowhere: Cluster) -> None:
    producer = Producer(nowhere, "topic", Delivery(transaction="t"))
    with pytest.raises(KafkaUnreachable):
        producer.begin()
    producer.close()


def test_a_committed_transaction_is_seen_by_all(transaction: Callable[..., Producer], lane: str, drain: Drain) -> None:
    producer = transaction()
    producer.send([Record(b"a"), Record(b"b")])
    producer.commit()
    assert values(drain(lane)) == values(drain(lane, committed=False)) == [b"a", b"b"]


def test_an_aborted_transaction_is_seen_only_by_readers_of_everything(
    transaction: Callable[..., Producer], lane: str, drain: Drain
) -> None:
    producer = transaction()
    producer.send([Record(b"a"), Record(b"b")])
    producer.flush()
    producer.abort()
    assert values(drain(lane)) == []
    assert values(drain(lane, committed=False)) == [b"a", b"b"]


def test_one_producer_does_several_transactions(transaction: Callable[..., Producer], lane: str, drain: Drain) -> None:
    producer = transaction()
    producer.send([Record(b"a")])
    producer.commit()
    producer.begin()
    producer.send([Record(b"b")])
    producer.abort()
    producer.begin()
    producer.send([Record(b"c")])
    producer.commit()
    assert values(drain(lane)) == [b"a", b"c"]


def test_a_transaction_with_a_failed_record_is_not_committed(
    transaction: Callable[..., Producer], lane: str, drain: Drain
) -> None:
    producer = transaction()
    producer.send([Record(b"a"), TOO_LARGE, Record(b"b")])
    with pytest.raises(NotDelivered):
        producer.commit()
    assert values(drain(lane)) == []


def test_who_is_fenced_cannot_commit(transaction: Callable[..., Producer], lane: str, drain: Drain) -> None:
    id_ = new_transactional_id()
    first = transaction(id_)
    first.send([Record(b"first")])
    first.flush()
    second = transaction(id_)
    with pytest.raises(KafkaFailed) as raised:
        first.commit()
    assert raised.value.condition == "kafka.failed"
    assert "transactional id" in (raised.value.hint or "")
    second.send([Record(b"second")])
    second.commit()
    assert values(drain(lane)) == [b"second"]


def test_who_is_fenced_cannot_send(
    transaction: Callable[..., Producer], lane: str, drain: Drain, capfd: pytest.CaptureFixture[str]
) -> None:
    id_ = new_transactional_id()
    first = transaction(id_)
    transaction(id_).abort()
    told: list[MillraceError | None] = []
    first.send([Record(b"a"), Record(b"b")], told.append)
    with pytest.raises(NotDelivered) as raised:
        first.commit()
    assert "transactional id" in (raised.value.hint or "")
    assert [reason is None for reason in told] == [False]
    assert values(drain(lane)) == []
    assert capfd.readouterr().err == ""
