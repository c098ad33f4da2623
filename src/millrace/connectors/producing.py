"""The properties that a Kafka sink is given, tried before a run on a client that connects to nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from confluent_kafka import KafkaException, Producer

from millrace.pipeline.facts import Mistake

_OTHER_NAMES = {"max.request.size": "message.max.bytes", "delivery.timeout.ms": "message.timeout.ms"}
"""What Java's producer calls otherwise than the client that writes in transactions."""


def in_our_names(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The properties in the names of the client that writes in transactions."""
    return {_OTHER_NAMES.get(key, key): value for key, value in (config or {}).items()}


def bad_properties(config: Mapping[str, Any] | None) -> Iterator[Mistake]:
    """Each one that the client does not know, or whose value it does not take."""
    for name, value in in_our_names(config).items():
        problem = _problem(name, str(value))
        if problem:
            hint = "it takes librdkafka's names and values; those of Java go with guarantee: at-least-once"
            yield Mistake("option.invalid", f"the Kafka producer does not take {name}", "config", hint, problem)


@lru_cache(256)
def _problem(name: str, value: str) -> str | None:
    try:
        Producer({name: value, "log_level": 0})
    except KafkaException as error:
        told: str = error.args[0].str().strip()
        # What else it says is of properties that only make sense together, or of files that are elsewhere.
        return told if "configuration property" in told.lower() else None
    return None
