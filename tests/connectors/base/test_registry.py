"""Options of sources and sinks: what is right becomes a connector, what is wrong is told all at once."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.connectors.base.api import READERS, WRITERS
from millrace.connectors.base.registry import make_reader, make_writer, sink_facts, source_facts
from millrace.connectors.kafka.sink import KafkaSink
from millrace.connectors.kafka.source import KafkaSource
from millrace.pipeline.model import connection


def conditions(connector: str, argument: Any = None, **options: Any) -> list[tuple[str, str | None]]:
    """What is wrong with a source."""
    return [(one.condition, one.option) for one in make_reader(connection(connector, argument, options))[1]]


def test_every_connector_that_the_issue_names_is_there() -> None:
    assert {"kafka", "files", "socket", "rate", "spark"} <= set(READERS.names())
    assert {"console", "memory", "files", "kafka", "foreach"} <= set(WRITERS.names())


def test_options_become_a_source() -> None:
    reader, mistakes = make_reader(connection("kafka", "posts", {"schema": "id string", "include": ["timestamp"]}))
    assert mistakes == []
    assert isinstance(reader, KafkaSource)
    assert reader.topic == ("posts",)
    columns = reader.columns()
    assert columns is not None
    assert columns.ddl() == "id string, timestamp timestamp"


def test_text_keeps_what_kafka_knows_of_a_record() -> None:
    reader, _ = make_reader(connection("kafka", "lines", {"format": "text"}))
    assert reader is not None
    columns = reader.columns()
    assert columns is not None
    assert columns.names == ("value", "key", "topic", "partition", "offset", "timestamp")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"schema": "id string", "strat": "earliest"}, [("option.unknown", "strat")]),
        ({}, [("schema.missing", None)]),
        ({"schema": "id strng"}, [("schema.invalid", "schema")]),
        ({"schema": "id string", "format": "jsno"}, [("option.invalid", "format")]),
        ({"schema": "id string", "on_bad": "ignore"}, [("option.invalid", "on_bad")]),
        ({"schema": "id string", "start": "noon"}, [("option.invalid", "start")]),
        ({"schema": "id string", "max_per_batch": "many"}, [("option.invalid", "max_per_batch")]),
        ({"schema": "id string", "max_per_batch": 0}, [("option.invalid", "max_per_batch")]),
        ({"schema": "id string", "include": ["tiemstamp"]}, [("option.invalid", "include")]),
        ({"schema": "topic string", "include": ["topic"]}, [("option.invalid", "include")]),
        ({"schema": "id string", "pattern": "p.*"}, [("option.missing", None)]),
        ({"schema": "id string", "config": {"sasl.jaas.config": "x"}}, [("option.invalid", "config")]),
        (
            {"schema": "id string", "config": {"bootstrap.servers": "x", "client.id": "y"}},
            [("option.invalid", "config")],
        ),
    ],
)
def test_mistakes_in_a_source(options: dict[str, Any], expected: list[tuple[str, str | None]]) -> None:
    assert conditions("kafka", "posts", **options) == expected


def test_several_mistakes_are_told_at_once() -> None:
    assert len(conditions("kafka", "posts", strat=1, on_bad="no", max_per_batch="x")) == 3


def test_an_unknown_connector_is_guessed() -> None:
    facts = source_facts(connection("kafak", "posts"), False)
    assert [one.condition for one in facts.mistakes] == ["connector.unknown"]
    assert "kafka" in (facts.mistakes[0].hint or "")


def test_a_sink_knows_its_modes_and_its_guarantee() -> None:
    files = sink_facts(connection("files", "out"), "rows")
    assert files.modes == ("append",)
    assert "exactly once" in files.guarantee
    assert files.realtime is not None
    assert sink_facts(connection("kafka", "out"), "rows").realtime is None
    assert sink_facts(connection("foreach", print), "rows").realtime is None
    assert sink_facts(connection("foreach", print, {"batch": True}), "rows").realtime is not None


def test_a_key_may_be_one_column_or_several() -> None:
    for given, kept in (("tag", ("tag",)), (["a", "b"], ("a", "b"))):
        writer, mistakes = make_writer(connection("kafka", "out", {"key": given}))
        assert mistakes == []
        assert isinstance(writer, KafkaSink)
        assert writer.key == kept


def test_what_can_only_be_followed_is_no_static_table() -> None:
    facts = source_facts(connection("rate", 5), True)
    assert [one.condition for one in facts.mistakes] == ["source.not-static"]


def test_foreach_needs_something_to_call() -> None:
    assert [one.condition for one in sink_facts(connection("foreach", 5), "rows").mistakes] == ["option.invalid"]
    assert [one.condition for one in sink_facts(connection("foreach", "no:thing"), "rows").mistakes] == [
        "option.invalid"
    ]
    assert sink_facts(connection("foreach", print), "rows").mistakes == ()
