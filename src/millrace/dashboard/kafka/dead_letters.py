"""The dead letters of a run on the dashboard.

- `Groups` counts open dead letters by source, topic and reason; `follow` keeps a channel up to date with them.
- `OpenLetters` remembers which group each letter was counted in, so that a redrive marker can be applied later.
- `DashboardRedrive` sends dead letters again, one redrive at a time, and reports its progress.
"""

from __future__ import annotations

import heapq
import threading
import time
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients.kafka import offsets
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import TopicTail
from millrace.dashboard.run_interface import DeadLetterQuery, LetterGroup
from millrace.dead_letters import store
from millrace.dead_letters.file_journal import JOURNAL_FILE
from millrace.dead_letters.file_redrive import redrive_files
from millrace.dead_letters.letter import to_json
from millrace.dead_letters.offset_ledger import OffsetRange
from millrace.dead_letters.redrive import Redrive, redrive_topic
from millrace.dead_letters.redrive_filter import RedriveFilter, reason_kind
from millrace.dead_letters.redrive_result import RedriveResult
from millrace.dead_letters.store import StoredDeadLetter, letters_in_folder
from millrace.errors import MillraceError, NoCluster, RedriveBusy, UnknownTopic
from millrace.telemetry.channels import Slot

_GONE = -1


class OpenLetters:
    """The open letters, by partition in the order in which they lie."""

    def __init__(self) -> None:
        self._groups: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._offsets: defaultdict[tuple[str, int], array[int]] = defaultdict(lambda: array("q"))
        self._group_numbers: defaultdict[tuple[str, int], array[int]] = defaultdict(lambda: array("i"))

    def add(self, stored: StoredDeadLetter, group: dict[str, Any]) -> None:
        """Remember the group of a letter; one in a file says itself what became of it."""
        if stored.partition is None:
            return
        number = self._numbers.setdefault(id(group), len(self._groups))
        if number == len(self._groups):
            self._groups.append(group)
        partition = (stored.location, stored.partition)
        self._offsets[partition].append(stored.offset)
        self._group_numbers[partition].append(_GONE if stored.redriven else number)

    def take(self, topic: str, partition: int, spans: Iterable[OffsetRange]) -> Iterator[dict[str, Any]]:
        """The group of each letter that a mark means, each letter once."""
        offsets, numbers = self._offsets[topic, partition], self._group_numbers[topic, partition]
        for first, end in spans:
            for at in range(bisect_left(offsets, first), bisect_left(offsets, end)):
                if numbers[at] != _GONE:
                    yield self._groups[numbers[at]]
                    numbers[at] = _GONE


DEAD_LETTERS_EVERY = 2.0
MOST_GROUPS = 200
REST = "other reasons"
"""The group of those for which there are no more groups."""
_LONGEST = 500
_MAX_FAILURES = 20
_SHOWN = 4000
"""Characters of base64: whole groups of four, and fewer than a text of a channel may have."""


