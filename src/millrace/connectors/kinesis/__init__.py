"""Kinesis: streams of AWS as a source and as a sink on Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from millrace.atomic_files import write_whole
from millrace.clients.kinesis.client import Kinesis
from millrace.connectors.base.api import RunContext, Sink, retry_timeout_option
from millrace.connectors.base.message_source import PartitionedSource, bad_start, data_loss_option
from millrace.dead_letters.writer import DeadLetterTarget, FolderDeadLetterTarget
from millrace.errors.transport import errors_in_transport
from millrace.pipeline.connector_facts import OptionMistake, RecordForm
from millrace.plugins import option
from millrace.units import parse_duration, parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_CARRIED = {"key": "binary", "stream": "string", "shard": "string", "sequence": "string", "timestamp": "timestamp"}


@dataclass(frozen=True, kw_only=True)
class KinesisAccess:
    """The options that sources and sinks have alike: where the service is, and what lets us in."""

    region: str | None = option(None, "The region of AWS.", shown_default="that of the AWS settings")
    endpoint: str | None = option(None, "Another address of the service, as http://127.0.0.1:4567.")
    retry_timeout: float = retry_timeout_option(
        "How long requests are repeated while the service is away or has no capacity."
    )
    profile: str | None = option(None, "A profile of the AWS settings.")
    access_key: str | None = option(None, "The id of a key.", secret=True, shown_default="as AWS finds it")
    secret_key: str | None = option(None, "The key.", secret=True)
    session_token: str | None = option(None, "The token of a temporary key.", secret=True)
    role: str | None = option(None, "The ARN of a role to take on.")

    @property
    def door(self) -> Kinesis:
        return Kinesis(
            region=self.region,
            endpoint=self.endpoint,
            patience=self.retry_timeout,
            profile=self.profile,
            access_key=self.access_key,
            secret_key=self.secret_key,
            session_token=self.session_token,
            role=self.role,
        )

    def bad_access(self, stream: str) -> Iterator[OptionMistake]:
        if find_spec("boto3") is None:
            message, hint = "kinesis needs the package boto3, which is not installed", "pip install 'millrace[kinesis]'"
            yield OptionMistake("extra.missing", message, None, hint)
        if not _NAME.fullmatch(stream):
            hint = "a stream's name has letters, digits, '.', '_' and '-', at most 128 of them"
            yield OptionMistake("option.invalid", f"there can be no stream named {stream!r}", None, hint)
        if (self.access_key is None) != (self.secret_key is None):
            yield OptionMistake("option.missing", "access_key and secret_key go together", "access_key")


@dataclass(frozen=True, kw_only=True)
class KinesisSource(KinesisAccess, PartitionedSource):
    """A stream of Kinesis: its shards, with those that splits and merges make of them."""

    carried: ClassVar[dict[str, str]] = _CARRIED
    dead_letters_in_state_dir: ClassVar[bool] = True

    stream: str = option(help="The stream.", argument=True)
    start: str = option("earliest", "Where to begin: earliest, latest, a time, or 1h ago.")
    max_per_batch: int | None = option(None, "Maximum number of Kinesis records in a batch.", least=1)
    poll: float = option(
        0.25, "How often a shard is asked that had nothing new.", parse=parse_duration, shown_default="250ms"
    )
    on_data_loss: str = data_loss_option()

    @property
    def not_replayed(self) -> str | None:
        """A replay reads a part of topics: nobody says yet which part of a stream that would be."""
        return "replay knows the offsets of Kafka and files, not those of Kinesis"

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from super().mistakes()
        yield from self.bad_access(self.stream)
        yield from bad_start("kinesis", self.start, "write earliest, latest, 2026-05-01T12:00:00Z, or 1h ago")

    def resources(self) -> tuple[str, ...]:
        return (f"stream {self.stream}",)

    def prepare(self, context: RunContext) -> None:
        del context
        self.door.stream(self.stream)

    def load(self, context: RunContext) -> DataFrame:
        from millrace.connectors.kinesis.source import ShardSourceSpec, stream_source

        continues, since = self.on_data_loss == "continue", self._since(context)
        event_time = self.event_time(context.watermark)
        kind = stream_source(
            ShardSourceSpec(self.door, self.stream, since, self.max_per_batch, self.poll, continues, event_time)
        )
        context.spark.dataSource.register(kind)
        return context.spark.readStream.format(kind.name()).load()

    def dead_letter_target(self, context: RunContext) -> DeadLetterTarget:
        return FolderDeadLetterTarget(context.state / "dead" / context.name, context.pipeline, context.name)

    def _since(self, context: RunContext) -> int | None:
        """When reading begins, kept so that every query of the pipeline begins at the same records."""
        if self.start == "earliest":
            return None
        path = context.state / "starts" / f"{context.name}.json"
        if not path.exists():
            latest = self.start == "latest"
            at = self.door.now(self.stream) if latest else int(parse_time(self.start).timestamp() * 1000)
            write_whole(path, json.dumps({"start": self.start, "at": at}))
        return int(json.loads(path.read_text("utf-8"))["at"])


@dataclass(frozen=True, kw_only=True)
class KinesisSink(KinesisAccess, Sink):
    """A stream of Kinesis; it must be there. Records that are refused for want of capacity are sent again."""

    delivery_guarantee: ClassVar[str] = (
        "at least once: a batch that is run again, and a request without an answer, are sent again"
    )
    unique_columns: ClassVar[bool] = True

    name: str = option(help="The stream.", argument=True)
    key: tuple[str, ...] = option(
        (), "The column that is the partition key, or several.", shown_default="by chance", columns=True
    )
    format: str = option("json", "How the record is written.", choices=("json", "csv", "text", "raw"))
    value: tuple[str, ...] = option((), "The columns that make the record.", shown_default="all", columns=True)
    largest: int = option(1024 * 1024, "Bytes that the stream takes in a record, with its key.", least=1)

    def mistakes(self) -> Iterator[OptionMistake]:
        yield from self.bad_access(self.name)

    def resources(self, table: str) -> tuple[str, ...]:
        del table
        return (f"stream {self.name}",)

    def record_form(self) -> RecordForm:
        return RecordForm(self.format, self.value)

    def prepare(self, context: RunContext) -> None:
        del context
        self.door.stream(self.name)

    def shape(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        from millrace.connectors.base.message_source import encoded_key, encoded_value

        value = encoded_value(list(self.value) or frame.columns, self.format).cast("binary").alias("value")
        key = encoded_key(frame, self.key) if self.key else F.lit(None)
        return frame.select(value, key.cast("string").alias("key"))

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        from millrace.connectors.kinesis.sink import PUT_RESULT, KinesisBatchWriter

        del batch, context
        with errors_in_transport():
            frame.mapInArrow(KinesisBatchWriter(self.door, self.name, self.largest), PUT_RESULT).collect()
