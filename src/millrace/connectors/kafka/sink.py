"""Topics of Kafka as a sink on Spark, and as a sink for the records of feeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer

from millrace.clients.kafka import topics
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Done, Record
from millrace.connectors.base.api import RunContext, Sink
from millrace.connectors.base.record_sink import DeliveryReport, RecordSink, SinkTarget
from millrace.connectors.kafka.commit_ledger import CommitLedger
from millrace.connectors.kafka.topic_options import access_in_config, bad_topic_names, ensure_topic
from millrace.errors import InvalidOption
from millrace.errors.transport import errors_in_transport
from millrace.pipeline.connector_facts import OptionMistake, RecordForm
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_OTHER_NAMES = {"max.request.size": "message.max.bytes", "delivery.timeout.ms": "message.timeout.ms"}
"""What Java's producer calls otherwise than the client that writes in transactions."""


def in_our_names(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The properties in the names of the client that writes in transactions."""
    return {_OTHER_NAMES.get(key, key): value for key, value in (config or {}).items()}


def bad_properties(config: Mapping[str, Any] | None) -> Iterator[OptionMistake]:
    """Each one that the client does not know, or whose value it does not take."""
    for name, value in in_our_names(config).items():
        if problem := _problem(name, str(value)):
            hint = "it takes librdkafka's names and values; those of Java go with guarantee: at-least-once"
            yield OptionMistake("option.invalid", f"the Kafka producer does not take {name}", "config", hint, problem)


@lru_cache(256)
def _problem(name: str, value: str) -> str | None:
    try:
        ConfluentProducer({name: value, "log_level": 0})
    except KafkaException as error:
        text: str = error.args[0].str().strip()
        # What else it says is of properties that only make sense together, or of files that are elsewhere.
        return text if "configuration property" in text.lower() else None
    return None


class KafkaRecordSink(RecordSink):
    """A topic; it is made if it is not there."""

    delivery_guarantee = "in order, once each as long as the process lives (idempotent, acks=all)"

    def __init__(self, target: SinkTarget) -> None:
        if not target.topic or not target.cluster:
            raise InvalidOption("Kafka needs a topic", hint="add --topic NAME")
        cluster = target.cluster()
        topics.ensure(cluster, target.topic)
        self.place = f"{target.topic}@{cluster.connect().cluster_id}"
        self._say = target.say
        delivery = Delivery() if target.patience is None else Delivery(timeout=target.patience)
        self._producer = Producer(cluster, target.topic, delivery, target.stop)

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        self._producer.send(records, done)

    def tally(self) -> DeliveryReport:
        """What Kafka has acknowledged and refused so far; a refusal that `done` has reported is no reason to stop."""
        producer = self._producer
        return DeliveryReport(producer.delivered, producer.failed, producer.failure() if producer.reason else None)

    def close(self) -> DeliveryReport:
        self._producer.close(self._say)
        return self.tally()


_PROTOCOL = {"transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks"}


@dataclass(frozen=True, kw_only=True)
class KafkaSink(Sink):
    """A topic of a Kafka cluster; it is made if it is not there."""

    realtime: ClassVar[bool] = True
    continuous: ClassVar[bool] = True
    updates_by_key: ClassVar[bool] = True
    unique_columns: ClassVar[bool] = True

    topic: str = option("", "The topic.", argument=True)
    key: tuple[str, ...] = option((), "The column that is the record's key, or several.", columns=True)
    format: str = option("json", "How the value is written.", choices=("json", "csv", "text", "raw", "avro"))
    value: tuple[str, ...] = option((), "The columns that make the value.", shown_default="all", columns=True)
    topic_column: str | None = option(None, "A column that names each record's topic.", columns=True)
    partition: str | None = option(None, "A column that gives each record's partition.", columns=True)
    headers: str | None = option(None, "A column of headers: array<struct<key: string, value: binary>>.", columns=True)
    guarantee: str = option(
        "exactly-once",
        "Whether rows go in transactions, or by Spark's own sink, which may write a batch twice after a crash.",
        choices=("exactly-once", "at-least-once"),
    )
    config: Mapping[str, Any] | None = option(None, "More properties of the Kafka producer.")
    avro_schema: str | None = option(None, "For avro: the schema, or a file of it.", shown_default="from the columns")
    registry: str | None = option(None, "For avro: the address of a schema registry.")

    def mistakes(self) -> Iterator[OptionMistake]:
        if not self.topic and not self.topic_column:
            yield OptionMistake("option.missing", "kafka needs a topic, or topic_column")
        yield from bad_topic_names((self.topic,) if self.topic else ())
        yield from access_in_config(self.config)
        for name in sorted(_PROTOCOL & set(self.config or ())) if self.needs_single_writer else ():
            hint = "leave it out, or say guarantee: at-least-once"
            yield OptionMistake("option.invalid", f"{name} is what exactly-once rests on", "config", hint)
        yield from bad_properties(self.config) if self.needs_single_writer else ()
        if self.format != "avro" and (self.registry or self.avro_schema):
            yield OptionMistake("option.invalid", "registry and avro_schema are for format: avro", "format")

    @property
    def delivery_guarantee(self) -> str:  # type: ignore[override]
        """What is guaranteed, with the trigger that has batches; the others have Spark's own sink."""
        if self.needs_single_writer:
            return "exactly once, for readers with isolation.level=read_committed; at least once without batches"
        return "at least once: a batch that is run again after a crash is written again"

    @property
    def needs_single_writer(self) -> bool:
        return self.guarantee == "exactly-once"

    def prepare(self, context: RunContext) -> None:
        if self.topic:
            ensure_topic(context, self.topic)
        if self.needs_single_writer and context.batches:
            self._commit_ledger(context).prepare()

    def require_newest(self, context: RunContext) -> None:
        if self.needs_single_writer and context.batches:
            from millrace.connectors.kafka.exactly_once import require_newest

            ledger = self._commit_ledger(context)
            with ledger.translated_errors():
                require_newest(context, ledger)

    def release(self, context: RunContext) -> None:
        if self.needs_single_writer and context.batches:
            from millrace.connectors.kafka.exactly_once import release_transactions

            release_transactions(context, self._commit_ledger(context))

    def in_generation(self, number: int) -> Mapping[str, Any] | None:
        """A topic beside it; not where rows name their topics themselves."""
        return None if self.topic_column else {"topic": f"{self.topic}.g{number}"}

    def is_there(self, context: RunContext) -> bool:
        return self.topic in context.cluster().connect().topics

    def prepare_like(self, other: Sink, context: RunContext) -> None:
        cluster = context.cluster()
        like = other.topic if isinstance(other, KafkaSink) else ""
        if like not in cluster.connect().topics or self.is_there(context):
            return
        (topic,) = topics.describe(cluster, [like])
        topics.create(cluster, self.topic, len(topic.partitions), topic.replication, topic.configs)

    def resources(self, table: str) -> tuple[str, ...]:
        del table
        return (f"topic {self.topic}",) if self.topic else ()

    def record_form(self) -> RecordForm:
        return RecordForm(self.format, self.value, self._special)

    @property
    def _special(self) -> tuple[str, ...]:
        """The columns that are parts of the record besides its value."""
        return tuple(name for name in (self.topic_column, self.partition, self.headers) if name)

    def shape(self, frame: DataFrame) -> DataFrame:
        from millrace.connectors.base.message_source import avro_encoded_value, encoded_key, encoded_value
        from millrace.formats.avro import Avro

        columns = list(self.value) or [name for name in frame.columns if name not in self._special]
        if self.format == "avro":
            avro = Avro(avro_schema=self.avro_schema, registry=self.registry, subject=f"{self.topic}-value")
            shaped = [avro_encoded_value(frame, columns, avro).alias("value")]
        else:
            shaped = [encoded_value(columns, self.format).alias("value")]
        shaped += [encoded_key(frame, self.key).alias("key")] if self.key else []
        shaped += [frame[self.topic_column].alias("topic")] if self.topic_column else []
        shaped += [frame[self.partition].cast("int").alias("partition")] if self.partition else []
        shaped += [frame[self.headers].alias("headers")] if self.headers else []
        return frame.select(*shaped)

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        if self.needs_single_writer:
            from millrace.connectors.kafka.exactly_once import with_transactional_writer, write_batch

            ledger = self._commit_ledger(context)
            with errors_in_transport(), ledger.translated_errors():
                writing = frame if context.writer_in_plan else with_transactional_writer(frame, ledger)
                write_batch(writing, batch, context, ledger)
        else:
            frame.write.format("kafka").options(**self._options(context)).save()

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        """Batch by batch; or Spark's own streaming sink, which is all that real-time mode knows."""
        if context.checks_ownership_per_batch and not self.needs_single_writer:
            return super().stream(rows, context)
        if self.needs_single_writer and context.batches:
            from millrace.connectors.kafka.exactly_once import with_transactional_writer

            writing = with_transactional_writer(rows._df, self._commit_ledger(context))
            return super().stream(writing.writeStream, replace(context, writer_in_plan=True))
        return rows.format("kafka").options(**self._options(context))

    def _commit_ledger(self, context: RunContext) -> CommitLedger:
        where = f"{self.topic}={self.topic_column}" if self.topic_column else self.topic
        name = f"{context.pipeline}/{context.query or context.name}/{where}"
        name += f"/{context.duplicate_index}" if context.duplicate_index else ""
        config = in_our_names(self.config)
        return CommitLedger(context.cluster(), name, self.topic or None, context.create_topics, config)

    def _options(self, context: RunContext) -> dict[str, str]:
        cluster = context.cluster()
        return {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.acks": "all",
            # Without batches each row leaves at once: there is nothing to gather, and little to compress.
            **({"kafka.compression.type": "lz4"} if context.batches else {"kafka.linger.ms": "0"}),
            **({"topic": self.topic} if self.topic and not self.topic_column else {}),
            **({"includeHeaders": "true"} if self.headers else {}),
            **{f"kafka.{name}": value for name, value in cluster.java_properties().items()},
            **{f"kafka.{name}": str(value) for name, value in (self.config or {}).items()},
        }