@dataclass(frozen=True)
class DeadLetterStores:
    """Whose dead letters, and where they lie."""

    cluster: Callable[[], Cluster] | None
    folders: Callable[[], list[Path]] = list
    pipeline: str | None = None
    """Only those of this pipeline: others may share its topics."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """The query that writes the dead letters of each source."""
    visible: Callable[[Iterable[str]], set[str]] = set
    """The topics whose letters are shown."""

    def mine(self, letters: Iterable[StoredDeadLetter]) -> Iterator[StoredDeadLetter]:
        """Those of the pipeline."""
        return (stored for stored in letters if self.pipeline in (None, stored.letter.pipeline))

    def topics(self, cluster: Cluster) -> list[str]:
        """The topics of dead letters that are shown."""
        names = store.dead_topics(cluster)
        shown = self.visible(names)
        return [name for name in names if name in shown]


class Groups:
    """Letters counted; when there are too many kinds, the rest is counted together."""

    def __init__(self, where: DeadLetterStores) -> None:
        self._where = where
        self._groups: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._open = OpenLetters()

    def add(self, letters: Iterable[StoredDeadLetter]) -> None:
        """Count letters."""
        for stored in self._where.mine(letters):
            key = _key(stored)
            if key not in self._groups and len(self._groups) >= MOST_GROUPS:
                key = ("", "", REST)
            group = self._groups.setdefault(key, self._group(*key))
            group["redriven" if stored.redriven else "count"] += 1
            self._open.add(stored, group)
            if stored.stored_at >= (group["newest"] or 0):
                group["newest"] = stored.stored_at
                group["sample"] = {"partition": stored.partition, "offset": stored.offset}

    def mark(self, topic: str, partition: int, spans: Iterable[OffsetRange]) -> None:
        """Count letters that were sent again apart from those that are open."""
        for group in self._open.take(topic, partition, spans):
            group["count"] -= 1
            group["redriven"] += 1

    def summary(self) -> list[dict[str, Any]]:
        """The groups, the largest first."""
        return sorted(map(dict, self._groups.values()), key=lambda group: -group["count"])

    def _group(self, source: str, topic: str, reason: str) -> dict[str, Any]:
        query = self._where.queries.get(source)
        shown = {"source": source, "topic": topic or None, "query": query, "reason": reason}
        return shown | {"count": 0, "redriven": 0, "newest": None, "sample": None}


def follow(where: DeadLetterStores, slot: Slot, stop: threading.Event) -> None:
    """Keep a slot up to date, until `stop` is set."""
    groups, files = Groups(where), _Files(where)
    if where.cluster is None:
        while not stop.is_set():
            slot.set(_with_files(groups, files))
            stop.wait(DEAD_LETTERS_EVERY)
        return
    cluster = where.cluster()
    cluster.connect()  # what does not answer must not be taken for empty
    with TopicTail(cluster, {}) as following:
        slot.set([])
        followed: set[tuple[str, int]] = set()
        while not stop.is_set():
            if fresh := _new_partitions(cluster, where, followed):
                following.add(fresh)
                followed |= set(fresh)
            groups.add(_take(following, DEAD_LETTERS_EVERY, stop, groups.mark))
            if (result := _with_files(groups, files)) != slot.value:
                slot.set(result)


def letters(
    where: DeadLetterStores, wanted: DeadLetterQuery, groups: Iterable[Mapping[str, Any]] = ()
) -> Iterator[dict[str, Any]]:
    """Letters that fit, the newest first when there is a limit, else as they lie.

    `groups` are those that are shown: the `other reasons` are those of letters that are in none of them.
    """
    shown: set[tuple[str, str, str]] = set()
    if wanted.reason == REST:
        shown = {(group["source"], group["topic"] or "", group["reason"]) for group in groups}
        wanted = replace(wanted, reason=None)
    fitting = (
        stored
        for stored in where.mine(_every(where, wanted.topic))
        if (wanted.redriven or not stored.redriven) and _fits(stored, wanted) and _key(stored) not in shown
    )
    if wanted.most is None:
        yield from map(_as_json, fitting)
    else:
        yield from map(_shown, heapq.nlargest(wanted.most, fitting, key=_age))


def _every(where: DeadLetterStores, topic: str | None) -> Iterator[StoredDeadLetter]:
    if where.cluster is not None:
        cluster = where.cluster()
        names = [name for name in where.topics(cluster) if topic in (None, name)]
        marks = store.redrive_markers_in_topics(cluster, names)
        with closing(store.letters_in_topics(cluster, names, markers=marks)) as stored:  # type: ignore[type-var]
            yield from stored
    for folder in where.folders() if topic is None else ():
        yield from letters_in_folder(folder)


def _key(stored: StoredDeadLetter) -> tuple[str, str, str]:
    """The group of a letter: source, topic (nothing for one in a file) and kind of reason."""
    topic = stored.location if stored.partition is not None else ""
    return stored.letter.source, topic, reason_kind(stored.letter.reason)[:_LONGEST]


def _age(stored: StoredDeadLetter) -> tuple[int, str, int, int]:
    return stored.stored_at, stored.location, stored.partition or 0, stored.offset


def _fits(stored: StoredDeadLetter, wanted: DeadLetterQuery) -> bool:
    reason = stored.letter.reason
    reasons = (None, reason, reason_kind(reason)[:_LONGEST])
    return wanted.source in (None, stored.letter.source) and wanted.reason in reasons


def _as_json(stored: StoredDeadLetter) -> dict[str, Any]:
    in_topic = {"topic": stored.location, "partition": stored.partition, "offset": stored.offset}
    location = {"file": stored.location, "line": stored.offset} if stored.partition is None else in_topic
    more = {"attempts": stored.letter.attempts, "redriven": stored.redriven, "place": stored.position}
    return {**to_json(stored.letter), "dead": location, "buried": stored.stored_at, **more}


def _shown(stored: StoredDeadLetter) -> dict[str, Any]:
    """Return a letter for the dashboard, which shows the beginning of a long one; the export has all of it."""
    result = _as_json(stored)
    long = [name for name in ("value", "key") if len(result.get(name) or "") > _SHOWN]
    return {**result, **{name: result[name][:_SHOWN] for name in long}, "cut": bool(long)}


def _new_partitions(
    cluster: Cluster, where: DeadLetterStores, followed: set[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    existing = cluster.connect().topics
    names = [name for name in where.topics(cluster) if name in existing]
    partitions = {(name, number) for name in names for number in existing[name].partitions} - followed
    places = [TopicPartition(*partition) for partition in sorted(partitions)]
    return offsets.list_available_offsets(cluster, places, OffsetSpec.earliest())


def _take(
    following: TopicTail, seconds: float, stop: threading.Event, marked: store.OnMarker
) -> Iterator[StoredDeadLetter]:
    """What comes in the next seconds, or at once what waits already."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.is_set():
        for message in following.take(0.2):
            record = store.parse_record(message)
            if isinstance(record, StoredDeadLetter):
                yield record
            elif record is not None:
                marked(message.topic() or "", message.partition() or 0, record)


