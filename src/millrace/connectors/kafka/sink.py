"""Kafka: topics as a source and as a sink on Spark, and as a sink for the records of feeds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

from confluent_kafka import KafkaException

from millrace.clients import topics
from millrace.clients.access import is_access
from millrace.clients.cluster import Cluster
from millrace.clients.delivery import Delivery
from millrace.clients.letters import SUFFIX, dead_topic
from millrace.clients.producer import Producer
from millrace.clients.records import Done, Record
from millrace.connectors.base import Sink, Tally, Target
from millrace.connectors.burying import Burial, KafkaBurial
from millrace.connectors.carried import carry
from millrace.connectors.messages import Decoded
from millrace.connectors.outlet import Outlet
from millrace.connectors.partitions.choosing import followed, in_bulk
from millrace.connectors.producing import bad_properties, in_our_names
from millrace.connectors.starts import begun, by_topic, forget, pinned
from millrace.connectors.stream import Decoding, Site, Writer
from millrace.errors import InvalidOption, MillraceError
from millrace.pipeline.facts import Mistake
from millrace.plugins import option
from millrace.units import parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class KafkaSink(Sink):
    """A topic; it is made if it is not there."""

    promise = "in order, once each as long as the process lives (idempotent, acks=all)"

    def __init__(self, target: Target) -> None:
        if not target.topic or not target.cluster:
            raise InvalidOption("Kafka needs a topic", hint="add --topic NAME")
        cluster = target.cluster()
        topics.ensure(cluster, target.topic)
        self.place = f"{target.topic}@{cluster.connect().cluster_id}"
        self._say = target.say
        delivery = Delivery() if target.patience is None else Delivery(timeout=target.patience)
        self._producer = Producer(cluster, target.topic, delivery, target.stop)

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Queue records; waits while too many are on their way."""
        self._producer.send(records, done)

    def tally(self) -> Tally:
        """What Kafka has acknowledged and refused so far; a refusal that was told by `done` is no reason to end."""
        producer = self._producer
        return Tally(producer.delivered, producer.failed, producer.failure() if producer.reason else None)

    def close(self) -> Tally:
        """Wait for the acknowledgements that are still due."""
        self._producer.close(self._say)
        return self.tally()


_PROTOCOL = {"transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks"}
_ONE_CLUSTER = "every client of a run needs it: --kafka-config FILE, or MILLRACE_KAFKA_SASL_… and MILLRACE_KAFKA_SSL_…"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CARRIED = {
    "key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key: string, value: binary>>",
}
_RAW = {"value": "binary", **_CARRIED}
_EARLIEST = -2
"""What Spark's source takes for the beginning of a partition."""


