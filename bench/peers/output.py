"""The output topic of one run: how far it has come, sampled while the program runs, and read when it rests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka.cluster import Cluster

_EVERY = 0.05
Ends = tuple[int, ...]


class Output:
    """What a reader of committed records can see of a topic, and since when."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        own = {"group.id": f"look-{topic}", "enable.auto.commit": False, "isolation.level": "read_committed"}
        tuning = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        self._consumer = Consumer({**cluster.config(), **own, **tuning})
        self._consumer.assign(self._places)
        self._admin = cluster.admin()
        self._positions = [0] * partitions
        self._reached = [0] * partitions
        self._samples: list[tuple[float, Ends]] = []
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def resting(self, seconds: float) -> bool:
        """Whether something is there and nothing has come for so long."""
        samples = self._samples
        if not samples or not any(samples[-1][1]):
            return False
        newest, since = samples[-1][1], time.monotonic() - seconds
        return samples[0][0] < since and all(ends == newest for at, ends in samples[-100:] if at > since)

    def read(self, take: Callable[[bytes], None], right: Callable[[], bool]) -> float | None:
        """Give every record that is there to `take`; tells since when everything that made it right could be seen."""
        ends = self._samples[-1][1]
        was, needed = right(), None
        # The marks at the end of transactions are no records: only the word that the end is reached tells.
        while any(reached < end for reached, end in zip(self._reached, ends, strict=True)):
            for message in self._consumer.consume(10_000, 0.2):
                if self._told_end(message):
                    continue
                take(message.value() or b"")
                self._positions[message.partition()] = message.offset() + 1
                now = right()
                if now and not was:
                    needed = tuple(self._positions)
                was = now
        return self._since(needed) if needed else None

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._sampler.join()
        self._consumer.close()

    def _told_end(self, message: Message) -> bool:
        problem = message.error()
        if problem is None:
            return False
        if problem.code() != KafkaError._PARTITION_EOF:
            raise RuntimeError(problem.str())
        self._reached[message.partition()] = message.offset()
        return True

    def _since(self, needed: Ends) -> float:
        for at, ends in self._samples:
            if all(end >= need for end, need in zip(ends, needed, strict=True)):
                return at
        return time.monotonic()  # read before it was sampled

    def _sample(self) -> None:
        wanted = {TopicPartition(one.topic, one.partition): OffsetSpec.latest() for one in self._places}
        while not self._over.wait(_EVERY):
            asked = self._admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
            with suppress(KafkaException):  # a broker that is too busy to answer is asked again
                found = {place.partition: answer.result().offset for place, answer in asked.items()}
                self._samples.append((time.monotonic(), tuple(found[number] for number in range(len(found)))))
