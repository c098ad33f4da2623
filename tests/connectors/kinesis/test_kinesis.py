"""Kinesis as a source and as a sink, against a service that speaks as it does, and one that fails as it does."""

from __future__ import annotations

import json
import threading
import uuid
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from emulator import KEYS, REGION, Emulator, Faults, failing
from millrace.clients.kinesis.kpl_aggregation import aggregate
from millrace.connectors.base.batch_alignment import EventTime
from millrace.connectors.kinesis.source import KinesisStreamReader, ShardSourceSpec
from millrace.dead_letters.letter import from_json_line
from millrace.errors import KinesisDenied, RecordsGone, UnknownStream
from millrace.formats.json import Json
from millrace.pipeline.loading.python import Pipeline
from millrace.pipeline.schema import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from conftest import RunPipeline


@pytest.fixture
def stream(emulator: Emulator) -> str:
    """A new stream of two shards."""
    return emulator.create(f"s{uuid.uuid4().hex[:12]}", 2)


def _pipeline(endpoint: str, stream: str, out: Path, **options: Any) -> Pipeline:
    import millrace as mr

    made = Pipeline("shards")
    chosen = {"schema": "id int, word string", "region": REGION, "endpoint": endpoint, **KEYS} | options
    made.source("words", mr.kinesis(stream, **chosen))
    made.sink("words", mr.files(str(out), format="json"))
    return made


def _lines(*numbers: int) -> list[str]:
    return [json.dumps({"id": one, "word": f"w{one}"}) for one in numbers]


def _rows(spark: SparkSession, out: Path) -> list[int]:
    return sorted(row.id for row in spark.read.json(str(out)).collect())


def test_shards_are_followed_through_splits_merges_restarts_and_bad_records(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, spark: SparkSession, tmp_path: Path
) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    pipeline = _pipeline(emulator.endpoint, stream, out, max_per_batch=70, include=["key", "shard", "sequence"])
    emulator.put(stream, [*_lines(*range(100)), "no json"])
    run_pipeline(pipeline, state)
    assert _rows(spark, out) == list(range(100))

    emulator.split(stream, "shardId-000000000000")
    emulator.put(stream, _lines(*range(100, 160)))
    emulator.merge(stream, "shardId-000000000003", "shardId-000000000001")
    emulator.put(stream, _lines(*range(160, 200)))
    emulator.client.put_record(
        StreamName=stream,
        PartitionKey="x",
        Data=aggregate([(f"user{n}", _lines(200 + n)[0].encode()) for n in range(9)]),
    )
    run_pipeline(pipeline, state)
    assert _rows(spark, out) == list(range(209))

    rows = spark.read.json(str(out)).collect()
    assert {row.key for row in rows if row.id >= 200} == {f"user{n}" for n in range(9)}
    assert {row.shard for row in rows} == {f"shardId-{n:012}" for n in range(5)}
    (letter,) = [
        from_json_line(one) for file in (state / "dead").rglob("*.jsonl") for one in file.read_bytes().splitlines()
    ]
    assert letter.value == b"no json"
    assert letter.origin.startswith(f"kinesis://{stream}/shardId-")


@pytest.mark.parametrize("most", [40, None])
def test_shards_that_are_read_in_many_batches_stay_together_in_event_time(
    emulator: Emulator, stream: str, most: int | None
) -> None:
    """One shard has the first half of the time and nearly nothing of the second, the other one the second half."""
    event_time = EventTime("at", 4_000_000, 60.0, Json(), parse_schema("at timestamp_ntz"), "at")
    seconds = {"shardId-000000000000": [*range(300), 599], "shardId-000000000001": [5, *range(300, 600)]}
    for shard, own in seconds.items():
        values = [json.dumps({"at": f"2026-01-01T00:{second // 60:02}:{second % 60:02}"}) for second in own]
        emulator.put(stream, values, shard=shard)
    spec = ShardSourceSpec(emulator.door, stream, most=most, event_time=event_time)
    reader = KinesisStreamReader(spec)
    reader.prepareForTriggerAvailableNow()
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    batches: list[list[int]] = []
    try:
        while (end := reader.latestOffset(start, limit)) != start:
            blocks = [block for part in reader.partitions(start, end) for block in reader.read(part)]
            batches.append([_second(value) for block in blocks for value in block.column("value").to_pylist()])
            start = end
    finally:
        reader.stop()
    assert sorted(second for batch in batches for second in batch) == sorted(seconds_of(seconds))
    newest = 0
    for batch in batches:
        assert not [second for second in batch if second < newest - 4]
        newest = max([newest, *batch])
    assert len(batches) > 10 if most else batches


