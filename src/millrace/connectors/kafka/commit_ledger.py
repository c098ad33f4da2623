"""A sink's place in Kafka: the transactional ids of its tasks, and what is noted of the batches that they wrote.

Every task of a sink has a transactional id of its own, and commits with its rows, in the same transaction, the number
of their batch: as the offset of a group for a partition of the ledger, a topic that holds no records. See
docs/decisions/0016-exactly-once.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
"""One for a cluster; groups have their offsets in it."""
_PLACES = 50
"""Its partitions; a sink of more tasks has more groups."""
_LONGEST = 600.0
"""Seconds that a task may take from its first row to its last: a transaction cannot be without end."""
_PATIENCE = 120.0
"""Seconds after which rows that Kafka does not take fail the task."""
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}

_KEPT: Pool[TransactionalProducer] = Pool(64)
_ASKING: Pool[CommittedOffsets] = Pool(8)
_LEDGERS: dict[tuple[object, ...], str] = {}
"""By cluster; on the driver only."""


def sink_transactional_id(sink: str, task: int) -> str:
    """Return the transactional id of a task of a sink."""
    return f"millrace.sink/{sink}/{task}"


def sink_group(sink: str, task: int) -> str:
    """Return the consumer group in which a task of a sink commits what it has written."""
    return f"millrace.sink/{sink}" + (f"#{task // _PLACES}" if task >= _PLACES else "")


@dataclass(frozen=True)
class BatchCommit:
    """What a task's last transaction said: the batch it wrote, of which query, and the lane that it went through."""

    query: str = ""
    batch: int = -1
    lane: str = ""
    plan: str = ""
    """Tells the batch from another of its number, which a copy of the state folder has planned."""

    @classmethod
    def of(cls, offset: int, text: str) -> BatchCommit:
        """As it was committed; text that is none of ours (a group moved by hand) means that nothing is known."""
        query, mark, rest = text.partition("/")
        lane, _, plan = rest.partition("/")
        return cls(query, offset - 1, lane, plan) if mark and offset > 0 else cls()

    def says(self, query: str, batch: int) -> bool:
        """Whether a batch of a query is written."""
        return self.query == query and self.batch >= batch


