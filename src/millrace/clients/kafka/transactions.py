"""Transactions of Kafka.

- `TransactionalProducer` writes records, and the offsets of a group with them, in one transaction.
- `CommittedOffsets` reads the committed offsets of a group that has no members.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace.clients.kafka.cluster import FENCED, Cluster
from millrace.clients.kafka.producer import Delivery, abort_transaction, produce_record, request_producer_id
from millrace.clients.kafka.record import Record
from millrace.errors import AccessDenied

_TRANSACTION_TIMEOUT_S = 60.0
"""How long a transaction may last, and so how long readers wait for one whose producer was killed."""
_CALL_TIMEOUT_S = 1.0
"""How long one call waits for an answer, before errors of the client are looked at."""
_HUNG_CALL_TIMEOUT_S = 10.0
"""How long a call may take that has a timeout of its own, and may not return."""
_RETRY_DELAY_S = 0.05
_COORDINATOR_CHANGE = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}
"""Errors after which the coordinator is asked again."""
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
_MAX_RECORD_BYTES = 1_000_000_000
"""The limit of the client: the topic's own limit decides what is too large."""


class DeliveryFailed(KafkaException):
    """A record of a transaction was not delivered: the error, and the number of the record."""

    def __init__(self, error: KafkaError, number: int) -> None:
        super().__init__(error)
        self.number = number


class CoordinatorTimeout(KafkaException):
    """A call of the client does not return."""


