"""Two topics compared, and the alias that leads to one of them, on a real broker."""

from __future__ import annotations

from collections.abc import Iterable

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.kafka import generation_alias
from millrace.connectors.kafka.generation_alias import GenerationAlias
from millrace.engine.replay.compare import Comparison, Difference, compare_topics

Rows = Iterable[tuple[bytes | None, bytes | None]]


def both(cluster: Cluster, topic: str, old: Rows, new: Rows, *, newest: bool) -> Comparison:
    other = f"{topic}.g2"
    if other not in cluster.connect().topics:
        topics.create(cluster, other, 2)
    for name, rows in ((topic, old), (other, new)):
        producer = Producer(cluster, name)
        producer.send([Record(value, key) for key, value in rows])
        producer.close()
    return compare_topics(cluster, topic, other, newest=newest, json=True)


def test_the_newest_value_of_each_key_counts(cluster: Cluster, topic: str) -> None:
    old = [(b"a", b'{"n": 1, "m": 2}'), (b"b", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"gone", b"1"), (b"null", None)]
    new = [(b"a", b'{"m": 2, "n": 1}'), (b"b", b'{"n": 3}'), (b"fresh", b"1"), (b"null", None)]
    found = both(cluster, topic, old, new, newest=True)
    assert (found.old, found.new) == ((5, 4), (4, 4))
    assert (found.only_old, found.only_new, found.differing) == (1, 1, 1)
    assert set(found.sample) == {
        Difference("b", '{"n": 2}', '{"n": 3}'),
        Difference("gone", "1", None),
        Difference("fresh", None, "1"),
    }


def test_every_record_counts_where_rows_are_appended(cluster: Cluster, topic: str) -> None:
    old = [(b"a", b"1"), (b"a", b"2"), (None, b"x"), (None, b"x")]
    assert both(cluster, topic, old, [(None, b"x"), (b"a", b"2"), (None, b"x"), (b"a", b"1")], newest=False).same
    found = both(cluster, topic, [], [(None, b"x"), (b"a", b"2")], newest=False)
    assert found.differing == 2
    assert {one.new for one in found.sample} == {"3 × x", "2 × 2"}


def test_an_alias_leads_to_the_newest_record_of_its_pipeline(cluster: Cluster, topic: str) -> None:
    assert generation_alias.current_topic(cluster, topic) == topic
    generation_alias.publish(
        cluster, GenerationAlias("one", 2, 1.0, {topic: f"{topic}.g2", f"{topic}-more": f"{topic}-more.g2"})
    )
    generation_alias.publish(cluster, GenerationAlias("other", 5, 1.0, {"elsewhere": "elsewhere.g5"}))
    assert generation_alias.current_topic(cluster, topic) == f"{topic}.g2"
    generation_alias.publish(cluster, GenerationAlias("one", 1, 2.0, {topic: topic, f"{topic}-more": f"{topic}-more"}))
    assert generation_alias.current_topic(cluster, topic) == topic
    assert generation_alias.aliases(cluster)["other"].generation == 5