@dataclass(frozen=True, kw_only=True)
class KafkaReader(Decoded):
    """Topics of a Kafka cluster."""

    carried: ClassVar[dict[str, str]] = _CARRIED
    realtime: ClassVar[bool] = True
    continuous: ClassVar[bool] = True

    topic: tuple[str, ...] = option((), "The topic, or several.", argument=True)
    pattern: str | None = option(None, "Every topic whose name matches this regular expression.")
    partitions: Mapping[str, Any] | None = option(None, "Only these partitions, as {posts: [0, 1]}.")
    start: str | Mapping[str, Any] = option(
        "earliest", "Where to begin: earliest, latest, a time, 1h ago, or offsets as {posts: {0: 23}}."
    )
    max_per_batch: int | None = option(
        None, "At most so many records in a batch.", least=1, shown_default="all; in bulk, as many as take about 10 s"
    )
    isolation: str = option(
        "read_committed",
        "Whether records of open and aborted transactions are read.",
        choices=("read_committed", "read_uncommitted"),
    )
    lost: str = option("fail", "When records are gone before they were read.", choices=("fail", "go_on"))
    min_tasks: int | None = option(None, "Read with at least so many tasks, even from fewer partitions.", least=1)
    current: bool = option(False, "Read the generation of the topic that counts, where replay has made several.")
    config: Mapping[str, Any] | None = option(None, "More properties of the Kafka consumer, in Java's names.")

    @property
    def goes_on(self) -> bool:
        """As the pipeline says."""
        return self.lost == "go_on"

    @property
    def not_replayed(self) -> str | None:
        """What is retained can be read by everybody."""
        return None

    def mistakes(self) -> Iterator[Mistake]:
        """Not exactly one way to name topics, or a start that cannot be read."""
        yield from super().mistakes()
        if sum(map(bool, (self.topic, self.pattern, self.partitions))) != 1:
            yield Mistake("option.missing", "kafka needs exactly one of: a topic, pattern or partitions")
        if self.current and not self.topic:
            yield Mistake("option.invalid", "current is for topics that are named", "current")
        yield from _bad_names(self.topic or tuple(self.partitions or ()))
        yield from _access(self.config)
        if isinstance(self.start, str) and self.start not in ("earliest", "latest"):
            try:
                parse_time(self.start)
            except InvalidOption:
                hint = "write earliest, latest, 2026-05-01T12:00:00Z, 1h ago, or offsets as {posts: {0: 23}}"
                yield Mistake("option.invalid", f"kafka cannot start at {self.start!r}", "start", hint)

    def prepare(self, site: Site) -> None:
        """Make the topics that are missing, and those of the dead letters."""
        for name in self.topics():
            _ensure(site, name)
        if self.keeps_letters:
            self._prepare_dead(site)

    def _prepare_dead(self, site: Site) -> None:
        cluster = site.cluster()
        if site.create_topics:
            names = self._graves(site, cluster)
            KafkaBurial(cluster, site.pipeline, site.name, names).prepare(self.topics_now(cluster))
            return
        for name in self.topics_now(cluster):
            topics.require(cluster.connect(), dead_topic(f"{name}{site.mark}"))

    def _graves(self, site: Site, cluster: Cluster) -> dict[str, str]:
        """The topics of dead letters that have other names than usual."""
        return {name: dead_topic(f"{name}{site.mark}") for name in self.topics_now(cluster)} if site.mark else {}

    def touches(self) -> tuple[str, ...]:
        """The topics that are named."""
        return tuple(f"topic {name}" for name in self.topics())

    def topics(self) -> tuple[str, ...]:
        """As the pipeline says."""
        return self.topic or tuple(self.partitions or ())

    def load(self, site: Site) -> DataFrame:
        """The rows of Spark's Kafka source, or the same in columns."""
        return self.opened(site, None)[0]

    def opened(self, site: Site, decoding: Decoding | None) -> tuple[DataFrame, bool]:
        """In bulk, decoded where they are read."""
        if not in_bulk(self, site):
            return self._by_sparks_source(site), False
        if decoding:
            return followed(self, site, decoding.needs, decoding.ddl, decoding), True
        return followed(self, site, tuple(_RAW), ", ".join(f"{name} {kind}" for name, kind in _RAW.items())), False

    def _by_sparks_source(self, site: Site) -> DataFrame:
        rows = site.spark.readStream.format("kafka").options(**self._options(site)).load().select(*_RAW)
        return site.span.part(rows, site.name) if site.span else rows

    def burial(self, site: Site) -> Burial:
        """Each topic's dead letters go to the topic of its name with `.dead`."""
        other = () if self.decoder == "arrow" else (self.decoder,)
        judged = repr((site.state_id, self.format, self.schema, self.included, self.more, *other))
        lineage = sha256(judged.encode()).hexdigest()[:12]
        return KafkaBurial(
            site.cluster(),
            site.pipeline,
            site.name,
            self._graves(site, site.cluster()),
            lineage=lineage,
            create=bool(self.pattern and site.create_topics),
        )

    @property
    def matching(self) -> str | None:
        """The pattern without the topics of dead letters: what is read from there would only die again."""
        return rf"(?!.*{re.escape(SUFFIX)}$)(?:{self.pattern})" if self.pattern else None

    def topics_now(self, cluster: Cluster) -> list[str]:
        """The topics that are read, as far as they are known."""
        if self.matching:
            found = (name for name in cluster.connect().topics if not name.startswith("__"))
            return sorted(name for name in found if re.fullmatch(self.matching, name))
        return list(self.topic or (self.partitions or {}))

    def places_now(self, cluster: Cluster) -> list[tuple[str, int]]:
        """The partitions that are read, as far as they are known."""
        existing = cluster.connect().topics
        found = [name for name in self.topics_now(cluster) if name in existing]
        numbers = {name: sorted(existing[name].partitions) for name in found}
        if self.partitions:
            numbers = {name: [one for one in numbers.get(name, ()) if one in self.partitions[name]] for name in found}
        return [(name, number) for name in found for number in numbers[name]]

    def _options(self, site: Site) -> dict[str, str]:
        cluster = site.cluster()
        chosen = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.isolation.level": self.isolation,
            "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
            "includeHeaders": "true",
            "failOnDataLoss": str(self.lost == "fail").lower(),
            **{f"kafka.{name}": value for name, value in cluster.java_properties().items()},
            **{f"kafka.{name}": str(value) for name, value in (self.config or {}).items()},
            **self._subscription(),
            **self._beginning(site, cluster),
        }
        most = self.max_per_batch or (site.span.most if site.span else None)
        if most:
            chosen["maxOffsetsPerTrigger"] = str(most)
        if self.min_tasks:
            chosen["minPartitions"] = str(self.min_tasks)
        return chosen

    def _subscription(self) -> dict[str, str]:
        if self.matching:
            return {"subscribePattern": self.matching}
        if self.partitions:
            return {"assign": json.dumps({name: list(numbers) for name, numbers in self.partitions.items()})}
        return {"subscribe": ",".join(self.topic)}

    def _beginning(self, site: Site, cluster: Cluster) -> dict[str, str]:
        if known := begun(site, self.topics_now(cluster)):
            every = by_topic(dict.fromkeys(self.places_now(cluster), _EARLIEST))
            return {"startingOffsets": json.dumps({name: each | known.get(name, {}) for name, each in every.items()})}
        forget(site)
        if site.span and site.span.knows(self.topics_now(cluster)):
            return {"startingOffsets": json.dumps(site.span.starting(self.places_now(cluster)))}
        if self.start == "earliest":
            return {"startingOffsets": "earliest"}
        if self.start == "latest":
            return {"startingOffsets": json.dumps(pinned(site, cluster, self.places_now(cluster)))}
        if isinstance(self.start, str):
            moment = int(parse_time(self.start).timestamp() * 1000)
            return {"startingTimestamp": str(moment), "startingOffsetsByTimestampStrategy": "latest"}
        return {"startingOffsets": json.dumps({topic: dict(offsets) for topic, offsets in self.start.items()})}


@dataclass(frozen=True, kw_only=True)
class KafkaWriter(Writer):
    """A topic of a Kafka cluster; it is made if it is not there."""

    realtime: ClassVar[bool] = True
    continuous: ClassVar[bool] = True

    topic: str = option("", "The topic.", argument=True)
    key: tuple[str, ...] = option((), "The column that is the record's key, or several.")
    format: str = option("json", "How the value is written.", choices=("json", "csv", "text", "raw", "avro"))
    value: tuple[str, ...] = option((), "The columns that make the value.", shown_default="all")
    topic_column: str | None = option(None, "A column that names each record's topic.")
    partition: str | None = option(None, "A column that gives each record's partition.")
    headers: str | None = option(None, "A column of headers: array<struct<key: string, value: binary>>.")
    guarantee: str = option(
        "exactly-once",
        "Whether rows go in transactions, or by Spark's own sink, which may write a batch twice after a crash.",
        choices=("exactly-once", "at-least-once"),
    )
    config: Mapping[str, Any] | None = option(None, "More properties of the Kafka producer.")
    avro_schema: str | None = option(None, "For avro: the schema, or a file of it.", shown_default="from the columns")
    registry: str | None = option(None, "For avro: the address of a schema registry.")

    def mistakes(self) -> Iterator[Mistake]:
        """No topic at all; options of Avro without it."""
        if not self.topic and not self.topic_column:
            yield Mistake("option.missing", "kafka needs a topic, or topic_column")
        yield from _bad_names((self.topic,) if self.topic else ())
        yield from _access(self.config)
        for name in sorted(_PROTOCOL & set(self.config or ())) if self.exclusive else ():
            hint = "leave it out, or say guarantee: at-least-once"
            yield Mistake("option.invalid", f"{name} is what exactly-once rests on", "config", hint)
        yield from bad_properties(self.config) if self.exclusive else ()
        if self.format != "avro" and (self.registry or self.avro_schema):
            yield Mistake("option.invalid", "registry and avro_schema are for format: avro", "format")

    @property
    def promise(self) -> str:  # type: ignore[override]
        """What is guaranteed, with the trigger that has batches; the others have Spark's own sink."""
        if self.exclusive:
            return "exactly once, for readers with isolation.level=read_committed; at least once without batches"
        return "at least once: a batch that is run again after a crash is written again"

    @property
    def exclusive(self) -> bool:
        """With transactions."""
        return self.guarantee == "exactly-once"

    @property
    def repeatable(self) -> bool:  # type: ignore[override]
        """With transactions."""
        return self.exclusive

    def prepare(self, site: Site) -> None:
        """Make the topic if it is missing."""
        if self.topic:
            _ensure(site, self.topic)
        if self.exclusive and site.batches:
            self._outlet(site).prepare()

    def require_newest(self, site: Site) -> None:
        """What its transactions have noted is known to the checkpoint."""
        if self.exclusive and site.batches:
            from millrace.connectors.transacting import require_newest

            outlet = self._outlet(site)
            try:
                require_newest(site, outlet)
            except KafkaException as error:
                raise outlet.problem(error) from error

    def release(self, site: Site) -> None:
        """End the transactions of a batch that is not done."""
        if self.exclusive and site.batches:
            from millrace.connectors.transacting import release

            release(site, self._outlet(site))

    def in_generation(self, number: int) -> Mapping[str, Any] | None:
        """A topic beside it; not where rows name their topics themselves."""
        return None if self.topic_column else {"topic": f"{self.topic}.g{number}"}

    def is_there(self, site: Site) -> bool:
        """Whether there is such a topic."""
        return self.topic in site.cluster().connect().topics

    def prepare_like(self, other: Writer, site: Site) -> None:
        """Make the topic with the partitions, the copies and the settings of another."""
        cluster = site.cluster()
        like = other.topic if isinstance(other, KafkaWriter) else ""
        if like not in cluster.connect().topics or self.is_there(site):
            return
        (found,) = topics.describe(cluster, [like])
        topics.create(cluster, self.topic, len(found.partitions), found.replication, found.configs)

    def touches(self, table: str) -> tuple[str, ...]:
        """The topic that is named."""
        del table
        return (f"topic {self.topic}",) if self.topic else ()

    def shape(self, frame: DataFrame) -> DataFrame:
        """Key, value, headers, partition and topic, as Spark's Kafka sink wants them."""
        from millrace.connectors.encoding import encoded, key_text

        special = [name for name in (self.topic_column, self.partition, self.headers) if name]
        columns = list(self.value) or [name for name in frame.columns if name not in special]
        shaped = [encoded(frame, columns, self).alias("value")]
        shaped += [key_text(frame, self.key).alias("key")] if self.key else []
        shaped += [frame[self.topic_column].alias("topic")] if self.topic_column else []
        shaped += [frame[self.partition].cast("int").alias("partition")] if self.partition else []
        shaped += [frame[self.headers].alias("headers")] if self.headers else []
        return frame.select(*shaped)

    def write(self, frame: DataFrame, batch: int, site: Site) -> None:
        """Write a batch, in transactions or with Spark's Kafka sink."""
        if self.exclusive:
            from millrace.connectors.transacting import through, write_once

            outlet = self._outlet(site)
            try:
                write_once(frame if site.wired else through(frame, outlet), batch, site, outlet)
            except KafkaException as error:
                raise carry(outlet.problem(error)) from error
            except MillraceError as error:
                raise carry(error) from None
        else:
            frame.write.format("kafka").options(**self._options(site)).save()

    def stream(self, rows: DataStreamWriter, site: Site) -> DataStreamWriter:
        """Batch by batch; or Spark's own streaming sink, which is all that real-time mode knows."""
        if site.asks and not self.exclusive:
            return super().stream(rows, site)
        if self.exclusive and site.batches:
            from millrace.connectors.transacting import through

            return super().stream(through(rows._df, self._outlet(site)).writeStream, replace(site, wired=True))
        return rows.format("kafka").options(**self._options(site))

    def _outlet(self, site: Site) -> Outlet:
        where = f"{self.topic}={self.topic_column}" if self.topic_column else self.topic
        name = "/".join((site.pipeline, site.query or site.name, where, *((str(site.twin),) if site.twin else ())))
        return Outlet(site.cluster(), name, self.topic or None, site.create_topics, in_our_names(self.config))

    def _options(self, site: Site) -> dict[str, str]:
        cluster = site.cluster()
        return {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.acks": "all",
            # Without batches each row leaves at once: there is nothing to gather, and little to compress.
            **({"kafka.compression.type": "lz4"} if site.batches else {"kafka.linger.ms": "0"}),
            **({"topic": self.topic} if self.topic and not self.topic_column else {}),
            **({"includeHeaders": "true"} if self.headers else {}),
            **{f"kafka.{name}": value for name, value in cluster.java_properties().items()},
            **{f"kafka.{name}": str(value) for name, value in (self.config or {}).items()},
        }


def _bad_names(names: Sequence[str]) -> Iterator[Mistake]:
    for name in names:
        if not _NAME.fullmatch(name) or name in (".", ".."):
            hint = "a topic's name has letters, digits, '.', '_' and '-', at most 249 of them"
            yield Mistake("option.invalid", f"there can be no topic named {name!r}", None, hint)


def _access(config: Mapping[str, Any] | None) -> Iterator[Mistake]:
    """The cluster and who we are to it: half of the clients would not be told."""
    for name in config or ():
        if is_access(name) or name == "bootstrap.servers":
            said = f"{name} is said of the cluster, not of a source or sink"
            yield Mistake("option.invalid", said, "config", _ONE_CLUSTER)


def _ensure(site: Site, name: str) -> None:
    if site.create_topics:
        topics.ensure(site.cluster(), name)
    else:
        topics.require(site.cluster().connect(), name)