def _second(value: bytes) -> int:
    minutes, seconds = map(int, json.loads(value)["at"][14:].split(":"))
    return 60 * minutes + seconds


def seconds_of(shards: dict[str, list[int]]) -> list[int]:
    return [second for own in shards.values() for second in own]


def test_a_batch_that_comes_again_is_the_same(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, spark: SparkSession, tmp_path: Path
) -> None:
    import millrace as mr

    seen: list[tuple[int, list[str]]] = []

    def write(frame: Any, batch: int) -> None:
        seen.append((batch, sorted(row.value for row in frame.collect())))
        if len(seen) == 1:
            emulator.put(stream, _lines(*range(30, 50)))
            raise ConnectionError("the first time")

    pipeline = Pipeline("again")
    options = {"format": "text", "region": REGION, "endpoint": emulator.endpoint, **KEYS}
    pipeline.source("words", mr.kinesis(stream, include=[], **options))
    pipeline.sink("words", mr.foreach(write, batch=True))
    emulator.put(stream, _lines(*range(30)))
    run_pipeline(pipeline, tmp_path / "state")  # the query is begun anew within the run
    assert seen[0] == seen[1]
    assert sorted(value for _, values in seen[1:] for value in values) == sorted(_lines(*range(50)))


def test_shards_that_appear_between_two_batches_do_not_begin_the_reading_anew(emulator: Emulator, stream: str) -> None:
    reader = KinesisStreamReader(ShardSourceSpec(emulator.door, stream))
    emulator.put(stream, _lines(*range(10)))
    at = reader.initialOffset()
    try:
        while not any("after" in one for one in at["shards"].values()):
            at = reader.latestOffset(at, ReadAllAvailable())
        tail = reader._tail
        assert tail
        emulator.split(stream, "shardId-000000000000")
        tail._list()  # as it does once a minute
        assert "shardId-000000000002" in tail.reach.shards
        while not at["shards"]["shardId-000000000000"].get("ended"):
            at = reader.latestOffset(at, ReadAllAvailable())
        assert reader._tail is tail
    finally:
        reader.stop()


def test_all_that_is_available_has_an_end_while_others_go_on_writing(emulator: Emulator, stream: str) -> None:
    emulator.put(stream, _lines(*range(100)))
    over, begun = threading.Event(), threading.Event()

    def write() -> None:
        emulator.split(stream, "shardId-000000000000")
        while not over.wait(0.02):
            emulator.put(stream, _lines(*range(10)))
            begun.set()

    reader, writer = (
        KinesisStreamReader(ShardSourceSpec(emulator.door, stream)),
        threading.Thread(target=write, daemon=True),
    )
    writer.start()
    try:
        assert begun.wait(20)
        reader.prepareForTriggerAvailableNow()
        ends = [reader.initialOffset()]
        while len(ends) < 2 or ends[-1] != ends[-2]:
            ends.append(reader.latestOffset(ends[-1], ReadAllAvailable()))
            assert len(ends) < 200
        assert writer.is_alive()
    finally:
        over.set()
        writer.join()
        reader.stop()
    parts = [part for one, other in pairwise(ends) for part in reader.partitions(one, other)]
    found = [row for part in parts for block in reader.read(part) for row in block.to_pylist()]
    assert 110 <= len(found) < len(emulator.values(stream))


