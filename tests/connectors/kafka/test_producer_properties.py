"""The properties of a Kafka sink, tried before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.connectors.base.registry import CONNECTORS, make_sink, sink_of
from millrace.connectors.kafka.sink import bad_properties, in_our_names
from millrace.errors import InvalidDefinition
from millrace.pipeline.checks import check
from millrace.pipeline.loading import load
from millrace.pipeline.model import connection

YAML = """name: configured
sources:
  lines: {kafka: lines, format: text}
sinks:
  - from: lines
    kafka: out
    format: text
    config: {linger: 5}
"""


@pytest.mark.parametrize(
    "config",
    [
        {"linger.ms": 5},
        {"compression.type": "zstd", "batch.size": 100_000},
        {"max.request.size": 5_000_000, "delivery.timeout.ms": 30_000},
        {"security.protocol": "SASL_SSL", "ssl.ca.location": "/on/another/machine.pem"},
        {},
    ],
)
def test_what_the_client_takes(config: dict[str, Any]) -> None:
    assert list(bad_properties(config)) == []


@pytest.mark.parametrize(
    "config", [{"linger": 5}, {"linger.ms": "soon"}, {"linger.ms": -1}, {"compression.type": "zip"}]
)
def test_what_it_does_not_take_is_told_by_its_name(config: dict[str, Any]) -> None:
    (found,) = bad_properties(config)
    assert (found.condition, found.option) == ("option.invalid", "config")
    assert next(iter(config)) in found.message
    assert "configuration property" in str(found.why).lower()


def test_javas_names_are_ours() -> None:
    assert in_our_names({"max.request.size": 1, "linger.ms": 2}) == {"message.max.bytes": 1, "linger.ms": 2}


def test_sparks_own_sink_takes_what_java_takes() -> None:
    _, mistakes = make_sink(connection("kafka", "out", {"config": {"buffer.memory": 1}, "guarantee": "at-least-once"}))
    assert mistakes == []


def test_check_and_run_tell_the_place(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(YAML)
    pipeline = load(str(path))
    (problem,) = check(pipeline, CONNECTORS)
    assert (problem.condition, problem.place and problem.place.line) == ("option.invalid", 8)
    with pytest.raises(InvalidDefinition) as raised:
        sink_of(pipeline.sinks[0])
    assert raised.value.place
    assert raised.value.place.file == str(path)
    assert "linger" in raised.value.message