class _Files:
    """The letters in folders, read again only when something has changed there."""

    def __init__(self, where: DeadLetterStores) -> None:
        self._where = where
        self._seen: object = None
        self._groups = Groups(where)

    def summary(self) -> list[dict[str, Any]]:
        """The groups of letters in files."""
        folders = self._where.folders()
        files = [file for folder in folders for file in (*sorted(folder.glob("*.jsonl")), *folder.glob(JOURNAL_FILE))]
        seen = [(str(file), file.stat().st_mtime_ns) for file in files]
        if seen != self._seen:
            self._groups = Groups(self._where)
            for folder in folders:
                self._groups.add(letters_in_folder(folder))
            self._seen = seen
        return self._groups.summary()


def _with_files(groups: Groups, files: _Files) -> list[dict[str, Any]]:
    result = [*groups.summary(), *files.summary()]
    rest = [group for group in result if group["reason"] == REST and not group["source"]]
    for group in rest[1:]:  # the rest is one group, wherever its letters lie
        rest[0]["count"] += group["count"]
        result.remove(group)
    return result


class DashboardRedrive:
    """The redrives of one run's page."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._busy = threading.Lock()

    def run(self, where: DeadLetterStores, group: LetterGroup) -> Mapping[str, Any]:
        """Send the letters of a group again; what became of them."""
        if not self._busy.acquire(blocking=False):
            raise RedriveBusy("letters are being sent again at this moment", hint="try again when that is done")
        try:
            outcome = self._send(where, group)
        except MillraceError as error:
            self._publish(group, "failed", RedriveResult(), error.message)
            raise
        finally:
            self._busy.release()
        return self._publish(group, "done", outcome)

    def _send(self, where: DeadLetterStores, group: LetterGroup) -> RedriveResult:
        pipeline, source, letter = where.pipeline, group.source, group.letter
        wanted = Redrive(
            RedriveFilter(pipeline=pipeline, source=source, location=group.topic, reason=group.reason, letter=letter)
        )
        whole = RedriveResult()

        def report(so_far: RedriveResult) -> None:
            self._publish(group, "running", so_far)

        report(whole)
        if group.topic is not None:
            if where.cluster is None:
                raise NoCluster("this run uses no Kafka")
            cluster = where.cluster()
            if group.topic not in where.topics(cluster):
                raise UnknownTopic(f"this run has no dead letters in {group.topic!r}", hint="see --all-topics")
            return redrive_topic(cluster, group.topic, wanted, report)
        for folder in where.folders():
            letters_here = letters_in_folder(folder)
            if any(not stored.redriven and wanted.selection.matches(stored) for stored in letters_here):
                whole.add(redrive_files(folder, wanted, report))
        return whole

    def _publish(
        self, group: LetterGroup, state: str, outcome: RedriveResult, error: str | None = None
    ) -> Mapping[str, Any]:
        counted = asdict(outcome) | {"failures": [asdict(failure) for failure in outcome.failures[:_MAX_FAILURES]]}
        result = {**asdict(group), "state": state, **counted, "error": error, "time": round(time.time() * 1000)}
        self._slot.set(result)
        return result
