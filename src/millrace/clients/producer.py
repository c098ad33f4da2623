"""Records into a topic: acknowledged, counted, never lost without a word."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from millrace.clients.cluster import Cluster
from millrace.clients.records import Done, Record
from millrace.errors import InvalidOption, MillraceError, NotDelivered

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
_TRANSACTION_TIMEOUT = 60.0
_LONGEST = 2_000_000.0
"""Seconds that the client can count in milliseconds."""


Report = Callable[[KafkaError | None, Message | None], None]
"""Called by the client for each record, when its fate is known."""


@dataclass(frozen=True)
class Delivery:
    """How records are sent; raises when the choices contradict each other."""

    acks: str = "all"
    idempotence: bool | None = None
    compression: str = "lz4"
    transaction: str | None = None
    timeout: float = 120.0
    linger: float = 0.02

    def __post_init__(self) -> None:
        _require(self.acks in ACKS, f"acks cannot be {self.acks!r}", "use 0, 1 or all")
        _require(
            self.compression in COMPRESSIONS,
            f"there is no compression {self.compression!r}",
            f"use one of {', '.join(COMPRESSIONS)}",
        )
        _require(
            self.linger < self.timeout <= _LONGEST,
            f"a record cannot be given {self.timeout:g} s to arrive",
            "use a timeout from 100ms to 20d",
        )
        _require(
            self.transaction is None or (self.transaction != "" and self.transaction.isprintable()),
            f"{self.transaction!r} cannot be the id of a transaction",
            "use letters, digits, '.', '_' and '-'",
        )
        _require(
            not (self.transaction and self.idempotence is False),
            "a transaction cannot go without idempotence",
            "leave --no-idempotence out",
        )
        _require(
            self.acks == "all" or not (self.idempotence or self.transaction),
            f"acks={self.acks} cannot go with idempotence or a transaction",
            "they need --acks all, which is the default",
        )

    def config(self) -> dict[str, Any]:
        """The properties for the client."""
        return {
            "acks": self.acks,
            "enable.idempotence": self.acks == "all" if self.idempotence is None else self.idempotence,
            "compression.type": self.compression,
            "linger.ms": self.linger * 1000,
            "message.timeout.ms": int(self.timeout * 1000),
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            **self._transactional(),
        }

    def _transactional(self) -> dict[str, Any]:
        """A transaction may not end before the records in it do."""
        if not self.transaction:
            return {}
        longest = max(_TRANSACTION_TIMEOUT, self.timeout)
        return {"transactional.id": self.transaction, "transaction.timeout.ms": int(longest * 1000)}


class Producer:
    """Sends records to one topic and counts what became of each.

    `send` may be called from one thread at a time; `done` callbacks come from whichever thread serves the
    client: the sender's own, or that of `serve_in_background`.
    """

    def __init__(self, cluster: Cluster, topic: str, delivery: Delivery | None = None) -> None:
        self.cluster = cluster
        self.topic = topic
        self.delivered = 0
        self.failed = 0
        self.reason: MillraceError | None = None
        self._in_transaction = False
        self._initialised = False
        self._failed_before = 0
        how = delivery or Delivery()
        self._transactional = how.transaction is not None
        with cluster.speaking("open a producer"):
            self._client = ConfluentProducer({**cluster.config(), **how.config()})
        self._served = threading.Event()
        self._server: threading.Thread | None = None

    def send(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Hand records to the client, waiting while its queue is full."""
        report = _Countdown(len(records), self._delivered, done) if done else self._delivered
        produce, topic = self._client.produce, self.topic
        for record in records:
            value, key, timestamp, headers, partition = record
            try:
                if timestamp is None and not headers and partition is None:
                    produce(topic, value, key, -1, report)  # by position: this is where the time goes
                else:
                    self._produce(record, report)
            except BufferError:
                self._wait_and_produce(record, report)
            except KafkaException as error:  # refused before it was queued: too large, fenced, fatal
                report(error.args[0], None)
        self._serve(0)

    def _produce(self, record: Record, report: Report) -> None:
        value, key, timestamp, headers, partition = record
        place = -1 if partition is None else partition
        if timestamp is None:
            self._client.produce(self.topic, value, key, place, report, headers=list(headers))
        else:
            self._client.produce(self.topic, value, key, place, report, timestamp=timestamp, headers=list(headers))

    def _wait_and_produce(self, record: Record, report: Report) -> None:
        while True:
            self._serve(0.1)
            try:
                return self._produce(record, report)
            except BufferError:
                continue
            except KafkaException as error:
                return report(error.args[0], None)

    def serve_in_background(self) -> None:
        """Report deliveries as they come, also while nothing is sent."""

        def serve() -> None:
            while not self._served.is_set():
                self._serve(0.1)

        self._server = threading.Thread(target=serve, name="kafka-deliveries", daemon=True)
        self._server.start()

    @property
    def transactional(self) -> bool:
        """Whether everything sent belongs to a transaction."""
        return self._transactional

    def flush(self, seconds: float | None = None) -> None:
        """Wait until every record is delivered or has failed (`Delivery.timeout` bounds it), or so long."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self.waiting() and (deadline is None or time.monotonic() < deadline):
            self._serve(0.1)

    def waiting(self) -> int:
        """How many records are sent and neither delivered nor failed yet."""
        return len(self._client)

    def give_up(self) -> None:
        """Forget the records that wait; each is counted as failed."""
        self._client.purge()
        self.flush()

    def close(self) -> None:
        """Flush and stop serving."""
        self.flush()
        self._served.set()
        if self._server:
            self._server.join()

    def begin(self) -> None:
        """Open the transaction that everything sent from now on belongs to."""
        with self.cluster.speaking("begin a transaction"):
            if not self._initialised:
                self._client.init_transactions(self.cluster.timeout)
                self._initialised = True
            self._client.begin_transaction()
        self._in_transaction = True
        self._failed_before = self.failed

    def commit(self) -> None:
        """Make everything that was sent visible at once; raises when any record failed, after aborting."""
        self.flush()
        if self.failed > self._failed_before:
            with contextlib.suppress(MillraceError):  # a fenced producer cannot; nothing is seen either way
                self.abort()
            raise self.failure()
        with self.cluster.speaking("commit the transaction"):
            self._client.commit_transaction(self.cluster.timeout)
        self._in_transaction = False

    def abort(self) -> None:
        """Make everything that was sent invisible for readers of committed records."""
        if not self._in_transaction:
            return
        self._serve(0)
        with self.cluster.speaking("abort the transaction"):  # which forgets what is not sent yet
            self._client.abort_transaction(self.cluster.timeout)
        self._in_transaction = False

    def failure(self) -> MillraceError:
        """What to raise when records failed."""
        return NotDelivered(
            f"{self.failed:,} of {self.failed + self.delivered:,} records were not taken by topic {self.topic!r}",
            why=self.reason.message if self.reason else None,
            hint=(self.reason and self.reason.hint) or "look at millrace kafka status and send them again",
        )

    def _serve(self, seconds: float) -> None:
        """Take reports. A fatal error is raised here, once; each record it concerns is then reported as failed."""
        try:
            self._client.poll(seconds)
        except KafkaException as error:
            self.reason = self.reason or self._problem(error.args[0])

    def _delivered(self, problem: KafkaError | None, _: Message | None) -> None:
        if problem is None:
            self.delivered += 1
        else:
            self.failed += 1
            self.reason = self.reason or self._problem(problem)

    def _problem(self, problem: KafkaError) -> MillraceError:
        return self.cluster.error(problem, f"write to topic {self.topic!r}")


class _Countdown:
    """Calls `done` when the last record of a send is settled."""

    def __init__(self, left: int, report: Report, done: Done) -> None:
        self.left = left
        self.report = report
        self.done = done
        self.reason: MillraceError | None = None
        if not left:
            done(None)

    def __call__(self, problem: KafkaError | None, message: Message | None) -> None:
        self.report(problem, message)
        self.left -= 1
        if problem is not None and self.reason is None:
            self.reason = NotDelivered("a record was not taken", why=problem.str())
        if not self.left:
            self.done(self.reason)


def new_transaction() -> str:
    """An id for a transaction that nobody else has."""
    return f"millrace-{uuid.uuid4()}"


def _require(holds: bool, what: str, hint: str) -> None:
    if not holds:
        raise InvalidOption(what, hint=hint)
