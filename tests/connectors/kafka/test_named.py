"""Names in Kafka: no two sinks, sources or pipelines share a group or a transactional id."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import RunContext
from millrace.connectors.base.registry import CONNECTORS
from millrace.connectors.kafka.commit_ledger import sink_transactional_id
from millrace.connectors.kafka.sink import KafkaSink
from millrace.dead_letters import kafka_writer
from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget
from millrace.dead_letters.letter import DeadLetter
from millrace.dead_letters.writer import WriterTask
from millrace.engine.supervision.offset_commits import group_of
from millrace.pipeline.checks import check
from millrace.pipeline.loading.python import Pipeline

NOWHERE = Cluster("127.0.0.1:9")
PIPELINES = ("a", "a.b", "a.b.c", "a-b", "b", "c.d")
ELEMENTS = ("b", "c", "d", "b_c")
TOPICS = ("c", "b.c", "c.d", "d", "c.0")


def ledger(pipeline: str, query: str, topic: str, twin: int = 0) -> Any:
    context: Any = RunContext(None, lambda: NOWHERE, pipeline=pipeline, name=query, query=query, duplicate_index=twin)  # type: ignore[arg-type]
    return KafkaSink(topic=topic)._commit_ledger(context)


def test_sinks_have_ids_and_groups_of_their_own() -> None:
    sinks = [(p, q, t, twin) for p in PIPELINES for q in ELEMENTS for t in TOPICS for twin in (0, 1)]
    names = [ledger(*sink).name for sink in sinks]
    assert len(set(names)) == len(sinks)
    ids = [sink_transactional_id(ledger(*sink).name, task) for sink in sinks for task in (0, 1, 50)]
    assert len(set(ids)) == len(sinks) * 3


def test_a_topic_by_column_is_not_a_topic_of_that_name() -> None:
    context: Any = RunContext(None, lambda: NOWHERE, pipeline="p", name="q", query="q")  # type: ignore[arg-type]
    assert KafkaSink(topic_column="t")._commit_ledger(context).name != ledger("p", "q", "t").name


def test_dead_letters_have_ids_and_groups_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    class Stop(Exception):
        pass

    def lent(key: tuple[Any, str], *_: object) -> Any:
        opened.append(key[1])
        raise Stop

    monkeypatch.setattr(kafka_writer._COMMITTED, "borrow", lambda *_: _Nothing())
    monkeypatch.setattr(kafka_writer._PRODUCERS, "borrow", lent)
    sources = [(p, s, t) for p in PIPELINES for s in ELEMENTS for t in TOPICS]
    for pipeline, source, topic in sources:
        target = KafkaDeadLetterTarget(NOWHERE, pipeline, source)
        for partition in (0, 1):
            letter = DeadLetter(value=b"", topic=topic, partition=partition, offset=0, reason="")
            writer = target.open(WriterTask("q", 0, 0))
            writer.write([letter])
            with pytest.raises(Stop):
                writer.close()
    assert len(set(opened)) == len(sources) * 2


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def test_no_pipeline_has_the_groups_of_dead_letters() -> None:
    assert group_of("dead.p", "s") == KafkaDeadLetterTarget(NOWHERE, "p", "s").group
    found = [problem.condition for problem in check(Pipeline("dead.p").model(), CONNECTORS)]
    assert "name.invalid" in found
    assert "name.invalid" not in [problem.condition for problem in check(Pipeline("dead").model(), CONNECTORS)]
    possible = [name for name in (*PIPELINES, "dead") if not name.startswith("dead.")]
    lag = {group_of(pipeline, query) for pipeline in possible for query in ELEMENTS}
    dead = {KafkaDeadLetterTarget(NOWHERE, pipeline, source).group for pipeline in possible for source in ELEMENTS}
    assert not lag & dead
    assert all(one != other for one, other in combinations(sorted(dead), 2))
