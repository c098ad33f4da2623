"""Dead letters into Kafka, each exactly once, however often a task is run and whoever else runs it at the same time.

The letters of one partition of the source are written in a transaction that also commits, for the group
`millrace.dead.<pipeline>.<source>`, which offsets of that partition are dealt with. All who write for that partition
share a transactional id, so of two at once the one who came first is stopped by Kafka; it begins anew, asks again what
is dealt with, and writes the rest.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from millrace.clients.kafka.cluster import REFUSED, Cluster
from millrace.clients.kafka.record import Record
from millrace.clients.kafka.transactions import CommittedOffsets, DeliveryFailed, TransactionalProducer
from millrace.clients.pool import Pool
from millrace.dead_letters.letter import DeadLetter, to_headers
from millrace.dead_letters.offset_ledger import DecoderId, OffsetLedger, OffsetRange
from millrace.dead_letters.store import create_dead_letter_topics
from millrace.errors import InputError, MillraceError, RecordRefused, TopicGone

WRITE_TIMEOUT_S = 120.0
"""Seconds after which letters that Kafka does not take fail the task."""
_NEW_TOPIC = 5.0
"""Seconds in which a broker may not have heard of a new topic yet."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}

_LANES: Pool[TransactionalProducer] = Pool(16)
_PROGRESS: Pool[CommittedOffsets] = Pool(4)


def dead_letter_transactional_id(group: str, topic: str, partition: int) -> str:
    """Return the transactional id that all tasks share which write dead letters of a partition."""
    return f"{group}/{topic}/{partition}"


class KafkaDeadLetterWriter:
    """Writes the letters of one task."""

    def __init__(self, cluster: Cluster, group: str, reader: DecoderId, *, create: bool) -> None:
        self._cluster = cluster
        self._group = group
        self._reader = reader
        self._create = create
        self._seen: dict[tuple[str, int], OffsetRange] = {}

    def write(self, dead: str, topic: str, partition: int, letters: Sequence[DeadLetter]) -> None:
        """Write letters of one partition, in the order of their offsets, unless they are written already."""
        place = (topic, partition)
        offsets = [letter.offset or 0 for letter in letters]
        first, end = self._seen.get(place, (offsets[0], offsets[0]))
        for before, after in pairwise([end - 1, *offsets]):
            if after <= before:  # it would be taken for written, and be lost
                raise ValueError(f"letters of {topic}[{partition}] out of order: {after} after {before}")
        self._seen[place] = (first, offsets[-1] + 1)
        self._insist(dead, place, letters)

    def _insist(self, dead: str, place: tuple[str, int], letters: Sequence[DeadLetter]) -> None:
        started, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            try:
                self._attempt(dead, place, letters)
                return
            except KafkaException as error:
                problem = self._problem(error, dead, letters)
                if isinstance(problem, RecordRefused) and len(letters) > 1:
                    break
                if time.monotonic() - started > _patience(problem):
                    raise problem from error
                if isinstance(problem, TopicGone) and self._create:
                    create_dead_letter_topics(replace(self._cluster), {place[0]: dead})
            time.sleep(random.uniform(0, pause))  # at random, so that two who take turns do not do so for ever
            pause = min(2 * pause, _LONGEST_PAUSE)
        # One of them is too large, or only all of them together are.
        half = len(letters) // 2
        self._insist(dead, place, letters[:half])
        self._insist(dead, place, letters[half:])

    def _attempt(self, dead: str, place: tuple[str, int], letters: Sequence[DeadLetter]) -> None:
        """One transaction for what is not written yet."""
        topic, partition = place
        address = self._cluster.key
        identity = dead_letter_transactional_id(self._group, topic, partition)
        asking = partial(
            _PROGRESS.borrow, (address, self._group), partial(CommittedOffsets, self._cluster, self._group)
        )
        with asking():
            pass  # a new one finds its broker while the lane does the same
        with _LANES.borrow((address, identity), partial(TransactionalProducer, self._cluster, identity)) as lane:
            # Asked while we own the id: whoever writes after this answer has to take it over, and then we fail.
            with asking() as progress:
                offset, text = progress.told(topic, partition)
                group = progress.group
            ledger = OffsetLedger.parse(text)
            missing = set(ledger.missing(self._reader, (letter.offset or 0 for letter in letters)))
            left = [letter for letter in letters if letter.offset in missing]
            if not left:
                return
            where = partition % lane.partitions(dead)  # keeps their order
            records = [Record(one.value, one.key, None, tuple(to_headers(one)), where) for one in left]
            end = (letters[-1].offset or 0) + 1
            # Everything since the first letter of the task is dealt with: it reads in order.
            after = ledger.with_range(self._reader, (self._seen[place][0], end))
            lane.write(dead, records, TopicPartition(topic, partition, max(offset, end), after.text()), group)

    def _problem(self, error: KafkaException, dead: str, letters: Sequence[DeadLetter]) -> MillraceError:
        problem: KafkaError = error.args[0]
        if problem.code() in REFUSED and isinstance(error, DeliveryFailed):
            return _refused(problem, dead, letters[0])
        if problem.code() in _GONE:
            return TopicGone(
                f"dead letters cannot be written: there is no topic {dead!r}, or no {letters[0].topic!r} any more",
                why=problem.str(),
                hint=f"make it again: millrace kafka topics create {dead}",
            )
        return self._cluster.error(problem, f"write dead letters to topic {dead!r}")


def _refused(problem: KafkaError, dead: str, letter: DeadLetter) -> RecordRefused:
    return RecordRefused(
        f"topic {dead!r} does not take the dead letter of {letter.origin} ({len(letter.value or b''):,} bytes)",
        why=problem.str(),
        hint=f"let it take larger records: millrace kafka topics alter {dead} --config max.message.bytes=N",
    )


def _patience(problem: MillraceError) -> float:
    """Seconds after which to give up: none where the next attempt would end the same way."""
    if isinstance(problem, RecordRefused | InputError):
        return 0.0
    return _NEW_TOPIC if isinstance(problem, TopicGone) else WRITE_TIMEOUT_S