@dataclass(frozen=True)
class CommitLedger:
    """One sink; can be pickled."""

    cluster: Cluster = field(repr=False)
    name: str
    """The pipeline, the query and where it writes, with a mark between them that none of them can have."""
    topic: str | None = None
    """Where rows go that do not say so themselves."""
    create: bool = False
    """Whether a topic that a row names is made when it is missing."""
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", replace(self.cluster))  # without open connections, which cannot travel

    @contextmanager
    def owned(self, number: int, note: BatchCommit, *, anew: bool) -> Iterator[TransactionalProducer]:
        """The lane of a task, ours alone from now on.

        One that was kept is still ours if the last note went through it, since whoever opens another notes something.
        After an attempt that failed that is not so, and the lane is opened `anew`.
        """
        with _KEPT.borrow(
            self._key(number), partial(self.open, number), lambda lane: not anew and note.lane == lane.instance
        ) as lane:
            yield lane

    def keeps(self, number: int) -> bool:
        """Whether this process has a task's lane of an earlier batch."""
        return self._key(number) in _KEPT

    def open(self, number: int) -> TransactionalProducer:
        """Take a task's id over: whoever had it can write nothing any more."""
        # As Java's clients do it, so that a key stays in its partition whoever writes it.
        config = {"partitioner": "murmur2_random", "message.timeout.ms": round(_PATIENCE * 1000), **self.config}
        return TransactionalProducer(self.cluster, self._identity(number), longest=_LONGEST, config=config)

    def end(self, number: int, within: float) -> None:
        """End what a task has left open, in so many seconds; nothing is written in its name."""
        TransactionalProducer(
            replace(self.cluster, timeout=min(within, self.cluster.timeout)), self._identity(number), longest=within
        )

    def committed_batch(self, number: int) -> BatchCommit:
        """What the last transaction of a task said; one that is about to end is waited for."""
        with self._asking(number) as progress:
            return BatchCommit.of(*progress.read(LEDGER, number % _PLACES))

    def all_committed_batches(self, tasks: int) -> list[BatchCommit]:
        """What is noted of any task, and at least of so many; what is open, and may be noted yet, is not waited for."""
        notes: list[BatchCommit] = []
        for number in range(0, max(tasks, 1), _PLACES):
            with self._asking(number, stable=False) as progress:
                notes += [BatchCommit.of(*told) for told in progress.read_all(LEDGER, range(_PLACES))]
        return notes

    @contextmanager
    def transaction(self, number: int, lane: TransactionalProducer, note: BatchCommit) -> Iterator[None]:
        """A block whose records are written together with the note, or not at all; the note is given our lane."""
        text = "/".join((note.query, lane.instance, note.plan))
        place = TopicPartition(LEDGER, number % _PLACES, note.batch + 1, text)
        with self._asking(number) as progress:
            group = progress.group
        with lane.transaction(place, group):
            yield

    def forgets_after(self) -> float:
        """Seconds after which Kafka may forget a note: it removes the offsets of groups that are silent for days."""
        return offsets.offset_retention_s(self.cluster)

    def look(self) -> None:
        """See which ledger there is, before a query is started: `ledger` then tells."""
        _LEDGERS.pop(self.cluster.key, None)
        with suppress(KafkaFailed):  # a broker that has not heard of it yet, or is too old to tell
            _LEDGERS[self.cluster.key] = topics.identity(self.cluster, LEDGER)

    @property
    def ledger(self) -> str:
        """Kafka's id of the ledger: one that was deleted and made anew has another, and no notes."""
        return _LEDGERS.get(self.cluster.key, "")

    def require(self, lane: TransactionalProducer, topic: str) -> None:
        """Raise when a topic that a row names is not there and cannot be made."""
        try:
            lane.partitions(topic)
        except KafkaException as error:
            if not self.create or error.args[0].code() not in _GONE:
                raise
            topics.ensure(self.cluster, topic)

    def prepare(self) -> None:
        """Make the ledger."""
        if self.create:
            topics.ensure(self.cluster, LEDGER, _PLACES)
        else:
            topics.require(self.cluster.connect(), LEDGER)

    def problem(self, error: KafkaException) -> MillraceError:
        """Our error for what Kafka says of a write."""
        problem: KafkaError = error.args[0]
        where = f"topic {self.topic!r}" if self.topic else "a topic"
        if problem.code() in FENCED:
            return TakenOver(
                f"somebody else writes to {where} in the name of {self.name!r}",
                why="a run that was started later has taken its transactions over, or this one took too long "
                f"(a task has {_LONGEST:.0f} s from its first row to its last)",
                hint="let one of two runs go on; make batches smaller (max_per_batch) if there is only one",
            )
        if problem.code() in REFUSED and isinstance(error, DeliveryFailed):
            return RecordRefused(
                f"{where} does not take a record",
                why=problem.str(),
                hint=f"let it take larger ones: millrace kafka topics alter {self.topic} --config max.message.bytes=N",
            )
        if problem.code() in _GONE:
            return TopicGone(
                f"{where} does not take rows: it is not there any more, or has no such partition", why=problem.str()
            )
        return self.cluster.error(problem, f"write to {where}")

    def _identity(self, number: int) -> str:
        return sink_transactional_id(self.name, number)

    def _key(self, number: int) -> tuple[object, ...]:
        return (self.cluster.key, self._identity(number))

    @contextmanager
    def _asking(self, number: int, *, stable: bool = True) -> Iterator[CommittedOffsets]:
        group = sink_group(self.name, number)
        make = partial(CommittedOffsets, self.cluster, group, stable=stable)
        with _ASKING.borrow((self.cluster.key, group, stable), make) as progress:
            yield progress
