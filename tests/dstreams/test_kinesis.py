"""KinesisUtils as it was, with leases in DynamoDB and in a file, against services that speak as those of AWS do."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from emulator import KEYS, REGION, Emulator, Faults, failing
from millrace.clients.kinesis.kcl_leases import FileLeases, TableLeases
from millrace.clients.kinesis.kpl_aggregation import aggregate
from millrace.clients.kinesis.shard_positions import ShardPosition, ShardReadLimit
from millrace.dstreams import InitialPositionInStream, KinesisUtils
from millrace.dstreams.kinesis import LEASES, KinesisStreamSource
from millrace.errors import (
    BadRecord,
    FileUnusable,
    KinesisDenied,
    MillraceError,
    RecordsGone,
    TakenOver,
    UnknownStream,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")
TRIM, LATEST = InitialPositionInStream.TRIM_HORIZON, InitialPositionInStream.LATEST


@pytest.fixture
def stream(emulator: Emulator) -> str:
    """A new stream of two shards."""
    return emulator.create(f"s{uuid.uuid4().hex[:12]}", 2)


class Program:
    """Runs a DStream program until a condition holds; what it got is in `values`, batch by batch."""

    def __init__(self, spark: SparkSession, leases: str) -> None:
        self.values: list[str] = []
        self._context = spark.sparkContext
        self._context._conf.set(LEASES, leases)

    def run(self, endpoint: str, stream: str, app: str, until: Callable[[], bool], **options: Any) -> None:
        """Begin, go on until it holds, stop gracefully."""
        from pyspark.streaming import StreamingContext

        chosen = {"at": TRIM, "interval": 0, "graceful": True} | options
        ssc = StreamingContext(self._context, 0.3)
        words = KinesisUtils.createStream(
            ssc, app, stream, endpoint, REGION, chosen["at"], chosen["interval"],
            awsAccessKeyId=KEYS["access_key"], awsSecretKey=KEYS["secret_key"],
        )  # fmt: skip
        for _ in range(1, chosen.get("streams", 1)):
            other = KinesisUtils.createStream(
                ssc, app, stream, endpoint, REGION, chosen["at"], chosen["interval"],
                awsAccessKeyId=KEYS["access_key"], awsSecretKey=KEYS["secret_key"],
            )  # fmt: skip
            words = words.union(other)
        words.foreachRDD(lambda rdd: self.values.extend(rdd.collect()))
        ssc.start()
        try:
            deadline = time.monotonic() + 60
            while not until() and time.monotonic() < deadline:
                ssc.awaitTerminationOrTimeout(0.1)
            assert until(), self.values
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=chosen["graceful"])


@pytest.fixture
def program(spark: SparkSession, emulator: Emulator) -> Program:
    """A program whose leases are in DynamoDB."""
    return Program(spark, emulator.dynamodb)


def _words(*numbers: int) -> list[str]:
    return [f"w{one:04}" for one in numbers]


def test_a_program_goes_on_where_it_was_through_a_split_and_packed_records(
    emulator: Emulator, stream: str, program: Program
) -> None:
    app = f"app-{uuid.uuid4().hex[:8]}"
    emulator.put(stream, _words(*range(100)))
    program.run(emulator.endpoint, stream, app, lambda: len(program.values) >= 100)
    emulator.split(stream, "shardId-000000000000")
    emulator.put(stream, _words(*range(100, 150)))
    emulator.client.put_record(
        StreamName=stream, PartitionKey="x", Data=aggregate([("u", one.encode()) for one in _words(150, 151)])
    )
    program.run(emulator.endpoint, stream, app, lambda: len(program.values) >= 152)
    assert sorted(program.values) == _words(*range(152))

    items = emulator.door.client("dynamodb", emulator.dynamodb).scan(TableName=app)["Items"]
    leases = {item["leaseKey"]["S"]: item for item in items}
    assert leases["shardId-000000000000"]["checkpoint"]["S"] == "SHARD_END"
    assert leases["shardId-000000000002"]["parentShardId"]["SS"] == ["shardId-000000000000"]
    assert all({"leaseOwner", "leaseCounter", "checkpointSubSequenceNumber"} <= item.keys() for item in items)


def test_a_program_that_makes_a_stream_for_each_shard_reads_each_record_once(
    emulator: Emulator, stream: str, spark: SparkSession, tmp_path: Path
) -> None:
    program, app = Program(spark, tmp_path.as_uri()), f"app-{uuid.uuid4().hex[:8]}"
    emulator.put(stream, _words(*range(100)))
    program.run(emulator.endpoint, stream, app, lambda: len(program.values) >= 100, streams=2)
    assert sorted(program.values) == _words(*range(100))
    other = emulator.create(f"s{uuid.uuid4().hex[:12]}", 1)
    with pytest.raises(FileUnusable, match=other):
        FileLeases(tmp_path / f"{app}.json").load(emulator.door.stream(other))


def test_what_came_after_a_first_start_at_the_end_is_read_by_the_next_one(
    emulator: Emulator, stream: str, program: Program
) -> None:
    emulator.put(stream, _words(1, 2, 3))
    table = f"app-{uuid.uuid4().hex[:8]}"
    client = emulator.door.client("dynamodb", emulator.dynamodb)

    def noted() -> bool:
        tables = client.list_tables()["TableNames"]
        return table in tables and len(client.scan(TableName=table)["Items"]) == 2

    program.run(emulator.endpoint, stream, table, noted, at=LATEST, interval=3600, graceful=False)
    emulator.put(stream, _words(4, 5))
    program.run(emulator.endpoint, stream, table, lambda: len(program.values) >= 2, at=LATEST)
    assert sorted(program.values) == _words(4, 5)


def test_what_cannot_be_read_ends_the_program_with_one_sentence(
    emulator: Emulator, stream: str, program: Program
) -> None:
    with pytest.raises(UnknownStream):
        program.run(emulator.endpoint, "nowhere", "app", lambda: False)
    emulator.put(stream, _words(1))
    denied = Faults(lambda action, _: (400, "AccessDeniedException") if action == "GetRecords" else None)
    with failing(emulator.port, denied) as endpoint, pytest.raises(KinesisDenied) as told:
        program.run(endpoint, stream, f"app-{uuid.uuid4().hex[:8]}", lambda: False)
    assert "shardId-" in told.value.message
    assert KEYS["secret_key"] not in "".join(told.value.lines())


def test_a_decoder_that_raises_names_the_record(emulator: Emulator, stream: str, program: Program) -> None:
    emulator.put(stream, [b"good", b"\xff"], key="one")
    app = f"app-{uuid.uuid4().hex[:8]}"
    with pytest.raises(BadRecord, match=rf"the record \d+ of shardId-\d+ of stream '{stream}'") as told:
        program.run(emulator.endpoint, stream, app, lambda: False)
    assert "UnicodeDecodeError" in str(told.value.why)


def test_leases_in_a_table_are_taken_over_once(emulator: Emulator, stream: str) -> None:
    app, about = f"app-{uuid.uuid4().hex[:8]}", emulator.door.stream(stream)
    reach = ShardReadLimit(stream, about.created, shards={"shardId-000000000000": ShardPosition("12", "10", seen=5)})
    first, second = (TableLeases(emulator.door, app, owner, emulator.dynamodb) for owner in ("a", "b"))
    assert first.load(about) is None
    first.save(reach, {})
    found = second.load(about)
    assert found is not None
    assert found.shards["shardId-000000000000"] == ShardPosition("12", seen=5)
    second.save(found, {})
    later = ShardReadLimit(stream, about.created, shards={"shardId-000000000000": ShardPosition("13", "13", seen=6)})
    with pytest.raises(TakenOver):
        first.save(later, {})


@pytest.mark.parametrize("checkpoint", ["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
def test_a_lease_that_another_library_left_before_it_read_is_read_from_the_oldest_record(
    emulator: Emulator, stream: str, checkpoint: str
) -> None:
    app, about = f"app-{uuid.uuid4().hex[:8]}", emulator.door.stream(stream)
    leases = TableLeases(emulator.door, app, "a", emulator.dynamodb)
    assert leases.load(about) is None  # makes the table
    for number in range(2):
        item = {"leaseKey": {"S": f"shardId-{number:012}"}, "checkpoint": {"S": checkpoint}, "leaseCounter": {"N": "3"}}
        emulator.door.client("dynamodb", emulator.dynamodb).put_item(TableName=app, Item=item)
    emulator.put(stream, _words(*range(10)))
    found = leases.load(about)
    assert found is not None
    assert len(_all(emulator, found)) == 10


def test_leases_in_a_file_say_the_same_again(emulator: Emulator, stream: str, tmp_path: Path) -> None:
    leases, about = FileLeases(tmp_path / "leases" / "app.json"), emulator.door.stream(stream)
    reach = ShardReadLimit(
        stream, about.created, 7, {"a": ShardPosition("12", "10", seen=5), "b": ShardPosition(since=7, seen=9)}
    )
    assert leases.load(about) is None
    leases.save(reach, {})
    assert leases.load(about) == reach
    leases.path.write_text("half of")
    with pytest.raises(MillraceError):
        leases.load(about)


def test_the_signature_is_that_of_pyspark() -> None:
    from pyspark.streaming.kinesis import KinesisUtils as Theirs

    ours, theirs = (inspect.signature(one.createStream) for one in (KinesisUtils, Theirs))
    assert list(ours.parameters) == list(theirs.parameters)


def test_a_lease_that_is_older_than_what_is_kept_is_an_error(emulator: Emulator, stream: str) -> None:
    from millrace.clients.kinesis.shard_reader import ShardReader

    emulator.put(stream, _words(*range(10)), key="one")
    start = ShardReadLimit(stream, emulator.door.stream(stream).created)
    tail = ShardReader(emulator.door, start)
    while not any(one.after for one in tail.reach.shards.values()):
        tail.wait(1)
        tail.take(3)
    tail.close()
    name, position = next((name, one) for name, one in tail.reach.shards.items() if one.after)
    assert position.after
    old = ShardPosition(position.after, seen=1)
    assert (
        len(_all(emulator, ShardReadLimit(stream, start.created, shards={name: old}))) == 7
    )  # the last one read is there

    shards = emulator.client.describe_stream(StreamName=stream)["StreamDescription"]["Shards"]
    ranges = {one["ShardId"]: one["SequenceNumberRange"] for one in shards}
    gone = ShardPosition(ranges[name]["StartingSequenceNumber"], seen=1)  # a number of the shard that no record has
    with pytest.raises(RecordsGone, match="may be gone"):
        _all(emulator, ShardReadLimit(stream, start.created, shards={name: gone}))
    assert _all(emulator, ShardReadLimit(stream, start.created, shards={name: gone}), skip_lost=True)


def _all(emulator: Emulator, start: ShardReadLimit, **options: Any) -> list[Any]:
    from millrace.clients.kinesis.shard_positions import records_between
    from millrace.clients.kinesis.shard_reader import ShardReader

    tail, found = ShardReader(emulator.door, start, **options), []
    try:
        since = time.time()
        while not tail.is_caught_up(since):
            if tail.wait(0.1):
                before = tail.reach
                after = tail.take()
                found += [one for span in records_between(before, after) for one in tail.taken(span) or ()]
    finally:
        tail.close()
    return found


def test_a_lease_that_cannot_be_noted_now_is_noted_later(emulator: Emulator, stream: str) -> None:
    from millrace.clients.kinesis.shard_reader import ShardReader

    source = KinesisStreamSource(emulator.door, f"app-{uuid.uuid4().hex[:8]}", stream, latest=False, interval=0)
    about, well = emulator.door.stream(stream), False
    faults = Faults(lambda action, _: (500, "InternalFailure") if action == "PutItem" and not well else None)
    client = source.open()
    with failing(emulator.dynamodb_port, faults) as endpoint:
        client.leases = TableLeases(emulator.door, source._application, "a", endpoint)
        assert client.leases.load(about) is None
        client.reader = ShardReader(emulator.door, ShardReadLimit(stream, about.created))
        note = {"start": None, "end": client.reader.reach.to_json(), "count": 0}
        assert not source.commit(note, client)
        well = True
        assert source.commit(note, client)
        assert client.leases.load(about)
        source.close(client)
