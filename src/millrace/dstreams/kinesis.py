"""KinesisUtils of PySpark on boto3: the driver reads ahead and decides what a batch reads; tasks decode the records.

Every checkpointInterval, the positions of completed batches are saved in a DynamoDB table with the application's name,
as the Kinesis Client Library does, or in a file (`spark.millrace.kinesis.leases`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark import RDD
from pyspark.storagelevel import StorageLevel
from pyspark.streaming import DStream, StreamingContext

from millrace.clients.kinesis.client import Kinesis
from millrace.clients.kinesis.kcl_leases import FileLeases, Leases, TableLeases
from millrace.clients.kinesis.kpl_aggregation import deaggregate
from millrace.clients.kinesis.shard_positions import SequenceRange, ShardReadLimit, records_between
from millrace.clients.kinesis.shard_reader import Record, ShardReader, read_again
from millrace.dstreams.batch_log import BatchInput
from millrace.dstreams.errors import decoder_failed
from millrace.dstreams.kafka_types import Decoder, utf8_decoder
from millrace.dstreams.source import DStreamBatch, StreamSource, stream_of
from millrace.errors import InvalidOption, KinesisFailed, KinesisUnreachable, UnknownStream

LEASES = "spark.millrace.kinesis.leases"
"""Where leases are stored: `dynamodb`, the address of one (http://…), or a folder (file:///…)."""
LOST = "spark.millrace.kinesis.lost"
_READ = "_millrace_kinesis_read"
_LOG = logging.getLogger("millrace.kinesis")


class InitialPositionInStream:
    """Where an application starts that has read nothing yet."""

    LATEST, TRIM_HORIZON = (0, 1)


class MetricsLevel:
    """What PySpark's receiver sent to CloudWatch; nothing is sent now."""

    DETAILED, SUMMARY, NONE = (0, 1, 2)


_ShardRecords = list[tuple[str, bytes]]
"""Sequence numbers and data."""


@dataclass
class _KinesisDriverClient:
    """The driver's reader and leases of one stream."""

    reader: ShardReader | None = None
    leases: Leases | None = None
    completed: ShardReadLimit | None = None
    """What is done and not saved in the leases yet."""
    saved_at: float = 0.0


@dataclass(frozen=True)
class _ShardSlice:
    """A range of one shard, with its records if the driver still has them."""

    kinesis: Kinesis
    stream: str
    range: SequenceRange
    records: _ShardRecords | None
    skip_lost: bool

    def decoded(self, decoder: Decoder) -> Iterator[Any]:
        """Return the decoded records, in a task; aggregates of the Kinesis Producer Library are split."""
        records = self.records or _shard_records(
            read_again(self.kinesis, self.stream, self.range, skip_lost=self.skip_lost)
        )
        for sequence, data in records:
            aggregated = deaggregate(data)
            for content in (data,) if aggregated is None else (record for _, record in aggregated):
                try:
                    decoded = decoder(content)
                except Exception as error:
                    record = f"the record {sequence} of {self.range.shard} of stream {self.stream!r}"
                    raise decoder_failed("decoder", record, error) from error
                yield decoded


def _shard_records(records: Iterable[Record]) -> _ShardRecords:
    return [(record["SequenceNumber"], record["Data"]) for record in records]


class KinesisStreamSource(StreamSource):
    """A Kinesis stream, read by an application with a name."""

    def __init__(
        self,
        door: Kinesis,
        application: str,
        name: str,
        *,
        latest: bool,
        interval: float,
        decoder: Decoder = utf8_decoder,
    ) -> None:
        super().__init__()
        # The names of these attributes are in checkpoints.
        self._door, self._application, self._name = door, application, name
        self._latest, self._interval, self._decoder = latest, interval, decoder
        self._owner = uuid.uuid4().hex
        self.idle = False
        """Whether another stream of the program reads all shards for this application."""

    def description(self) -> str:
        return f"Kinesis stream {self._name} as {self._application}"

    def open(self) -> _KinesisDriverClient:
        """Return a client that connects with the first batch, when the settings are known."""
        return _KinesisDriverClient()

    def next_input(self, previous: BatchInput | None, batch: DStreamBatch, client: _KinesisDriverClient) -> BatchInput:
        """Return what was read ahead, as far as the program's limits allow."""
        if self.idle:
            return self.empty_input(previous)
        start = ShardReadLimit.of(previous["end"]) if previous else None
        if client.reader is None:
            client.leases = client.leases or self._leases(batch)
            begin = start or self._start(client.leases)
            client.reader = ShardReader(self._door, begin, skip_lost=_continues_on_data_loss(batch))
            client.reader.wait(min(2.0, batch.seconds / 2))  # else the first batch would always be empty
            if start is None:
                # The start is saved before anything is read: a program that crashes now starts there again.
                client.leases.save(client.reader.reach, client.reader.listed)
        begin = client.reader.reach
        rate = batch.with_receiver_limit().rate
        end = client.reader.take(max(1, round(rate * batch.seconds)) if rate else None)
        count = sum(len(client.reader.taken(range_) or ()) for range_ in records_between(begin, end))
        return {"start": begin.to_json(), "end": end.to_json(), "count": count}

    def empty_input(self, previous: BatchInput | None) -> BatchInput:
        """Return an empty input at the end of the previous batch."""
        end = previous["end"] if previous else ShardReadLimit(self._name, 0).to_json()
        return {"start": end if previous else None, "end": end, "count": 0}

    def read(self, batch_input: BatchInput, batch: DStreamBatch, client: _KinesisDriverClient) -> RDD[Any]:
        start = batch_input["start"]
        begin = ShardReadLimit.of(start) if start else ShardReadLimit(self._name, 0)
        continues = _continues_on_data_loss(batch)
        slices = [
            _ShardSlice(self._door, self._name, range_, self._records_ahead(client, range_), continues)
            for range_ in records_between(begin, ShardReadLimit.of(batch_input["end"]))
        ]
        if not slices:
            return batch.context.emptyRDD()
        decoder = self._decoder
        return batch.context.parallelize(slices, len(slices)).flatMap(lambda part: part.decoded(decoder))

    def record_count(self, batch_input: BatchInput) -> int:
        """Return the number of Kinesis records; an aggregate counts once."""
        return int(batch_input["count"])

    def commit(self, batch_input: BatchInput, client: _KinesisDriverClient) -> bool:
        """Save the end of the input in the leases if the interval has passed."""
        if self.idle:
            return True
        client.completed = ShardReadLimit.of(batch_input["end"])
        if time.monotonic() - client.saved_at < self._interval:
            return False
        try:
            self._save(client, briefly=True)
        except (KinesisUnreachable, KinesisFailed) as error:
            _LOG.warning("%s; it is tried again with the next batch", error.message)
            return False
        return True

    def close(self, client: _KinesisDriverClient) -> None:
        """Save what is completed, even if the interval has not passed."""
        if client.reader:
            client.reader.close()
        self._save(client)

    def _save(self, client: _KinesisDriverClient, *, briefly: bool = False) -> None:
        if client.completed and client.leases and client.reader:
            client.leases.save(client.completed, client.reader.listed, briefly=briefly)
            client.completed, client.saved_at = None, time.monotonic()

    def _start(self, leases: Leases) -> ShardReadLimit:
        """Return where the application was, or the initial position of a new one."""
        stream = self._door.stream(self._name)
        if (saved := leases.load(stream)) is not None:
            return saved
        return ShardReadLimit(self._name, stream.created, self._door.now(self._name) if self._latest else None)

    def _leases(self, batch: DStreamBatch) -> Leases:
        chosen = batch.setting(LEASES, "dynamodb")
        if chosen.startswith("file:"):
            return FileLeases(Path(unquote(urlsplit(chosen).path)) / f"{self._application}.json")
        if chosen != "dynamodb" and not chosen.startswith(("http://", "https://")):
            hint = "write dynamodb, the address of one as http://127.0.0.1:8000, or a folder as file:///var/leases"
            raise InvalidOption(f"{LEASES} cannot be {chosen!r}", hint=hint)
        return TableLeases(self._door, self._application, self._owner, None if chosen == "dynamodb" else chosen)

    @staticmethod
    def _records_ahead(client: _KinesisDriverClient, range_: SequenceRange) -> _ShardRecords | None:
        records = client.reader.taken(range_) if client.reader else None
        return _shard_records(records) if records else None


def _continues_on_data_loss(batch: DStreamBatch) -> bool:
    return batch.setting(LOST) in ("continue", "go_on")


class KinesisUtils:
    """Kinesis streams for a StreamingContext."""

    @staticmethod
    def createStream(  # noqa: N802 - as it was in PySpark
        ssc: StreamingContext,
        kinesisAppName: str,  # noqa: N803
        streamName: str,  # noqa: N803
        endpointUrl: str | None,  # noqa: N803
        regionName: str,  # noqa: N803
        initialPositionInStream: int,  # noqa: N803
        checkpointInterval: float,  # noqa: N803
        metricsLevel: Any = MetricsLevel.DETAILED,  # noqa: N803
        storageLevel: Any = StorageLevel.MEMORY_AND_DISK_2,  # noqa: N803
        awsAccessKeyId: Any = None,  # noqa: N803
        awsSecretKey: Any = None,  # noqa: N803
        decoder: Decoder = utf8_decoder,
        stsAssumeRoleArn: str | None = None,  # noqa: N803
        stsSessionName: str | None = None,  # noqa: N803
        stsExternalId: str | None = None,  # noqa: N803
    ) -> DStream[Any]:
        """Return a DStream of the decoded records of a stream: at least once, exactly once in state with a checkpoint.

        `metricsLevel` and `storageLevel` have no effect: nothing is sent to CloudWatch, and the driver holds what is
        read ahead. As before Spark 3, a storage level may be in the place of `metricsLevel`, and the keys after it.
        Programs used to create one stream for each shard and union them: the first reads all shards, the others none.
        The keys are in the context's checkpoint, as in PySpark; without them boto3's default credentials are used.
        """
        keys = awsAccessKeyId, awsSecretKey
        if isinstance(metricsLevel, StorageLevel) and not isinstance(storageLevel, StorageLevel):
            decoder = awsSecretKey if callable(awsSecretKey) else decoder
            keys = storageLevel, awsAccessKeyId
        if initialPositionInStream not in (InitialPositionInStream.LATEST, InitialPositionInStream.TRIM_HORIZON):
            hint = "InitialPositionInStream.LATEST, or InitialPositionInStream.TRIM_HORIZON"
            raise InvalidOption(f"a stream cannot start at {initialPositionInStream!r}", hint=hint)
        kinesis = Kinesis(
            region=regionName,
            endpoint=endpointUrl,
            access_key=keys[0],
            secret_key=keys[1],
            role=stsAssumeRoleArn,
            role_session=stsSessionName or kinesisAppName,
            role_external_id=stsExternalId,
        )
        if not streamName:
            raise UnknownStream("a stream must have a name")
        kinesis.stream(streamName)  # raises, before anything starts, if it does not exist or access is denied
        latest = initialPositionInStream == InitialPositionInStream.LATEST
        interval = float(checkpointInterval)
        source = KinesisStreamSource(
            kinesis, kinesisAppName, streamName, latest=latest, interval=interval, decoder=decoder
        )
        source.idle = not _is_first(ssc, kinesis, kinesisAppName, streamName)
        return stream_of(ssc, source)


def _is_first(ssc: StreamingContext, kinesis: Kinesis, application: str, name: str) -> bool:
    """Return whether this is the application's first stream in the program; raise if it reads another one."""
    read: dict[tuple[str | None, ...], str] = ssc.__dict__.setdefault(_READ, {})
    first = (key := (kinesis.region, kinesis.endpoint, application)) not in read
    if (other := read.setdefault(key, name)) != name:
        what = f"application {application!r} reads stream {other!r}, it cannot read {name!r} too"
        hint = "give each stream an application's name of its own"
        raise InvalidOption(
            what, why="an application has one lease for each shard, and shards have the same names", hint=hint
        )
    return first
