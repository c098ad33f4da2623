"""A topic in which one record in a hundred is broken: good results exact, every broken record a dead letter once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import orjson
from pyspark.sql import functions as F

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.memory import MEMORY
from millrace.dead_letters.store import letters_in_topics
from millrace.feeds.simulation.malformed_records import WAYS, MalformedShape, WellFormed
from millrace.telemetry.query_status import RunStatus

RECORDS = 100_000
SCHEMA = "id string, author string, likes bigint, at timestamp NOT NULL"
SHAPE = MalformedShape.of("id string, author string, likes bigint, at timestamp", "at")


def good(number: int) -> bytes:
    """A record whose event time goes a second on every hundred records."""
    at = f"2026-01-01T{number // 360_000:02d}:{number // 6000 % 60:02d}:{number // 100 % 60:02d}Z"
    return orjson.dumps({"id": str(number), "author": f"a{number % 17}", "likes": number % 5, "at": at})


def mixed(rng: random.Random) -> tuple[list[Record], Counter[bytes | None], Counter[str]]:
    """The records, the bytes of the broken ones, and what counts each author should get."""
    records: list[Record] = []
    broken: Counter[bytes | None] = Counter()
    authors: Counter[str] = Counter()
    for number in range(RECORDS):
        value: bytes | None = good(number)
        if number % 100 == 50:
            value = WAYS[number // 100 % len(WAYS)](WellFormed(good(number), SHAPE, rng))
            broken[value] += 1
        else:
            authors[f"a{number % 17}"] += 1
        records.append(Record(value, str(number % 50).encode(), headers=(("n", str(number).encode()),)))
    return records, broken, authors


def test_good_results_are_exact_and_every_broken_record_is_a_dead_letter_once(
    cluster: Cluster, topic: str, run_pipeline: Callable[..., RunStatus]
) -> None:
    records, broken, authors = mixed(random.Random(4))
    assert len(WAYS) >= 12
    producer = Producer(cluster, topic)
    producer.send(records)
    producer.close()
    pipeline = mr.Pipeline("mixed")
    pipeline.source("posts", mr.kafka(topic, schema=SCHEMA, max_per_batch=30_000))

    @pipeline.table
    def by_author(posts):  # type: ignore[no-untyped-def]
        return posts.groupBy("author").agg(F.count("*").alias("count"))

    pipeline.sink("by_author", mr.memory(), mode="complete")
    pipeline.sink("posts", mr.memory("everything"))
    run_pipeline(pipeline)
    counted = MEMORY.tables()["by_author"].to_pylist()
    assert {row["author"]: row["count"] for row in counted} == dict(authors)
    assert MEMORY.tables()["everything"].num_rows == RECORDS - broken.total()
    letters = [found.letter for found in letters_in_topics(cluster, [f"{topic}.dead"])]
    assert Counter(letter.value for letter in letters) == broken
    assert len({(letter.partition, letter.offset) for letter in letters}) == len(letters) == RECORDS // 100
    for letter in letters:
        number = int(letter.headers[0][1] or b"")
        assert letter.key == str(number % 50).encode()
        assert letter.topic == topic
        assert letter.reason
        assert letter.pipeline == "mixed"
