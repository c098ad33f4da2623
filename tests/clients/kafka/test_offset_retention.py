"""How long a cluster keeps a group's offsets: as it says, or as is safe where it does not say."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millrace.clients.kafka import offsets
from millrace.clients.kafka.cluster import Cluster


class Asked(Cluster):
    """A cluster with one broker, whose settings are given."""

    answer: Future[dict[str, Any]]

    def connect(self) -> Any:
        return SimpleNamespace(brokers={1: None})

    def admin(self) -> Any:
        return SimpleNamespace(describe_configs=lambda wanted: {wanted[0]: self.answer})


def kept(settings: dict[str, Any] | KafkaError) -> float:
    cluster = Asked("127.0.0.1:9")
    answer: Future[dict[str, Any]] = Future()
    if isinstance(settings, KafkaError):
        answer.set_exception(KafkaException(settings))
    else:
        answer.set_result(settings)
    object.__setattr__(cluster, "answer", answer)
    return offsets.offset_retention_s(cluster)


def test_as_long_as_the_broker_says() -> None:
    assert kept({"offsets.retention.minutes": SimpleNamespace(value="10080")}) == 7 * 24 * 3600


@pytest.mark.parametrize("settings", [{}, KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)])
def test_a_day_where_nobody_may_look_at_the_broker(settings: dict[str, Any] | KafkaError) -> None:
    """A run that was killed goes on all the same: who may write need not have the rights of who administers."""
    assert kept(settings) == 24 * 3600