def test_a_service_that_throttles_and_breaks_off_loses_nothing(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, spark: SparkSession, tmp_path: Path
) -> None:
    kinds = [(400, "ProvisionedThroughputExceededException"), (500, "InternalFailure"), "drop", "break"]
    faults = Faults(lambda _, number: kinds[number // 3 % 4] if number % 3 == 0 or number == 1 else None)
    emulator.put(stream, _lines(*range(1000)))
    with failing(emulator.port, faults) as endpoint:
        run_pipeline(_pipeline(endpoint, stream, tmp_path / "out", max_per_batch=300), tmp_path / "state")
    assert _rows(spark, tmp_path / "out") == list(range(1000))
    assert faults.failed["GetRecords"] > 0


def test_rows_are_written_by_their_key_and_what_is_refused_is_sent_again(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, tmp_path: Path
) -> None:
    import millrace as mr

    target = emulator.create(f"t{uuid.uuid4().hex[:12]}", 2)
    emulator.put(stream, _lines(*range(1200)))
    pipeline = Pipeline("onward")
    where = {"region": REGION, "endpoint": emulator.endpoint, **KEYS}
    pipeline.source("words", mr.kinesis(stream, schema="id int, word string", **where))
    faults = Faults(lambda _, number: (400, "ProvisionedThroughputExceededException") if number == 1 else None)
    with failing(emulator.port, faults) as endpoint:
        pipeline.sink("words", mr.kinesis(target, key="word", **(where | {"endpoint": endpoint})))
        run_pipeline(pipeline, tmp_path / "state")
    found = sorted(json.loads(one)["id"] for one in emulator.values(target))
    assert found == list(range(1200))
    assert faults.failed["PutRecords"] == 1


def test_what_is_wrong_is_one_sentence(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, tmp_path: Path
) -> None:
    with pytest.raises(UnknownStream, match="could not find stream 'nowhere'"):
        run_pipeline(_pipeline(emulator.endpoint, "nowhere", tmp_path / "a"))
    faults = Faults(lambda *_: (400, "UnrecognizedClientException"))
    with failing(emulator.port, faults) as endpoint, pytest.raises(KinesisDenied) as denied:
        run_pipeline(_pipeline(endpoint, stream, tmp_path / "b"))
    assert KEYS["secret_key"] not in "".join(denied.value.lines())


def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    pipeline = _pipeline(emulator.endpoint, stream, tmp_path / "out")
    emulator.put(stream, _lines(1, 2))
    run_pipeline(pipeline, state)
    path = max((state / "checkpoints").glob("*/offsets/[0-9]*"), key=lambda one: int(one.name))
    told = path.read_text().splitlines()
    offset = json.loads(told[-1])
    told[-1] = json.dumps(offset | {"created": offset["created"] - 5000})
    path.write_text("\n".join(told))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    with pytest.raises(RecordsGone, match="deleted and created again"):
        run_pipeline(pipeline, state)


@pytest.mark.chaos
def test_shards_that_come_and_go_under_a_failing_service_lose_nothing(
    emulator: Emulator, stream: str, run_pipeline: RunPipeline, spark: SparkSession, tmp_path: Path
) -> None:
    """Ten rounds: records, a split or a merge of open shards, and a run that ends when it has caught up."""
    kinds = [(400, "ProvisionedThroughputExceededException"), (500, "InternalFailure"), "drop", "break"]
    faults = Faults(lambda _, number: kinds[number // 7 % 4] if number % 7 == 0 else None)
    with failing(emulator.port, faults) as endpoint:
        pipeline = _pipeline(endpoint, stream, tmp_path / "out", max_per_batch=150)
        for number in range(10):
            emulator.put(stream, _lines(*range(200 * number, 200 * number + 100)))
            _reshard(emulator, stream, merge=number % 3 == 2)
            emulator.put(stream, _lines(*range(200 * number + 100, 200 * number + 200)))
            run_pipeline(pipeline, tmp_path / "state")
    assert _rows(spark, tmp_path / "out") == list(range(2000))
    assert faults.failed.total() > 10


def _reshard(emulator: Emulator, stream: str, *, merge: bool) -> None:
    """Split the first open shard, or merge the first two."""
    shards = emulator.client.describe_stream(StreamName=stream)["StreamDescription"]["Shards"]
    opened = [one for one in shards if "EndingSequenceNumber" not in one["SequenceNumberRange"]]
    ordered = sorted(opened, key=lambda one: int(one["HashKeyRange"]["StartingHashKey"]))
    if merge:
        emulator.merge(stream, ordered[0]["ShardId"], ordered[1]["ShardId"])
    else:
        emulator.split(stream, ordered[0]["ShardId"])
