"""A lane that is kept for long, without a broker: what its client is told is of the transaction that it is told in."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.transactions import TransactionalProducer

DENIED = KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error")


class Slow:
    """A client whose commits are answered at the second attempt."""

    def __init__(self, lane: TransactionalProducer, told: list[KafkaError]) -> None:
        self.lane, self.told = lane, told
        self.attempts = 0

    def begin_transaction(self) -> None:
        self.attempts = 0

    def commit_transaction(self, _: float) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    def abort_transaction(self, _: float) -> None:
        self.attempts = -1

    def flush(self, _: float) -> None:
        pass

    def poll(self, _: float) -> None:
        self.lane._errors.extend(self.told)


def opened(*told: KafkaError) -> tuple[TransactionalProducer, Slow]:
    """A lane that was refused before, and whose client is told this now."""
    lane = TransactionalProducer.__new__(TransactionalProducer)
    client = Slow(lane, list(told))
    lane._cluster, lane._timeout_s, lane._errors, lane._failures = Cluster("127.0.0.1:9"), 60.0, [DENIED], []
    lane._client = client  # type: ignore[assignment]
    return lane, client


def test_a_refusal_of_long_ago_does_not_fail_a_commit_that_is_late() -> None:
    lane, client = opened()
    with lane.transaction():
        pass
    assert client.attempts == 2


def test_a_refusal_of_now_is_told_at_once() -> None:
    lane, client = opened(DENIED)
    with pytest.raises(KafkaException, match="authentication"), lane.transaction():
        pass
    assert client.attempts == -1
