"""Options of sources and sinks: what is right becomes a connector, what is wrong is told all at once."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.connectors.base.api import SINKS, SOURCES
from millrace.connectors.base.registry import (
    make_sink,
    make_source,
    sink_facts,
    sink_forms,
    source_facts,
    source_forms,
)
from millrace.connectors.kafka.sink import KafkaSink
from millrace.connectors.kafka.source import KafkaSource
from millrace.errors import deprecation_notice
from millrace.pipeline.model import connection


def conditions(connector: str, argument: Any = None, **options: Any) -> list[tuple[str, str | None]]:
    """What is wrong with a source."""
    return [(one.condition, one.option) for one in make_source(connection(connector, argument, options))[1]]


def test_every_connector_that_the_issue_names_is_there() -> None:
    assert {"kafka", "files", "socket", "rate", "spark"} <= set(SOURCES.names())
    assert {"console", "memory", "files", "kafka", "foreach"} <= set(SINKS.names())


def test_options_become_a_source() -> None:
    reader, mistakes = make_source(connection("kafka", "posts", {"schema": "id string", "include": ["timestamp"]}))
    assert mistakes == []
    assert isinstance(reader, KafkaSource)
    assert reader.topic == ("posts",)
    columns = reader.columns()
    assert columns is not None
    assert columns.ddl() == "id string, timestamp timestamp"


def test_text_keeps_what_kafka_knows_of_a_record() -> None:
    reader, _ = make_source(connection("kafka", "lines", {"format": "text"}))
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
        writer, mistakes = make_sink(connection("kafka", "out", {"key": given}))
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


def test_deprecated_names_and_values_still_work_and_are_reported() -> None:
    old = connection("kafka", "posts", {"schema": "id string", "lost": "go_on", "on_bad": "dead"})
    reader, mistakes = make_source(old)
    assert isinstance(reader, KafkaSource)
    assert (mistakes, reader.continues_on_data_loss, reader.keeps_dead_letters) == ([], True, True)
    notices = source_facts(old, False).deprecated
    assert [(one.condition, one.option) for one in notices] == [
        ("option.deprecated", "lost"),
        ("option.deprecated", "on_bad"),
    ]
    assert notices[0].message == deprecation_notice("lost: go_on", "on_data_loss: continue")
    current = connection("kafka", "posts", {"schema": "id string", "on_data_loss": "continue"})
    assert source_facts(current, False).deprecated == ()


def test_a_sinks_deprecated_option() -> None:
    old = connection("cassandra", "k.t", {"patience": "1m"})
    assert [one.message.partition(" is ")[0] for one in sink_facts(old, "t").deprecated] == ["patience"]
    writer, mistakes = make_sink(old)
    assert (getattr(writer, "retry_timeout", None), mistakes) == (60.0, [])


def test_mistakes_in_an_option_are_found_at_the_name_that_the_file_has() -> None:
    assert conditions("kafka", "posts", schema="id string", lost="never") == [("option.invalid", "lost")]
    both = {"lost": "fail", "on_data_loss": "continue"}
    assert [one for one, _ in conditions("kafka", "posts", schema="id string", **both)] == ["option.invalid"]


def test_deprecated_names_are_in_no_schema() -> None:
    listed = {option.name for form in (*source_forms(), *sink_forms()) for option in form.options}
    assert {"on_data_loss", "retry_timeout"} <= listed
    assert not {"lost", "patience"} & listed
