"""KinesisUtils as it was in PySpark, on boto3: the driver reads ahead and decides what a batch has; tasks decode it.

What completed batches have read is noted every checkpointInterval in a DynamoDB table of the application's name, as the
Kinesis Client Library does, or in a file (`spark.millrace.kinesis.leases`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.storagelevel import StorageLevel

from millrace.clients.kinesis.client import Kinesis
from millrace.clients.kinesis.kcl_leases import FileLeases, Leases, TableLeases
from millrace.clients.kinesis.kpl_aggregation import unpacked
from millrace.clients.kinesis.shard_positions import SequenceRange, ShardReadLimit, records_between
from millrace.clients.kinesis.shard_reader import Record, ShardReader, read_again
from millrace.dstreams.batch_log import Note
from millrace.dstreams.errors import decoder_failed
from millrace.dstreams.kafka_types import Decoder, utf8_decoder
from millrace.dstreams.source import DStreamBatch, StreamSource, stream_of
from millrace.errors import InvalidOption, KinesisFailed, KinesisUnreachable, UnknownStream

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.streaming import DStream, StreamingContext

LEASES = "spark.millrace.kinesis.leases"
"""Where leases are kept: `dynamodb`, the address of one (http://…), or a folder (file:///…)."""
LOST = "spark.millrace.kinesis.lost"
_READ = "_millrace_kinesis_read"
_LOG = logging.getLogger("millrace.kinesis")


class InitialPositionInStream:
    """Where an application begins that has read nothing yet."""

    LATEST, TRIM_HORIZON = (0, 1)


class MetricsLevel:
    """What the receiver of old sent to CloudWatch; nothing is sent now."""

    DETAILED, SUMMARY, NONE = (0, 1, 2)


_Held = list[tuple[str, bytes]]
"""Sequence numbers and data."""


class _Open:
    """What a program has open of one stream."""

    def __init__(self) -> None:
        self.tail: ShardReader | None = None
        self.leases: Leases | None = None
        self.done: ShardReadLimit | None = None
        """What is done and not noted yet."""
        self.noted = 0.0


@dataclass(frozen=True)
class _Part:
    """A span of one shard, with its records where they are at hand."""

    door: Kinesis
    stream: str
    span: SequenceRange
    held: _Held | None
    go_on: bool

    def decoded(self, decoder: Decoder) -> Iterator[Any]:
        """In a task; those that the Kinesis Producer Library has packed are taken apart."""
        held = self.held or _held(read_again(self.door, self.stream, self.span, go_on=self.go_on))
        for sequence, data in held:
            inside = unpacked(data)
            for one in (data,) if inside is None else (record for _, record in inside):
                try:
                    made = decoder(one)
                except Exception as error:
                    record = f"the record {sequence} of {self.span.shard} of stream {self.stream!r}"
                    raise decoder_failed("decoder", record, error) from error
                yield made


def _held(records: Iterable[Record]) -> _Held:
    return [(one["SequenceNumber"], one["Data"]) for one in records]


class KinesisStreamSource(StreamSource):
    """A stream of Kinesis, read by an application of a name."""

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
        self._door, self._application, self._name = door, application, name
        self._latest, self._interval, self._decoder = latest, interval, decoder
        self._owner = uuid.uuid4().hex
        self.idle = False
        """Whether another stream of the program reads all shards for this application."""

    def described(self) -> str:
        """The stream."""
        return f"Kinesis stream {self._name} as {self._application}"

    def open(self) -> _Open:
        """Nothing before the first batch: settings are known then."""
        return _Open()

    def decide(self, before: Note | None, batch: DStreamBatch, opened: _Open) -> Note:
        """What was read ahead, as far as the limits of the program allow."""
        if self.idle:
            return self.nothing(before)
        start = ShardReadLimit.of(before["end"]) if before else None
        go_on = batch.setting(LOST) == "go_on"
        if opened.tail is None:
            opened.leases = opened.leases or self._leases(batch)
            opened.tail = ShardReader(self._door, start or self._begun(opened.leases), go_on=go_on)
            opened.tail.wait(min(2.0, batch.seconds / 2))  # else the first batch would always be empty
            if start is None:
                # Where it begins is noted before anything is read: who crashes now begins there again.
                opened.leases.save(opened.tail.reach, opened.tail.listed)
        began = opened.tail.reach
        end = opened.tail.take(self._most(batch))
        spans = records_between(began, end)
        count = sum(len(opened.tail.taken(span) or ()) for span in spans)
        return {"start": began.told(), "end": end.told(), "count": count}

    def nothing(self, before: Note | None) -> Note:
        """As far as the batch before."""
        if before is None:
            return {"start": None, "end": ShardReadLimit(self._name, 0).told(), "count": 0}
        return {"start": before["end"], "end": before["end"], "count": 0}

    def read(self, note: Note, batch: DStreamBatch, opened: _Open) -> RDD[Any]:
        """The records of each shard, in a partition of its own."""
        start = ShardReadLimit.of(note["start"]) if note["start"] else ShardReadLimit(self._name, 0)
        parts = [
            _Part(self._door, self._name, span, self._at_hand(opened, span), batch.setting(LOST) == "go_on")
            for span in records_between(start, ShardReadLimit.of(note["end"]))
        ]
        if not parts:
            return batch.context.emptyRDD()
        decoder = self._decoder
        return batch.context.parallelize(parts, len(parts)).flatMap(lambda part: part.decoded(decoder))

    def count(self, note: Note) -> int:
        """Records of Kinesis."""
        return int(note["count"])

    def settle(self, note: Note, opened: _Open) -> bool:
        """Noted when the interval has passed; until then it is asked again."""
        if self.idle:
            return True
        opened.done = ShardReadLimit.of(note["end"])
        if time.monotonic() - opened.noted < self._interval:
            return False
        try:
            self._note(opened, briefly=True)
        except (KinesisUnreachable, KinesisFailed) as error:
            _LOG.warning("%s; it is tried again with the next batch", error.message)
            return False
        return True

    def close(self, opened: _Open) -> None:
        """What is done is noted, however long the interval has still to go."""
        if opened.tail:
            opened.tail.close()
        self._note(opened)

    def _note(self, opened: _Open, *, briefly: bool = False) -> None:
        if opened.done and opened.leases and opened.tail:
            opened.leases.save(opened.done, opened.tail.listed, briefly=briefly)
            opened.done, opened.noted = None, time.monotonic()

    def _begun(self, leases: Leases) -> ShardReadLimit:
        """Where the application was, or where one begins that never was."""
        stream = self._door.stream(self._name)
        known = leases.load(stream)
        if known is not None:
            return known
        return ShardReadLimit(self._name, stream.created, self._door.now(self._name) if self._latest else None)

    def _leases(self, batch: DStreamBatch) -> Leases:
        chosen = batch.setting(LEASES, "dynamodb")
        if chosen.startswith("file:"):
            return FileLeases(Path(unquote(urlsplit(chosen).path)) / f"{self._application}.json")
        if chosen != "dynamodb" and not chosen.startswith(("http://", "https://")):
            hint = "write dynamodb, the address of one as http://127.0.0.1:8000, or a folder as file:///var/leases"
            raise InvalidOption(f"{LEASES} cannot be {chosen!r}", hint=hint)
        return TableLeases(self._door, self._application, self._owner, None if chosen == "dynamodb" else chosen)

    def _most(self, batch: DStreamBatch) -> int | None:
        rate = batch.received().rate
        return max(1, round(rate * batch.seconds)) if rate else None

    @staticmethod
    def _at_hand(opened: _Open, span: SequenceRange) -> _Held | None:
        records = opened.tail.taken(span) if opened.tail else None
        return _held(records) if records else None


class KinesisUtils:
    """Streams of Kinesis for a StreamingContext."""

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
        """A DStream of the records of a stream, decoded, at least once each; exactly once in state with a checkpoint.

        Before Spark 3 there was no `metricsLevel`: a storage level in its place is understood, and the keys after it.
        Neither is used: nothing is sent to CloudWatch, and what is read ahead is held by the driver.
        Programs of old made one for each shard and united them: the first one reads all shards, the others nothing.
        The keys are in the context's checkpoint, as they always were; without them AWS's usual ways find some.
        """
        keys = awsAccessKeyId, awsSecretKey
        if isinstance(metricsLevel, StorageLevel) and not isinstance(storageLevel, StorageLevel):
            decoder = awsSecretKey if callable(awsSecretKey) else decoder
            keys = storageLevel, awsAccessKeyId
        if initialPositionInStream not in (InitialPositionInStream.LATEST, InitialPositionInStream.TRIM_HORIZON):
            hint = "InitialPositionInStream.LATEST, or InitialPositionInStream.TRIM_HORIZON"
            raise InvalidOption(f"a stream cannot be begun at {initialPositionInStream!r}", hint=hint)
        door = Kinesis(
            region=regionName,
            endpoint=endpointUrl,
            access_key=keys[0],
            secret_key=keys[1],
            role=stsAssumeRoleArn,
            role_session=stsSessionName or kinesisAppName,
            role_external_id=stsExternalId,
        )
        _require(door, streamName)
        latest = initialPositionInStream == InitialPositionInStream.LATEST
        interval = float(checkpointInterval)
        inflow = KinesisStreamSource(
            door, kinesisAppName, streamName, latest=latest, interval=interval, decoder=decoder
        )
        inflow.idle = not _is_first(ssc, door, kinesisAppName, streamName)
        return stream_of(ssc, inflow)


def _is_first(ssc: StreamingContext, door: Kinesis, application: str, name: str) -> bool:
    """Whether the application reads nothing in this program yet; raises where it reads another stream."""
    read: dict[tuple[str | None, ...], str] = ssc.__dict__.setdefault(_READ, {})
    first = (place := (door.region, door.endpoint, application)) not in read
    if (other := read.setdefault(place, name)) != name:
        what = f"application {application!r} reads stream {other!r}, it cannot read {name!r} too"
        hint = "give each stream an application's name of its own"
        raise InvalidOption(
            what, why="an application has one lease for each shard, and shards have the same names", hint=hint
        )
    return first


def _require(door: Kinesis, name: str) -> None:
    """The stream is there, and we are let in: told before anything starts."""
    if not name:
        raise UnknownStream("a stream must have a name")
    door.stream(name)
