"""What a flume source may say."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.connectors.base.registry import make_source
from millrace.connectors.flume import FlumeSource
from millrace.connectors.kafka.source import KafkaSource
from millrace.feeds.base.api import FEEDS
from millrace.feeds.flume import Flume
from millrace.pipeline.model import connection


def made(argument: Any = "logs", **options: Any) -> tuple[Any, list[tuple[str, str | None]]]:
    reader, mistakes = make_source(connection("flume", argument, {"format": "text", **options}))
    return reader, [(one.condition, one.option) for one in mistakes]


def test_it_is_a_kafka_source_with_a_feed() -> None:
    reader, mistakes = made(listen="0.0.0.0:5000", allow=["10.0.0.0/8", "192.168.1.7"], key="host", start="latest")
    assert mistakes == []
    assert isinstance(reader, KafkaSource)
    assert reader.resources() == ("topic logs",)
    filling = reader.filling()
    feed = FEEDS.load(filling.feed)(**filling.options)
    assert feed == Flume(host="0.0.0.0", port=5000, key="host", allow="10.0.0.0/8,192.168.1.7")  # noqa: S104
    assert filling.topic == "logs"


def test_an_address_of_this_machine_needs_nobody_named() -> None:
    for where in ("127.0.0.1:4141", "localhost:4141", "[::1]:4141"):
        reader, mistakes = made(listen=where)
        assert isinstance(reader, FlumeSource)
        assert mistakes == []
    assert reader.filling().options["host"] == "::1"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"argument": None}, ("option.missing", None)),
        ({"argument": ["a", "b"]}, ("option.invalid", "topic")),
        ({"argument": "no topic!"}, ("option.invalid", None)),
        ({"listen": "4141"}, ("option.invalid", "listen")),
        ({"listen": "127.0.0.1:many"}, ("option.invalid", "listen")),
        ({"listen": "127.0.0.1:70000"}, ("option.invalid", "listen")),
        ({"listen": "0.0.0.0:4141"}, ("option.missing", "listen")),
        ({"listen": "10.1.2.3:4141"}, ("option.missing", "listen")),
        ({"allow": ["10.0.0.1/8"]}, ("option.invalid", "allow")),
        ({"max_bytes": 0}, ("option.invalid", "max_bytes")),
        ({"pattern": "log.*"}, ("option.unknown", "pattern")),
    ],
)
def test_what_cannot_be_is_told(options: dict[str, Any], wrong: tuple[str, str | None]) -> None:
    assert wrong in made(**options)[1]
