"""Lag is what Kafka itself says."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import consumer_groups, offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.dashboard.kafka.lag import LagMeter
from millrace.errors import KafkaUnreachable
from millrace.services.process import free_port
from millrace.telemetry.channels import Channels, RowBuffer
from millrace.telemetry.measurements import ANSWER_TIMEOUT_S, Measurements
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import RunStatus
from millrace.telemetry.topology import UNPLANNED, ExpectedQuery, Topology

from .conftest import Put


def read(run_status: RunStatus, topic: str, *ends: int) -> None:
    """The query has read so far in each partition."""
    end = {topic: {str(number): offset for number, offset in enumerate(ends)}}
    source = SourceProgress("KafkaV2", 1, end=end, latest=end)
    run_status.batch_done(BatchProgress("q", "run", 0, datetime.now(UTC), 1, sources=(source,)))


class Bench:
    """A meter with all that it needs."""

    def __init__(self, cluster: Cluster, topology: Topology = UNPLANNED, **more: Any) -> None:
        self.run_status, self.measurements, self.channels = RunStatus(), Measurements(), Channels()
        self.run_status.started("q")
        self.meter = LagMeter(lambda: cluster, self.run_status, self.measurements, topology, self.channels, **more)

    def lag(self) -> Any:
        """What is measured now."""
        self.meter.look()
        return self.measurements.lag("q")


@pytest.fixture
def bench(cluster: Cluster) -> Any:
    made = Bench(cluster)
    yield made
    made.meter.close()


def test_it_equals_what_a_consumer_group_at_the_same_place_has(
    cluster: Cluster, topic: str, put: Put, bench: Bench
) -> None:
    put(topic, *(Record(b"x", partition=number % 3) for number in range(30)))
    read(bench.run_status, topic, 4, 10, 7)
    lag = bench.lag()
    moves = [consumer_groups.OffsetChange(topic, number, None, offset) for number, offset in enumerate((4, 10, 7))]
    consumer_groups.apply_reset(cluster, f"group-of-{topic}", moves)
    said = consumer_groups.describe(cluster, f"group-of-{topic}")
    assert lag.records == said.lag == 9
    assert lag.partitions == {f"{one.topic}/{one.partition}": one.lag for one in said.positions}
    places = [TopicPartition(topic, number) for number in range(3)]
    ends = offsets.list_offsets(cluster, places, OffsetSpec.latest())
    assert lag.records == sum(ends.values()) - 21


def test_the_ring_has_a_column_for_each_partition(topic: str, put: Put, bench: Bench) -> None:
    put(topic, *(Record(b"x", partition=1) for _ in range(5)))
    read(bench.run_status, topic, 0, 2, 0)
    bench.lag()
    ring = bench.channels.get("lag:q")
    assert isinstance(ring, RowBuffer)
    (row,) = ring.newest()
    assert (row["lag"], row[f"p:{topic}/0"], row[f"p:{topic}/1"]) == (3, 0, 3)


def test_seconds_of_what_came_before_we_looked_are_those_of_the_record(topic: str, put: Put, bench: Bench) -> None:
    old, new = (round((time.time() - ago) * 1000) for ago in (500, 100))
    put(topic, Record(b"x", partition=0, timestamp=old), Record(b"x", partition=0, timestamp=new))
    put(topic, Record(b"x", partition=1, timestamp=old))
    read(bench.run_status, topic, 1, 1, 0)
    assert bench.lag().seconds == pytest.approx(100, abs=30)
    read(bench.run_status, topic, 2, 1, 0)
    assert (bench.lag().records, bench.lag().seconds) == (0, 0)


def test_seconds_of_what_comes_while_we_look_are_by_our_own_clock(topic: str, put: Put, bench: Bench) -> None:
    long_ago = round((time.time() - 10_000) * 1000)
    read(bench.run_status, topic, 0, 0, 0)
    assert bench.lag().records == 0
    put(topic, Record(b"x", partition=0, timestamp=long_ago))
    lag = bench.lag()
    assert lag.records == 1
    assert 0 < lag.seconds < 60


def test_a_partition_that_nobody_has_read_yet_counts_from_its_beginning(topic: str, put: Put, bench: Bench) -> None:
    put(topic, *(Record(b"x", partition=number) for number in (0, 2, 2)))
    read(bench.run_status, topic, 1, 0)
    assert bench.lag().records == 2


def test_topics_grow(topic: str, put: Put, cluster: Cluster) -> None:
    topology = Topology((ExpectedQuery("q", "q", sources=("posts",)),), (), {"posts": (topic,)})
    bench = Bench(cluster, topology)
    assert bench.lag().why == "no batch has ended yet"
    put(topic, *(b"x" for _ in range(50)))
    bench.lag()
    assert (bench.measurements.rate(topic) or 0) > 0


def test_a_query_whose_records_are_elsewhere_is_left_to_sparks_own_words(bench: Bench) -> None:
    read(bench.run_status, "a topic of another cluster", 5)
    assert bench.lag() is None


def test_a_kafka_that_does_not_answer_is_the_reason(topic: str, cluster: Cluster) -> None:
    bench = Bench(cluster)

    def gone() -> Cluster:
        raise KafkaUnreachable("no broker answers")

    bench.meter = LagMeter(gone, bench.run_status, bench.measurements, UNPLANNED, bench.channels)
    assert (bench.lag().records, bench.lag().why) == (None, "no broker answers")


def test_who_looks_is_told_that_kafka_does_not_answer(topic: str, bench: Bench) -> None:
    read(bench.run_status, topic, 0)
    gone = Cluster(f"127.0.0.1:{free_port()}", timeout=0.2)
    meter = LagMeter(lambda: gone, bench.run_status, bench.measurements, UNPLANNED, bench.channels)
    meter.look()
    meter.look()
    missing = bench.run_status.kafka.missing(time.monotonic() + ANSWER_TIMEOUT_S)
    assert missing
    assert missing.address == gone.bootstrap
    bench.lag()
    assert bench.run_status.kafka.missing(time.monotonic() + ANSWER_TIMEOUT_S) is None


def test_no_number_is_shown_while_a_partition_is_unknown(
    topic: str, put: Put, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(topic, *(Record(b"x", partition=number) for number in range(3)))
    read(bench.run_status, topic, 0, 0, 0)
    assert bench.lag().records == 3
    whole = offsets.list_available_offsets

    def all_but_one(*asked: Any) -> dict[tuple[str, int], int]:
        return {place: end for place, end in whole(*asked).items() if place[1] != 1}

    with monkeypatch.context() as patched:
        patched.setattr(offsets, "list_available_offsets", all_but_one)
        lag = bench.lag()
        assert (lag.records, lag.partitions) == (None, None)
        assert "every partition" in lag.why
    assert bench.lag().records == 3


def test_in_real_time_mode_it_is_what_the_consumers_say_or_unknown(topic: str, put: Put, cluster: Cluster) -> None:
    expected = ExpectedQuery("q", "q", sources=("posts",), batches=False)
    topology = Topology((expected,), (), {"posts": (topic,)})
    assert "checkpoints" in Bench(cluster, topology).lag().why
    bench = Bench(cluster, topology, behind=lambda: {(topic, 0): 3, ("other", 0): 9})
    bench.lag()
    put(topic, *(Record(b"x", partition=0) for _ in range(3)))
    lag = bench.lag()
    assert (lag.records, lag.partitions) == (3, {f"{topic}/0": 3})
    assert lag.seconds > 0
    assert replace(expected, batches=True) != expected
