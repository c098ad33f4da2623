"""Producers of records.

- `Delivery` is how records are sent: acknowledgements, idempotence, compression, transaction, timeout.
- `Producer` sends records to a topic, and counts those that are delivered and those that fail.
- `abort_transaction` aborts a transaction with retries.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer

from millrace.clients.kafka.cluster import REFUSED, Cluster
from millrace.clients.kafka.record import Done, Record
from millrace.errors import CommitUnknown, InvalidOption, MillraceError, NotDelivered, RecordRefused
from millrace.units import format_count

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
_MIN_TRANSACTION_TIMEOUT_S, _MAX_TRANSACTION_TIMEOUT_S = 60.0, 900.0
"""The upper one is the default limit of brokers (transaction.max.timeout.ms)."""
_MAX_TIMEOUT_S = 2_000_000.0
"""What the client can count in milliseconds."""


@dataclass(frozen=True)
class Delivery:
    """How records are sent. Raise InvalidOption if the choices contradict each other."""

    acks: str = "all"
    idempotence: bool | None = None
    compression: str | None = None
    transaction: str | None = None
    timeout: float = 120.0
    linger: float | None = None
    only_failures: bool = False
    """Report failures only, which is quicker; `done` of a send cannot be called then."""

    def __post_init__(self) -> None:
        _require(self.acks in ACKS, f"acks cannot be {self.acks!r}", "use 0, 1 or all")
        _require(
            self.compression in (None, *COMPRESSIONS),
            f"there is no compression {self.compression!r}",
            f"use one of {', '.join(COMPRESSIONS)}",
        )
        _require(
            (self.linger or 0.02) < self.timeout <= _MAX_TIMEOUT_S,
            f"a record cannot be given {self.timeout:g} s to arrive",
            "use a timeout from 100ms to 20d",
        )
        _require(
            self.transaction is None or (self.transaction != "" and self.transaction.isprintable()),
            f"{self.transaction!r} cannot be the id of a transaction",
            "use letters, digits, '.', '_' and '-'",
        )
        _require(
            not self.transaction or self.timeout <= _MAX_TRANSACTION_TIMEOUT_S,
            f"a transaction cannot be given {self.timeout:g} s",
            "use a timeout of at most 15m",
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

    def tuning(self) -> dict[str, Any]:
        """Return the properties that the user's client properties override."""
        return {
            "compression.type": "lz4",
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            # The topic's own limit decides, not the client's: its default is a tenth of this.
            "message.max.bytes": 10_000_000,
        }

    def config(self) -> dict[str, Any]:
        """Return the properties that were chosen here."""
        longest = int(1000 * max(_MIN_TRANSACTION_TIMEOUT_S, self.timeout))
        return {
            "acks": self.acks,
            "enable.idempotence": self.acks == "all" if self.idempotence is None else self.idempotence,
            "message.timeout.ms": int(self.timeout * 1000),
            **({"compression.type": self.compression} if self.compression else {}),
            **({"linger.ms": self.linger * 1000} if self.linger is not None else {}),
            **({"delivery.report.only.error": True} if self.only_failures else {}),
            # A transaction may take as long as its records.
            **({"transactional.id": self.transaction, "transaction.timeout.ms": longest} if self.transaction else {}),
        }


def new_transactional_id() -> str:
    """Return a unique transactional id."""
    return f"millrace-{uuid.uuid4()}"


def _require(holds: bool, what: str, hint: str) -> None:
    if not holds:
        raise InvalidOption(what, hint=hint)


_ABORT_ATTEMPT_TIMEOUT_S = 0.5


def abort_transaction(client: ConfluentProducer, seconds: float) -> None:
    """Abort a transaction within some seconds; raise the error of Kafka if that fails.

    Each attempt makes the client drop its queued records. A record that is queued again at this moment, for a retry, is
    missed, and the client would wait for it until its timeout. The next attempt drops it.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            client.abort_transaction(max(0.1, min(_ABORT_ATTEMPT_TIMEOUT_S, left)))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or left <= 0:
                raise


Report = Callable[[KafkaError | None, Message | None], None]
"""Called by the client for each record that is delivered or has failed."""


def produce_record(client: ConfluentProducer, topic: str, record: Record, report: Report) -> None:
    """Queue a record; raise BufferError while the queue is full."""
    value, key, timestamp, headers, partition = record
    number = -1 if partition is None else partition
    client.produce(topic, value, key, number, report, timestamp=timestamp or 0, headers=list(headers))


_POLL_INTERVAL_S = 0.02
"""How long a close may wait for the thread that polls."""
_CONNECT_TIMEOUT_S = 1.0
"""How long the request for a producer id may wait for each answer: without them the client asks by itself, later."""
_SENDER_POLL_S = 0.02
"""How long after a send the sender is expected to send again, and to poll reports itself."""
_NOTICE_AFTER_S = 2.0
"""How long a close may wait before the user is notified."""
_STOPPED = KafkaError(KafkaError._PURGE_QUEUE, "stopped before it was sent")


def request_producer_id(
    client: ConfluentProducer, topic: str | None = None, closed: Callable[[], bool] = lambda: False
) -> None:
    """Connect a client, so that it gets its producer id at once. A topic that does not exist may be created.

    It asks for the id when it has read metadata. If no broker is connected then, it asks again after half a second,
    and only then sends records. The first answer may come over the connection to the bootstrap server, which the
    client closes; the second comes from a broker that it stays connected to.
    """
    with contextlib.suppress(KafkaException):
        for _ in range(2):
            if not closed():
                client.list_topics(topic, timeout=_CONNECT_TIMEOUT_S)


class Producer:
    """Sends records to one topic, and counts those that are delivered and those that fail.

    Delivery reports are polled by the sender while it sends (that is fastest) and by a thread while it does not; never
    by both at once. They call `done` of the sends that have one, with the failure if a record fails. A failure of any
    other record becomes `reason` and sets `stop`, so that the sender can end at once. `stop` also ends a `send` that
    waits because the queue is full: the rest of its records are not sent.
    """

    def __init__(
        self, cluster: Cluster, topic: str, delivery: Delivery | None = None, stop: threading.Event | None = None
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.failed = 0
        self.reason: MillraceError | None = None
        self._first: MillraceError | None = None
        self._settled = self._sent = self._failed_before = 0
        self._delivery = delivery or Delivery()
        self._stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._polling = threading.Lock()
        self._busy_until = 0.0
        self._in_transaction = self._initialised = self._has_records = False
        with cluster.translated_errors("open a producer"):
            self._client = ConfluentProducer({**self._delivery.tuning(), **cluster.config(), **self._delivery.config()})
        self._closed = threading.Event()
        self._poll_thread = threading.Thread(target=self._poll_while_idle, name="kafka-deliveries", daemon=True)
        self._poll_thread.start()

    def send(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Queue records; wait while the queue is full."""
        self._has_records = True
        report = _Countdown(len(records), self, done) if done else self._delivered
        produce, topic = self._client.produce, self.topic
        for number, record in enumerate(records):
            value, key, timestamp, headers, partition = record
            try:
                if timestamp is None and not headers and partition is None:
                    produce(topic, value, key, -1, report)  # by position: this line takes most of the time
                else:
                    produce_record(self._client, topic, record, report)
            except BufferError:
                if not self._wait_and_produce(record, report):
                    for _ in records[number:] if done else ():
                        report(_STOPPED, None)
                    self._sent += number
                    return
            except KafkaException as error:  # refused before it was queued: too large, fenced, fatal
                report(error.args[0], None)
        self._sent += len(records)
        self._busy_until = time.monotonic() + _SENDER_POLL_S
        self._poll_reports(0, wait=False)

    @property
    def delivered(self) -> int:
        """Number of delivered records; while some are in flight, about."""
        if not self._delivery.only_failures:
            return self._settled
        return max(0, self._sent - self.failed - self.waiting())

    @property
    def transactional(self) -> bool:
        """Whether records are sent in a transaction."""
        return self._delivery.transaction is not None

    def stopped(self) -> bool:
        """Return whether the caller, or a failure, has set `stop`."""
        return self._stop.is_set()

    def waiting(self) -> int:
        """Return the number of records that are neither delivered nor failed yet."""
        return len(self._client)

    def flush(self, deadline: float | None = None) -> None:
        """Wait until every record is delivered or has failed; `Delivery.timeout` bounds it, and the deadline if any."""
        pause = threading.Event()
        while self.waiting() and not self._must_abort() and (deadline is None or time.monotonic() < deadline):
            pause.wait(0.01)

    def _must_abort(self) -> bool:
        """Return whether the transaction can only be aborted: until then the client keeps its queued records."""
        return self._in_transaction and self.failed > self._failed_before

    def give_up(self) -> None:
        """Drop the queued records; each is counted as failed."""
        self._client.purge()
        self.flush()

    def close(self, notify: Callable[[str], None] = lambda _: None) -> None:
        """Wait for records in flight (Ctrl-C drops them, and they count as failed); then close."""
        try:
            self.flush(time.monotonic() + _NOTICE_AFTER_S)
            if self.waiting():
                left = format_count(self.waiting(), "record")
                notify(f"waiting for {left} that Kafka has not acknowledged; Ctrl-C gives up")
            self.flush()
        except KeyboardInterrupt:
            self.give_up()
        self._closed.set()
        self._poll_thread.join()

    def begin(self) -> None:
        """Begin a transaction for the records that are sent from now on."""
        with self.cluster.translated_errors("begin a transaction"):
            if not self._initialised:
                request_producer_id(self._client)
                self._client.init_transactions(self.cluster.timeout)
                self._initialised = True
            self._client.begin_transaction()
        self._in_transaction = True
        self._failed_before = self.failed

    def commit(self) -> None:
        """Commit the transaction; if a record has failed, abort and raise."""
        self.flush()
        if self._must_abort():
            with contextlib.suppress(MillraceError):  # a fenced producer cannot abort
                self.abort()
            raise self.failure()
        deadline = time.monotonic() + self._delivery.timeout
        while self._in_transaction:
            self._try_to_commit(deadline)

    def abort(self) -> None:
        if not self._in_transaction:
            return
        with self.cluster.translated_errors("abort the transaction"):  # which drops the queued records
            abort_transaction(self._client, self.cluster.timeout)
        self._in_transaction = False
        self.flush()  # the reports of dropped records belong to this transaction

    def failure(self) -> MillraceError:
        """Return the error to raise if records have failed."""
        reason = self.reason or self._first
        return NotDelivered(
            f"{self.failed:,} of {self.failed + self.delivered:,} records were not delivered to topic {self.topic!r}",
            why=": ".join(filter(None, (reason.message, reason.why))) if reason else None,
            hint=(reason and reason.hint) or "check millrace kafka status and send them again",
        )

    def problem(self, problem: KafkaError) -> NotDelivered:
        """Return our error for a failed record."""
        if problem.code() in REFUSED:
            hint = "make it smaller, or raise the limit: millrace kafka topics alter … --config max.message.bytes=N"
            return RecordRefused(f"topic {self.topic!r} refuses a record", why=problem.str(), hint=hint)
        error = self.cluster.error(problem, f"write to topic {self.topic!r}")
        return NotDelivered(error.message, why=error.why, hint=error.hint)

    def count(self, problem: KafkaError | None) -> None:
        """Count a delivered or failed record. Deliveries are reported to one thread at a time, so they need no lock."""
        if problem is None:
            self._settled += 1
        else:
            with self._lock:
                self.failed += 1
                self._first = self._first or self.problem(problem)

    def _wait_and_produce(self, record: Record, report: Report) -> bool:
        """Retry until the queue has room; return whether it had before the stop."""
        while not self._stop.is_set():
            self._poll_reports(0.1)
            try:
                produce_record(self._client, self.topic, record, report)
            except BufferError:
                continue
            except KafkaException as error:
                report(error.args[0], None)
            return True
        return False

    def _try_to_commit(self, deadline: float) -> None:
        try:
            self._client.commit_transaction(self.cluster.timeout)
            self._in_transaction = False
        except KafkaException as error:
            problem = error.args[0]
            if not problem.retriable():
                raise self.cluster.error(problem, "commit the transaction") from None
            if time.monotonic() > deadline:
                raise CommitUnknown(
                    "it is not known whether the transaction was committed",
                    why=problem.str(),
                    hint="check whether its records exist before sending them again",
                ) from None

    def _poll_while_idle(self) -> None:
        connected = self.transactional  # by `begin`
        while not self._closed.is_set():
            if self._has_records and not connected:  # not before: it may create the topic, and a close would wait
                connected = True
                request_producer_id(self._client, self.topic, self._closed.is_set)
            elif time.monotonic() < self._busy_until:
                self._closed.wait(_SENDER_POLL_S)
            else:
                self._poll_reports(_POLL_INTERVAL_S)

    def _poll_reports(self, seconds: float, *, wait: bool = True) -> None:
        """Poll reports. A fatal error is raised here, once; its records are then reported as failed."""
        if not self._polling.acquire(blocking=wait):
            return
        try:
            self._client.poll(seconds)
        except KafkaException as error:
            self._fail(error.args[0])
        finally:
            self._polling.release()

    def _delivered(self, problem: KafkaError | None, _: Message | None) -> None:
        if problem is None:  # as count() does, but this is called a million times
            self._settled += 1
        else:
            self.count(problem)
            self._fail(problem)

    def _fail(self, problem: KafkaError) -> None:
        self.reason = self.reason or self.problem(problem)
        self._stop.set()


@dataclass
class _Countdown:
    """Calls `done` once, when the last record of a send is delivered or has failed."""

    left: int
    producer: Producer
    done: Done
    reason: MillraceError | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not self.left:
            self.done(None)

    def __call__(self, problem: KafkaError | None, _: Message | None) -> None:
        self.producer.count(problem)
        with self.lock:
            if problem is not None and self.reason is None:
                self.reason = self.producer.problem(problem)
            self.left -= 1
            last = not self.left
        if last:
            self.done(self.reason)
