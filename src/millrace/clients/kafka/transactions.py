"""Records and the progress they stand for, into Kafka together or not at all."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace.clients.kafka.cluster import FENCED, Cluster
from millrace.clients.kafka.producer import Delivery, abort_transaction
from millrace.clients.kafka.record import Record
from millrace.errors import AccessDenied

_LONGEST = 60.0
"""Seconds that a transaction may last; readers wait as long for one whose writer was killed and does not come back."""
_A_WHILE = 1.0
"""Seconds to wait for an answer before looking whether there can be one."""
_HUNG = 10.0
"""Seconds after which a call that should have been back after one is given up."""
_SOON = 0.05
_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}
"""Errors of a group's coordinator that pass."""
_LARGEST = 1_000_000_000
"""Bytes of a record that the client lets through: the topic decides what is too large."""


class DeliveryFailed(KafkaException):
    """A record of a transaction that Kafka did not take: the error, and which one it was."""

    def __init__(self, error: KafkaError, number: int) -> None:
        super().__init__(error)
        self.number = number


class CoordinatorTimeout(KafkaException):
    """The client does not come back."""


class TransactionalProducer:
    """A producer with a transactional id, open until somebody else takes the id over.

    Opening it takes the id over, and ends what its last owner left open: from then on whatever that one still tries
    fails. A lane that has raised must not be used again.
    """

    def __init__(
        self, cluster: Cluster, identity: str, *, longest: float = _LONGEST, config: Mapping[str, Any] | None = None
    ) -> None:
        """`longest`: seconds that a transaction may last. `config`: more properties of the client."""
        self.instance = uuid.uuid4().hex[:12]
        """Tells it from every other lane that had the id or will have it."""
        self._cluster = cluster
        self._longest = longest
        self._seen: list[KafkaError] = []
        self._failures: list[KafkaException] = []
        # Every delivery is reported, not only failures: `flush` would sleep for lack of news of the others.
        how = Delivery(timeout=longest, linger=0.005, transaction=identity)
        own = {
            "message.max.bytes": _LARGEST,
            "error_cb": self._seen.append,
            **(config or {}),
        }
        self._client = Producer({**how.tuning(), **cluster.config(), **how.config(), **own})
        # A client that knows no broker yet would look for its coordinator again only after half a second.
        with suppress(KafkaException):
            self._client.list_topics(timeout=cluster.timeout)
        with _kafkas_errors():
            self._insist(self._client.init_transactions)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has now; raises when there is none: the client itself would wait for it."""
        found = self._client.list_topics(topic, timeout=self._cluster.timeout).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)

    def write(self, topic: str, records: Sequence[Record], progress: TopicPartition, group: object) -> None:
        """One transaction: the records, and the progress of the group."""
        with self.transaction(progress, group):
            for number, record in enumerate(records):
                self._send(topic, record, partial(self._report, number))

    def write_all(self, records: Sequence[tuple[str, Record]]) -> None:
        """One transaction: records, each into its topic."""
        with self.transaction():
            for number, (topic, record) in enumerate(records):
                self._send(topic, record, partial(self._report, number))

    @contextmanager
    def transaction(self, progress: TopicPartition | None = None, group: object = None) -> Iterator[None]:
        """A block whose records are there together, and with the progress of the group, or not at all."""
        self._failures.clear()
        self._seen.clear()  # a refusal of long ago is no reason for what fails now
        self._client.begin_transaction()
        try:
            with _kafkas_errors():
                yield
                self.settle()
                if progress is not None:
                    send_offsets = partial(self._client.send_offsets_to_transaction, [progress], group)
                    _within(_HUNG, partial(self._insist, send_offsets))
                self._insist(self._client.commit_transaction)
        except CoordinatorTimeout:
            raise
        except BaseException as error:
            # Otherwise whoever reads the topic would wait until the transaction's time is over.
            try:
                with _kafkas_errors():
                    abort_transaction(self._client, self._cluster.timeout)
            except KafkaException as reason:
                if reason.args[0].code() in FENCED:  # what failed first may have said less
                    raise reason from error
            raise

    def send_many(self, topic: str, records: list[dict[str, Any]]) -> None:
        """Hand over many records without headers, in a block of a transaction; they may still fail at its end.

        There must be room for them: `settle` makes it. What the client cannot queue would come after its successors.
        """
        queued = self._client.produce_batch(topic, records, -1, partial(self._report, 0))
        if queued < len(records):
            failed = next(one["_error"] for one in records if "_error" in one)
            raise DeliveryFailed(failed if isinstance(failed, KafkaError) else failed.args[0], 0)

    def send(self, topic: str, record: Record) -> None:
        """Hand over one record, in a block of a transaction."""
        self._send(topic, record, partial(self._report, 0))

    def settle(self) -> None:
        """Wait until Kafka has all that was sent so far; raise what it did not take."""
        self._client.flush(self._longest)
        if self._failures:
            raise self._failures[0]

    def _send(self, topic: str, record: Record, report: Callable[[KafkaError | None, Message | None], None]) -> None:
        value, key, time_, headers, partition = record
        place = -1 if partition is None else partition
        produce = partial(self._client.produce, topic, value, key, place, report, timestamp=time_ or 0)
        try:
            produce(headers=list(headers))
        except BufferError:
            self._client.flush(self._longest)
            produce(headers=list(headers))
        except KafkaException as error:  # refused before it was queued
            report(error.args[0], None)

    def _report(self, number: int, problem: KafkaError | None, _: Message | None) -> None:
        if problem is not None:
            self._failures.append(DeliveryFailed(problem, number))

    def _insist(self, call: Callable[[float], object]) -> None:
        """Call until it is answered; an answer that is late is waited for by calling again."""
        deadline = time.monotonic() + min(self._longest, _LONGEST)
        while True:
            try:
                call(_A_WHILE)
                return
            except KafkaException as error:
                self._client.poll(0)
                denied = [one for one in self._seen if isinstance(self._cluster.error(one, ""), AccessDenied)]
                if denied:  # a timeout would be the answer otherwise
                    raise KafkaException(denied[0]) from error
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class CommittedOffsets:
    """The committed progress of a group that has no members."""

    def __init__(self, cluster: Cluster, group: str, *, stable: bool = True) -> None:
        """`stable`: while another's transaction is being ended, the answer waits for how it ends."""
        self._cluster = cluster
        level = "read_committed" if stable else "read_uncommitted"
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": level}
        self._client = Consumer({**cluster.config(), **own})
        self.group = self._client.consumer_group_metadata()

    def read(self, topic: str, partition: int) -> tuple[int, str]:
        """The offset committed for a partition (negative when there is none) and what was written beside it.

        A coordinator that is being found or moved is waited for.
        """
        return self.read_all(topic, [partition])[0]

    def read_all(self, topic: str, partitions: Sequence[int]) -> list[tuple[int, str]]:
        """The same for several partitions at once."""
        places = [TopicPartition(topic, number) for number in partitions]
        deadline = time.monotonic() + _LONGEST
        while True:
            try:
                found = self._client.committed(places, self._cluster.timeout)
                for one in found:
                    if one.error is not None:
                        raise KafkaException(one.error)
                return [(one.offset, one.metadata or "") for one in found]
            except KafkaException as error:
                if error.args[0].code() not in _MOVING or time.monotonic() > deadline:
                    raise
                time.sleep(_SOON)


def _within(seconds: float, call: Callable[[], None]) -> None:
    """Make a call that may not come back, whatever time it was given; its thread stays behind then.

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
def _kafkas_errors() -> Iterator[None]:
    """A block that raises a fatal error as itself.

    The client sets it and then still runs the reports that are due, so that Python finds fault with one of those.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise
