"""The transactional ids of a sink, and the batches that its tasks have committed to Kafka.

- Each task of a sink has a transactional id (`sink_transactional_id`). Producers stay open in the worker process.
- A task commits the number of its batch in the transaction of its rows, as the offset of a consumer group for a
  partition of the ledger. The ledger is the topic `millrace.ledger`, which has no records.
- `CommitLedger` opens and keeps the producers, reads the commits, and turns errors of Kafka into ours.

`exactly_once` has the protocol; docs/decisions/0016-exactly-once.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import FENCED, REFUSED, Cluster
from millrace.clients.kafka.transactions import CommittedOffsets, DeliveryFailed, TransactionalProducer
from millrace.clients.pool import Pool
from millrace.errors import KafkaFailed, MillraceError, RecordRefused, TakenOver, TopicGone

LEDGER = "millrace.ledger"
"""The ledger topic, one for a cluster."""
_LEDGER_PARTITIONS = 50
"""A sink of more tasks has more groups."""
_TRANSACTION_TIMEOUT_S = 600.0
"""How long a task may take from its first row to its last."""
_DELIVERY_TIMEOUT_S = 120.0
"""How long a record is sent again before the task fails."""
_UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}

_PRODUCERS: Pool[TransactionalProducer] = Pool(64)
_COMMITTED: Pool[CommittedOffsets] = Pool(8)
_LEDGER_IDS: dict[tuple[object, ...], str] = {}
"""By cluster; on the driver only."""


def sink_transactional_id(sink: str, task: int) -> str:
    """Return the transactional id of a task of a sink."""
    return f"millrace.sink/{sink}/{task}"


def sink_group(sink: str, task: int) -> str:
    """Return the consumer group in which a task of a sink commits what it has written."""
    return f"millrace.sink/{sink}" + (f"#{task // _LEDGER_PARTITIONS}" if task >= _LEDGER_PARTITIONS else "")


@dataclass(frozen=True)
class BatchCommit:
    """What the last transaction of a task has committed: a batch of a query, and the producer that wrote it."""

    query: str = ""
    batch: int = -1
    producer: str = ""
    plan: str = ""
    """Distinguishes the batch from one of the same number that a copy of the state folder has planned."""

    @classmethod
    def of(cls, offset: int, text: str) -> BatchCommit:
        """Return what was committed; an empty one for foreign text, as of a group that was reset."""
        query, slash, rest = text.partition("/")
        producer, _, plan = rest.partition("/")
        return cls(query, offset - 1, producer, plan) if slash and offset > 0 else cls()

    def includes(self, query: str, batch: int) -> bool:
        """Return whether a batch of a query is written."""
        return self.query == query and self.batch >= batch


@dataclass(frozen=True)
class CommitLedger:
    """The commits of one sink; can be pickled."""

    cluster: Cluster = field(repr=False)
    name: str
    """The pipeline, the query and the topic, with slashes between them, which none of them can contain."""
    topic: str | None = None
    """The topic of rows that do not name one themselves."""
    create: bool = False
    """Whether a missing topic that a row names is created."""
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", replace(self.cluster))  # without open connections, which cannot be pickled

    def producer(self, task: int, last: BatchCommit, *, reopen: bool) -> AbstractContextManager[TransactionalProducer]:
        """Lend the producer of a task, which owns its transactional id.

        A producer that was kept still owns the id if the last commit went through it, since every new owner commits.
        After a failed attempt that is not certain, and the producer is opened again.
        """
        return _PRODUCERS.borrow(
            (self.cluster.key, sink_transactional_id(self.name, task)),
            partial(self.open_producer, task),
            lambda kept: not reopen and last.producer == kept.instance,
        )

    def has_open_producer(self, task: int) -> bool:
        """Return whether this process has kept the producer of a task from an earlier batch."""
        return (self.cluster.key, sink_transactional_id(self.name, task)) in _PRODUCERS

    def open_producer(self, task: int) -> TransactionalProducer:
        """Take over the transactional id of a task: its previous owner is fenced."""
        config = {
            "partitioner": "murmur2_random",  # as Java's clients do, so that a key stays in its partition
            "message.timeout.ms": round(_DELIVERY_TIMEOUT_S * 1000),
            **self.config,
        }
        transactional_id = sink_transactional_id(self.name, task)
        return TransactionalProducer(self.cluster, transactional_id, longest=_TRANSACTION_TIMEOUT_S, config=config)

    def abort_open_transaction(self, task: int, timeout_s: float) -> None:
        """Abort the transaction that a task left open; nothing is written."""
        cluster = replace(self.cluster, timeout=min(timeout_s, self.cluster.timeout))
        TransactionalProducer(cluster, sink_transactional_id(self.name, task), longest=timeout_s)

    def committed_batch(self, task: int) -> BatchCommit:
        """Return what the last transaction of a task has committed; wait for one that is about to end."""
        with self._committed_offsets(task) as committed:
            return BatchCommit.of(*committed.read(LEDGER, task % _LEDGER_PARTITIONS))

    def all_committed_batches(self, tasks: int) -> list[BatchCommit]:
        """Return the commits of all tasks, at least of as many as given; do not wait for open transactions."""
        commits: list[BatchCommit] = []
        for task in range(0, max(tasks, 1), _LEDGER_PARTITIONS):
            with self._committed_offsets(task, stable=False) as committed:
                positions = committed.read_all(LEDGER, range(_LEDGER_PARTITIONS))
            commits += [BatchCommit.of(*position) for position in positions]
        return commits

    @contextmanager
    def transaction(self, task: int, producer: TransactionalProducer, commit: BatchCommit) -> Iterator[None]:
        """Run a block whose records are committed together with a batch, as that of this producer, or not at all."""
        text = "/".join((commit.query, producer.instance, commit.plan))
        position = TopicPartition(LEDGER, task % _LEDGER_PARTITIONS, commit.batch + 1, text)
        with self._committed_offsets(task) as committed:
            group = committed.group
        with producer.transaction(position, group):
            yield

    def retention_s(self) -> float:
        """Return for how long Kafka stores the offsets of a group that does not commit."""
        return offsets.offset_retention_s(self.cluster)

    def read_ledger_id(self) -> None:
        """Read Kafka's id of the ledger, before a query starts; `ledger_id` then has it."""
        _LEDGER_IDS.pop(self.cluster.key, None)
        with suppress(KafkaFailed):  # a broker that does not know the topic yet, or is too old to have ids
            _LEDGER_IDS[self.cluster.key] = topics.identity(self.cluster, LEDGER)

    @property
    def ledger_id(self) -> str:
        """Return Kafka's id of the ledger: one that was deleted and created again has another, and no commits."""
        return _LEDGER_IDS.get(self.cluster.key, "")

    def require_topic(self, producer: TransactionalProducer, topic: str) -> None:
        """Raise if a topic that a row names does not exist and may not be created."""
        try:
            producer.partitions(topic)
        except KafkaException as error:
            if not self.create or error.args[0].code() not in _UNKNOWN_TOPIC:
                raise
            topics.ensure(self.cluster, topic)

    def prepare(self) -> None:
        """Create the ledger if it is missing and may be created."""
        if self.create:
            topics.ensure(self.cluster, LEDGER, _LEDGER_PARTITIONS)
        else:
            topics.require(self.cluster.connect(), LEDGER)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise Kafka's errors of a block as ours."""
        try:
            yield
        except KafkaException as error:
            raise self._problem(error) from error

    def _problem(self, error: KafkaException) -> MillraceError:
        problem: KafkaError = error.args[0]
        where = f"topic {self.topic!r}" if self.topic else "a topic"
        if problem.code() in FENCED:
            return TakenOver(
                f"another run writes to {where} under the name {self.name!r}",
                why="a run that was started later has fenced this one, or a task took too long "
                f"(it has {_TRANSACTION_TIMEOUT_S:.0f} s from its first row to its last)",
                hint="stop one of the two runs; if there is only one, make batches smaller (max_per_batch)",
            )
        if problem.code() in REFUSED and isinstance(error, DeliveryFailed):
            hint = f"allow larger records: millrace kafka topics alter {self.topic} --config max.message.bytes=N"
            return RecordRefused(f"{where} refuses a record", why=problem.str(), hint=hint)
        if problem.code() in _UNKNOWN_TOPIC:
            return TopicGone(f"{where} was deleted, or has no such partition", why=problem.str())
        return self.cluster.error(problem, f"write to {where}")

    def _committed_offsets(self, task: int, *, stable: bool = True) -> AbstractContextManager[CommittedOffsets]:
        group = sink_group(self.name, task)
        open_committed = partial(CommittedOffsets, self.cluster, group, stable=stable)
        return _COMMITTED.borrow((self.cluster.key, group, stable), open_committed)