class TransactionalProducer:
    """A producer with a transactional id.

    Opening it fences the last producer with the id, and ends the transaction that this one left open. A producer that
    has raised an error must not be used again.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: str,
        *,
        longest: float = _TRANSACTION_TIMEOUT_S,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`longest` is the transaction timeout in seconds; `config` has more properties of the client."""
        self.instance = uuid.uuid4().hex[:12]
        """Differs from that of every other producer with the same id."""
        self._cluster = cluster
        self._timeout_s = longest
        self._errors: list[KafkaError] = []
        self._failures: list[KafkaException] = []
        # Every delivery is reported, not only failures: without reports `flush` sleeps too long.
        delivery = Delivery(timeout=longest, linger=0.005, transaction=identity)
        own = {"message.max.bytes": _MAX_RECORD_BYTES, "error_cb": self._errors.append, **(config or {})}
        self._client = Producer({**delivery.tuning(), **cluster.config(), **delivery.config(), **own})
        request_producer_id(self._client)
        with _fatal_errors_raised():
            self._call_until_answered(self._client.init_transactions)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; raise if it does not exist: the client would wait for it."""
        metadata = self._client.list_topics(topic, timeout=self._cluster.timeout).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return len(metadata.partitions)

    def write(
        self, records: Sequence[tuple[str, Record]], progress: TopicPartition | None = None, group: object = None
    ) -> None:
        """Write records, each to its topic, and the offset of a group, if one is given, in one transaction."""
        with self.transaction(progress, group):
            for number, (topic, record) in enumerate(records):
                self.send(topic, record, number)

    @contextmanager
    def transaction(self, progress: TopicPartition | None = None, group: object = None) -> Iterator[None]:
        """Commit the records of a block, and the offset of a group, together; abort if the block raises."""
        self._failures.clear()
        self._errors.clear()  # an old error is not the reason for a new failure
        self._client.begin_transaction()
        try:
            with _fatal_errors_raised():
                yield
                self.settle()
                if progress is not None:
                    send_offsets = partial(self._client.send_offsets_to_transaction, [progress], group)
                    _call_with_timeout(_HUNG_CALL_TIMEOUT_S, partial(self._call_until_answered, send_offsets))
                self._call_until_answered(self._client.commit_transaction)
        except CoordinatorTimeout:
            raise
        except BaseException as error:
            # Otherwise readers of the topic would wait until the transaction timeout.
            try:
                with _fatal_errors_raised():
                    abort_transaction(self._client, self._cluster.timeout)
            except KafkaException as reason:
                if reason.args[0].code() in FENCED:  # the first error may have said less
                    raise reason from error
            raise

    def send_many(self, topic: str, records: list[dict[str, Any]]) -> None:
        """Send many records without headers, within `transaction`; they may still fail at its end.

        The queue of the client must have room for them (`settle` makes it): else their order would change.
        """
        queued = self._client.produce_batch(topic, records, -1, partial(self._report, 0))
        if queued < len(records):
            failed = next(record["_error"] for record in records if "_error" in record)
            raise DeliveryFailed(failed if isinstance(failed, KafkaError) else failed.args[0], 0)

    def settle(self) -> None:
        """Wait until all records sent so far are delivered; raise the first failure.

        The client purges records because another one has failed, and may report them before that one.
        """
        self._client.flush(self._timeout_s)
        if self._failures:
            causes = (failure for failure in self._failures if failure.args[0].code() not in _PURGED)
            raise next(causes, self._failures[0])

    def send(self, topic: str, record: Record, number: int = 0) -> None:
        """Send one record, within `transaction`; `DeliveryFailed` has its number."""
        report = partial(self._report, number)
        produce = partial(produce_record, self._client, topic, record, report)
        try:
            produce()
        except BufferError:
            self._client.flush(self._timeout_s)
            produce()
        except KafkaException as error:  # refused before it was queued
            report(error.args[0], None)

    def _report(self, number: int, problem: KafkaError | None, _: Message | None) -> None:
        if problem is not None:
            self._failures.append(DeliveryFailed(problem, number))

    def _call_until_answered(self, call: Callable[[float], object]) -> None:
        """Call again until there is an answer, at most for the transaction timeout."""
        deadline = time.monotonic() + min(self._timeout_s, _TRANSACTION_TIMEOUT_S)
        while True:
            try:
                call(_CALL_TIMEOUT_S)
                return
            except KafkaException as error:
                self._client.poll(0)
                denied = [error for error in self._errors if isinstance(self._cluster.error(error, ""), AccessDenied)]
                if denied:  # else a timeout would be reported
                    raise KafkaException(denied[0]) from error
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class CommittedOffsets:
    """The committed offsets of a group that has no members."""

    def __init__(self, cluster: Cluster, group: str, *, stable: bool = True) -> None:
        """With `stable` an answer waits for the end of a transaction that changes the offsets."""
        self._cluster = cluster
        level = "read_committed" if stable else "read_uncommitted"
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": level}
        self._client = Consumer({**cluster.config(), **own})
        self.group = self._client.consumer_group_metadata()

    def read(self, topic: str, partition: int) -> tuple[int, str]:
        """Return the committed offset of a partition (negative if there is none) and its metadata.

        A coordinator that is being found or moved is waited for.
        """
        return self.read_all(topic, [partition])[0]

    def read_all(self, topic: str, partitions: Sequence[int]) -> list[tuple[int, str]]:
        """Return the same for several partitions."""
        wanted = [TopicPartition(topic, number) for number in partitions]
        deadline = time.monotonic() + _TRANSACTION_TIMEOUT_S
        while True:
            try:
                committed = self._client.committed(wanted, self._cluster.timeout)
                for partition in committed:
                    if partition.error is not None:
                        raise KafkaException(partition.error)
                return [(partition.offset, partition.metadata or "") for partition in committed]
            except KafkaException as error:
                if error.args[0].code() not in _COORDINATOR_CHANGE or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_DELAY_S)


def _call_with_timeout(seconds: float, call: Callable[[], None]) -> None:
    """Make a call that may never return; its thread is left behind then.

    The client can wait for ever for a group's coordinator that was restarted (librdkafka's issue 5456).
    """
    raised: list[BaseException] = []

    def make() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    caller = threading.Thread(target=make, name="kafka-offsets", daemon=True)
    caller.start()
    caller.join(seconds)
    if caller.is_alive():
        raise CoordinatorTimeout(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer"))
    if raised:
        raise raised[0]


@contextmanager
def _fatal_errors_raised() -> Iterator[None]:
    """Raise a fatal error of the client as itself.

    The client sets it and then still calls delivery reports, so that Python raises SystemError.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise
