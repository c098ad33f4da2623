"""The bulk source cuts batches of a topic by event time: no record is late, in whatever batches it is read."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.offsets import PartitionId
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.batch_alignment import NO_TIME, EventTime
from millrace.connectors.kafka import aligned_batches
from millrace.connectors.kafka.aligned_batches import AlignedBatches
from millrace.connectors.kafka.bulk_source import BulkSourceSpec, KafkaStreamReader
from millrace.formats.json import Json
from millrace.pipeline.schema import parse_schema
from millrace.telemetry.progress import alignment_report

Times = dict[int, list[int]]
"""Event times in milliseconds, by partition."""
DELAY_MS = 4_000
AT = EventTime("at", DELAY_MS * 1000, 60.0, Json(), parse_schema("at timestamp_ntz"), "at")


def text_of(moment_ms: int) -> bytes:
    seconds, milliseconds = divmod(moment_ms, 1000)
    return b'{"at": "2026-01-01T%02d:%02d:%02d.%03d"}' % (
        seconds // 3600,
        seconds // 60 % 60,
        seconds % 60,
        milliseconds,
    )


def put(cluster: Cluster, topic: str, times: Times) -> None:
    producer = Producer(cluster, topic, Delivery(idempotence=False))
    producer.send([Record(text_of(one), partition=number) for number, own in times.items() for one in own])
    producer.close()


def busy_at_different_times(seed: int, count: int) -> Times:
    """Partitions of which one after the other is busy, and one that ends early; a disorder of just under the delay."""
    chance = random.Random(seed)
    times: Times = {0: [], 1: [], 2: []}
    for number in range(count):
        moment = 60_000 + number * 10
        hot = number * 9 // count % 3
        partition = hot if chance.random() < 0.95 else chance.randrange(3)
        if partition == 2 and number > count / 2:
            partition = 0
        times[partition].append(moment - chance.randrange(DELAY_MS))
    return times


def batches(reader: KafkaStreamReader, topic: str, times: Times, limit: ReadLimit) -> list[list[int]]:
    """The event times of each batch, until everything is read."""
    start: dict[str, Any] = reader.initialOffset()
    found = []
    while (end := reader.latestOffset(start, limit)) != start:
        spans = {number: (start.get(topic, {}).get(str(number), 0), end[topic][str(number)]) for number in times}
        found.append([one for number, (low, high) in spans.items() for one in times[number][low:high]])
        start = end
    return found


def late(found: list[list[int]]) -> int:
    """How many records are older than the watermark of their batch."""
    newest, count = 0, 0
    for batch in found:
        count += sum(one < newest - DELAY_MS for one in batch)
        newest = max(newest, *batch)
    return count


@pytest.mark.parametrize("most", [100, 1000, 2500])
@pytest.mark.parametrize("most_exact", [400_000, 500], ids=["exact", "estimated"])
def test_no_record_is_late_and_batches_have_no_more_than_they_may(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch, most: int, most_exact: int
) -> None:
    monkeypatch.setattr(aligned_batches, "_MAX_EXACT_RECORDS", most_exact)
    monkeypatch.setattr(aligned_batches, "_LEAST_AHEAD_RECORDS", 50)
    times = busy_at_different_times(7, 3000)
    put(cluster, topic, times)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), most=most, event_time=AT))
    found = batches(reader, topic, times, ReadMaxRows(most))
    assert sum(map(len, found)) == 3000
    assert max(map(len, found)) <= most
    assert len(found) <= 2 * 3000 / most + 1  # nor are they much smaller
    assert late(found) == 0
    shares = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), most=most))
    assert late(batches(shares, topic, times, ReadMaxRows(most))) > 0  # as it was without


class KnownTimes(AlignedBatches):
    """Batches of records whose offsets and event times are given."""

    records: dict[PartitionId, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]

    def _times(self, partition: PartitionId, start: int, stop: int) -> tuple[Any, Any]:
        offsets, times = self.records[partition]
        span = slice(*np.searchsorted(offsets, [start, stop]))
        return offsets[span], times[span]


def read_live(
    monkeypatch: pytest.MonkeyPatch, arrived_s: Any, times_s: Any, *, per_s: int, stall: int = -1
) -> tuple[int, dict[PartitionId, float]]:
    """Read two partitions in batches of 100 records at a rate; one batch takes five minutes.

    Return how many records were late, and for how long the oldest record of each partition was waiting at most.
    """
    clock = [0.0]
    monkeypatch.setattr("millrace.connectors.base.batch_alignment.time", SimpleNamespace(monotonic=lambda: clock[0]))
    aligned = KnownTimes(Cluster("none:1"), AT)
    aligned.records = {("t", n): (np.arange(len(own)), (own * 1e6).astype(np.int64)) for n, own in enumerate(times_s)}
    begin, lag_s = dict.fromkeys(aligned.records, 0), dict.fromkeys(aligned.records, 0.0)
    newest, late, number = NO_TIME, 0, 0
    while (
        ends := {key: int(np.searchsorted(arrived_s[key[1]], clock[0], "right")) for key in begin}
    ) != begin and clock[0] < 3000:
        for key in begin:
            lag_s[key] = max(lag_s[key], clock[0] - arrived_s[key[1]][min(begin[key], len(arrived_s[key[1]]) - 1)])
        batch_ends = aligned.cut(begin, ends, 100, {}, strict=True)
        batch = np.concatenate([aligned._times(key, begin[key], end)[1] for key, end in batch_ends.items()])
        late += int((batch < newest - AT.delay_us).sum()) if newest > NO_TIME else 0
        newest, begin = batch.max(initial=newest), batch_ends
        clock[0] += len(batch) / per_s + (300 if number == stall else 0)
        number += 1
    return late, lag_s


@pytest.mark.parametrize("stall", [-1, 2])
@pytest.mark.parametrize("per_s", [10, 1000])
def test_a_slow_query_makes_no_record_of_a_backlog_late(
    monkeypatch: pytest.MonkeyPatch, per_s: int, stall: int
) -> None:
    """One partition is an hour ahead; event time moves slower than the clock, or a batch takes five minutes."""
    times = np.arange(3000) / 100
    late, _ = read_live(monkeypatch, [np.zeros(3000)] * 2, [times, times + 3600], per_s=per_s, stall=stall)
    assert late == 0


@pytest.mark.parametrize("stall", [-1, 20])
def test_a_slow_query_makes_no_record_of_a_fast_producer_late(monkeypatch: pytest.MonkeyPatch, stall: int) -> None:
    """A partition comes closer to the others with all that arrives there."""
    arrived = np.arange(30_000) / 20
    backlog, ahead = np.zeros(1000), np.full(1000, 1e6)
    late, _ = read_live(
        monkeypatch,
        [np.concatenate([backlog, arrived]), backlog],
        [np.concatenate([backlog, arrived * 2]), ahead],
        per_s=10,
        stall=stall,
    )
    assert late == 0


@pytest.mark.parametrize("speed", [0.0, 0.5])
def test_a_partition_whose_event_time_is_slow_does_not_block_the_others(
    monkeypatch: pytest.MonkeyPatch, speed: float
) -> None:
    """More arrives there than can be read: the others are not much further behind."""
    arrived = np.arange(30_000) / 10
    backlog = np.zeros(1000)
    _, lag_s = read_live(
        monkeypatch,
        [np.concatenate([backlog, arrived]), np.concatenate([backlog, arrived])],
        [np.concatenate([backlog, arrived * speed]), np.concatenate([backlog, arrived]) + 1e6],
        per_s=9,
    )
    assert lag_s["t", 1] < 2500
    assert lag_s["t", 1] < 2 * lag_s["t", 0] + 120


def test_without_an_estimate_no_more_is_looked_at_than_for_an_exact_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned_batches, "_MAX_EXACT_RECORDS", 100)
    monkeypatch.setattr(aligned_batches, "_LEAST_AHEAD_RECORDS", 50)
    monkeypatch.setattr(aligned_batches, "_SAMPLES", 4)
    aligned = KnownTimes(Cluster("none:1"), AT)
    aligned.records = {("t", n): (np.arange(5000), np.full(5000, NO_TIME)) for n in range(2)}
    ends = aligned.cut(dict.fromkeys(aligned.records, 0), dict.fromkeys(aligned.records, 5000), 4000, {}, strict=True)
    assert sum(ends.values()) == 100
    assert all(ahead.end <= 100 for ahead in aligned._ahead.values())


def some_runs(count: int, chance: np.random.Generator) -> Any:
    """Choose 40% of some records, in runs that are longer than a sample."""
    return np.repeat(chance.random(count // 10) < 0.4, 10)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_gaps_and_records_without_a_time_make_no_record_late(
    monkeypatch: pytest.MonkeyPatch, seed: int, strict: bool
) -> None:
    monkeypatch.setattr(aligned_batches, "_MAX_EXACT_RECORDS", 0)
    monkeypatch.setattr(aligned_batches, "_LEAST_AHEAD_RECORDS", 100)
    monkeypatch.setattr(aligned_batches, "_SAMPLES", 8)
    monkeypatch.setattr(aligned_batches, "_SAMPLE_RECORDS", 4)
    chance = np.random.default_rng(seed)
    aligned = KnownTimes(Cluster("none:1"), replace(AT, idle_after_s=1e9))
    aligned.records = {}
    for number in range(3):
        offsets = np.arange(2000)
        times = offsets * 1_000_000 * (number + 1) // 2 + chance.integers(0, DELAY_MS * 1000, 2000)
        times[some_runs(2000, chance)] = NO_TIME
        exists = ~some_runs(2000, chance)
        aligned.records["t", number] = offsets[exists], times[exists]
    begin, ends = dict.fromkeys(aligned.records, 0), dict.fromkeys(aligned.records, 2000)
    newest, read = NO_TIME, 0
    while begin != ends:
        batch_ends = aligned.cut(begin, ends, 400, {}, strict=strict)
        batch = np.concatenate(
            [aligned._times(partition, begin[partition], end)[1] for partition, end in batch_ends.items()]
        )
        timed = batch[batch > NO_TIME]
        assert newest == NO_TIME or not (timed < newest - AT.delay_us).any()
        newest, read = timed.max(initial=newest), read + len(batch)
        assert begin != batch_ends
        begin = batch_ends
    assert read == sum(len(offsets) for offsets, _ in aligned.records.values())


def test_a_large_backlog_whose_batches_have_no_fixed_size(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aligned_batches, "_MAX_EXACT_RECORDS", 100)
    monkeypatch.setattr("millrace.connectors.kafka.bulk_source._FIRST", 700)
    times = busy_at_different_times(3, 3000)
    put(cluster, topic, times)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), event_time=AT))
    found = batches(reader, topic, times, ReadAllAvailable())
    assert sum(map(len, found)) == 3000
    assert 500 < len(found[0]) < 900
    assert late(found) == 0


def test_times_of_kafka_serve_where_records_have_none(cluster: Cluster, topic: str) -> None:
    times = {0: [10_000 * number for number in range(50)], 1: [5], 2: [490_000 + number for number in range(50)]}
    producer = Producer(cluster, topic, Delivery(idempotence=False))
    producer.send(
        [Record(b"?", timestamp=1_000 + one, partition=number) for number, own in times.items() for one in own]
    )
    producer.close()
    own = EventTime("the times of Kafka's records", DELAY_MS * 1000, 60.0)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), most=20, event_time=own))
    found = batches(reader, topic, times, ReadMaxRows(20))
    assert late(found) == 0
    assert [max(batch) for batch in found[:2]] == [180_000, 380_000]  # the third partition waits


def test_a_large_batch_ends_before_a_record_from_the_future_by_the_times_of_kafka(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aligned_batches, "_MAX_EXACT_RECORDS", 100)
    monkeypatch.setattr(aligned_batches, "_SAMPLES", 4)
    times = {number: [1_000 + 100 * place + number for place in range(1000)] for number in (0, 1)}
    times[0][123] = future = 10_000_000
    producer = Producer(cluster, topic, Delivery(idempotence=False))
    producer.send([Record(b"?", timestamp=one, partition=number) for number, own in times.items() for one in own])
    producer.close()
    own = EventTime("the times of Kafka's records", DELAY_MS * 1000, 60.0)
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), most=500, event_time=own))
    found = batches(reader, topic, times, ReadMaxRows(500))
    assert sum(map(len, found)) == 2000
    before = found[: next(number for number, batch in enumerate(found) if future in batch)]
    assert late(before) == 0
    assert set(times[1]) <= {one for batch in before for one in batch}


def read_step(reader: KafkaStreamReader, start: dict[str, Any], most: int) -> dict[str, Any]:
    return reader.latestOffset(start, ReadMaxRows(most))


def test_who_waits_is_reported_and_released_in_the_end(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: list[float] = [0.0]
    monkeypatch.setattr("millrace.connectors.base.batch_alignment.time", SimpleNamespace(monotonic=lambda: clock[0]))
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {}, (topic,), most=10, event_time=AT))
    put(cluster, topic, {0: [1_000] * 20, 1: [90_000] * 20, 2: []})
    first = read_step(reader, {}, 10)
    assert first == {topic: {"0": 10, "1": 0, "2": 0}}
    report = reader.reportLatestOffset()
    assert report is not None
    assert report[topic] == {"0": 20, "1": 20, "2": 0}
    assert report == {topic: report[topic], **alignment_report("at", 1_767_225_601_000_000, [f"{topic}[1]"])}
    clock[0] = 61.0
    second = read_step(reader, first, 10)
    assert second == {topic: {"0": 20, "1": 0, "2": 0}}  # what was there is waited for
    put(cluster, topic, {0: [1_000] * 30})
    third = read_step(reader, second, 10)
    assert third == {topic: {"0": 20, "1": 10, "2": 0}}  # what came a minute later is not, unless it is newer
    rest = read_step(reader, third, 1000)
    assert rest == {topic: {"0": 50, "1": 20, "2": 0}}
    assert reader.reportLatestOffset() == rest


def test_a_replay_ends_where_it_should(cluster: Cluster, topic: str) -> None:
    put(cluster, topic, {0: [1, 2, 3], 1: [1, 2, 3], 2: [1]})
    until = {topic: {"0": 2, "1": 3}}
    reader = KafkaStreamReader(BulkSourceSpec(cluster, {topic: {"0": 1}}, (topic,), until=until))
    assert read_step(reader, reader.initialOffset(), 100) == {topic: {"0": 2, "1": 3, "2": 0}}


def test_batches_are_the_same_in_every_process_that_plans_them(cluster: Cluster, topic: str) -> None:
    """After a crash another process plans the next batch, without what the first one had looked at ahead."""
    times = busy_at_different_times(11, 600)
    put(cluster, topic, times)
    spec = BulkSourceSpec(cluster, {}, (topic,), most=50, event_time=AT)
    one = KafkaStreamReader(spec)
    ends: list[dict[str, Any]] = [{}]
    for _ in range(12):
        ends.append(read_step(one, ends[-1], 50))
    for start, end in pairwise(ends):
        assert read_step(KafkaStreamReader(spec), start, 50) == end
