"""Aborting a transaction: a client that misses a record is asked again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace.clients.kafka.producer import abort_transaction

LATE = KafkaError(KafkaError._TIMED_OUT, "not within its time", retriable=True)
FENCED = KafkaError(KafkaError._FENCED, "somebody else", fatal=True)


class Client:
    """Raises what it is told to, an error a call."""

    def __init__(self, *raises: KafkaError) -> None:
        self.calls: list[float] = []
        self._raises = list(raises)

    def abort_transaction(self, seconds: float) -> None:
        self.calls.append(seconds)
        if self._raises:
            raise KafkaException(self._raises.pop(0))


def test_it_is_asked_again_while_there_is_time() -> None:
    client: Any = Client(LATE, LATE)
    abort_transaction(client, 60.0)
    assert len(client.calls) == 3
    assert max(client.calls) < 1, "an attempt that has missed a record would last as long as it may"


def test_it_ends_with_its_time() -> None:
    client: Any = Client(*[LATE] * 5)
    with pytest.raises(KafkaException):
        abort_transaction(client, 0.0)
    assert len(client.calls) == 1


def test_what_cannot_be_is_not_asked_again() -> None:
    client: Any = Client(FENCED)
    with pytest.raises(KafkaException):
        abort_transaction(client, 60.0)
    assert len(client.calls) == 1
