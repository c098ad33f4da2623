"""The dead letters of a pipeline, counted by source and reason as they come, and read one by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from millrace.clients import dead, journal, offsets
from millrace.clients.cluster import Cluster
from millrace.clients.dead import Found
from millrace.clients.letters import to_json
from millrace.clients.marks import Span
from millrace.clients.reasons import kind
from millrace.dashboard.kafka.following import Following
from millrace.dashboard.kafka.placed import Placed
from millrace.dashboard.subject import Letters
from millrace.telemetry.channels import Slot

EVERY = 2.0
MOST_GROUPS = 200
REST = "other reasons"
"""The group of those for which there are no more groups."""
_LONGEST = 500
_SHOWN = 4000
"""Characters of base64: whole groups of four, and fewer than a text of the page may have."""


@dataclass(frozen=True)
class Where:
    """Whose dead letters, and where they lie."""

    cluster: Callable[[], Cluster] | None
    folders: Callable[[], list[Path]] = list
    pipeline: str | None = None
    """Only those of this pipeline: others may share its topics."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """The query that buries the letters of each source."""
    visible: Callable[[Iterable[str]], set[str]] = set
    """The topics whose letters are shown."""

    def mine(self, found: Iterable[Found]) -> Iterator[Found]:
        """Those of the pipeline."""
        return (one for one in found if self.pipeline in (None, one.letter.pipeline))

    def topics(self, cluster: Cluster) -> list[str]:
        """The topics of dead letters that are shown."""
        found = dead.dead_topics(cluster)
        shown = self.visible(found)
        return [name for name in found if name in shown]


class Groups:
    """Letters counted; when there are too many kinds, the rest is counted together."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._made: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._placed = Placed()

    def add(self, found: Iterable[Found]) -> None:
        """Count letters."""
        for one in self._where.mine(found):
            key = _key(one)
            if key not in self._made and len(self._made) >= MOST_GROUPS:
                key = ("", "", REST)
            group = self._made.setdefault(key, self._group(*key))
            group["redriven" if one.redriven else "count"] += 1
            self._placed.add(one, group)
            if one.buried >= (group["newest"] or 0):
                group["newest"] = one.buried
                group["sample"] = {"partition": one.partition, "offset": one.offset}

    def mark(self, topic: str, partition: int, spans: Iterable[Span]) -> None:
        """Count letters that were sent again apart from those that are open."""
        for group in self._placed.take(topic, partition, spans):
            group["count"] -= 1
            group["redriven"] += 1

    def told(self) -> list[dict[str, Any]]:
        """The groups, the largest first."""
        return sorted((dict(one) for one in self._made.values()), key=lambda one: -one["count"])

    def _group(self, source: str, home: str, reason: str) -> dict[str, Any]:
        query = self._where.queries.get(source)
        shown = {"source": source, "topic": home or None, "query": query, "reason": reason}
        return shown | {"count": 0, "redriven": 0, "newest": None, "sample": None}


def follow(where: Where, slot: Slot, stop: threading.Event) -> None:
    """Keep a slot up to date, until told to end."""
    groups = Groups(where)
    files = _Files(where)
    if where.cluster is None:
        while not stop.is_set():
            slot.set(_with_files(groups, files))
            stop.wait(EVERY)
        return
    cluster = where.cluster()
    cluster.connect()  # what does not answer must not be taken for empty
    with Following(cluster, {}) as following:
        slot.set([])
        known: set[tuple[str, int]] = set()
        while not stop.is_set():
            fresh = _new_places(cluster, where, known)
            if fresh:
                following.add(fresh)
                known |= set(fresh)
            groups.add(_take(following, EVERY, stop, groups.mark))
            told = _with_files(groups, files)
            if told != slot.value:
                slot.set(told)


def letters(where: Where, wanted: Letters, groups: Iterable[Mapping[str, Any]] = ()) -> Iterator[dict[str, Any]]:
    """Letters that fit, the newest first when there is a limit, else as they lie.

    `groups` are those that are shown: the `other reasons` are those of letters that are in none of them.
    """
    found = where.mine(_every(where, wanted.topic))
    if wanted.reason == REST:
        shown = {(one["source"], one["topic"] or "", one["reason"]) for one in groups}
        fitting = (one for one in found if _fits(one, replace(wanted, reason=None)) and _key(one) not in shown)
    else:
        fitting = (one for one in found if _fits(one, wanted))
    fitting = (one for one in fitting if wanted.redriven or not one.redriven)
    if wanted.most is None:
        yield from map(_told, fitting)
        return
    kept: list[Found] = []
    for one in fitting:
        kept.append(one)
        if len(kept) >= 2 * wanted.most + 100:
            kept = sorted(kept, key=_age)[-wanted.most :]
    yield from map(_shown, sorted(kept, key=_age)[-wanted.most :][::-1])


def _every(where: Where, topic: str | None) -> Iterator[Found]:
    if where.cluster is not None:
        cluster = where.cluster()
        names = [name for name in where.topics(cluster) if topic in (None, name)]
        marks = dead.marks_of(cluster, names)
        with closing(dead.in_topics(cluster, names, marks=marks)) as found:  # type: ignore[type-var]
            yield from found
    for folder in where.folders() if topic is None else ():
        yield from dead.in_folder(folder)


def _key(one: Found) -> tuple[str, str, str]:
    """The group of a letter: source, topic (nothing for one in a file) and kind of reason."""
    home = one.home if one.partition is not None else ""
    return one.letter.source, home, kind(one.letter.reason)[:_LONGEST]


def _age(one: Found) -> tuple[int, str, int, int]:
    return one.buried, one.home, one.partition or 0, one.offset


def _fits(one: Found, wanted: Letters) -> bool:
    if wanted.source not in (None, one.letter.source):
        return False
    return wanted.reason in (None, one.letter.reason, kind(one.letter.reason)[:_LONGEST])


def _told(one: Found) -> dict[str, Any]:
    home = {"topic": one.home, "partition": one.partition, "offset": one.offset}
    lies = {"file": one.home, "line": one.offset} if one.partition is None else home
    more = {"attempts": one.letter.attempts, "redriven": one.redriven, "place": one.place}
    return {**to_json(one.letter), "dead": lies, "buried": one.buried, **more}


def _shown(one: Found) -> dict[str, Any]:
    """A letter for the page, which shows the beginning of a long one; the export has all of it."""
    told = _told(one)
    long = [name for name in ("value", "key") if len(told.get(name) or "") > _SHOWN]
    return {**told, **{name: told[name][:_SHOWN] for name in long}, "cut": bool(long)}


def _new_places(cluster: Cluster, where: Where, known: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    metadata = cluster.connect()
    names = [name for name in where.topics(cluster) if name in metadata.topics]
    places = [
        TopicPartition(name, number)
        for name in names
        for number in metadata.topics[name].partitions
        if (name, number) not in known
    ]
    return offsets.known(cluster, places, OffsetSpec.earliest())


def _take(following: Following, seconds: float, stop: threading.Event, marked: dead.Marked) -> Iterator[Found]:
    """What comes in the next seconds, or at once what waits already."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.is_set():
        for message in following.take(0.2):
            found = dead.found_in(message)
            if isinstance(found, Found):
                yield found
            elif found is not None:
                marked(message.topic() or "", message.partition() or 0, found)


class _Files:
    """The letters in folders, read again only when something has changed there."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._seen: object = None
        self._groups = Groups(where)

    def told(self) -> list[dict[str, Any]]:
        """The groups of letters in files."""
        folders = self._where.folders()
        files = [file for folder in folders for file in (*sorted(folder.glob("*.jsonl")), *folder.glob(journal.NAME))]
        seen = [(str(file), file.stat().st_mtime_ns) for file in files]
        if seen != self._seen:
            self._groups = Groups(self._where)
            for folder in folders:
                self._groups.add(dead.in_folder(folder))
            self._seen = seen
        return self._groups.told()


def _with_files(groups: Groups, files: _Files) -> list[dict[str, Any]]:
    told = [*groups.told(), *files.told()]
    rest = [one for one in told if one["reason"] == REST and not one["source"]]
    for one in rest[1:]:  # the rest is one group, wherever its letters lie
        rest[0]["count"] += one["count"]
        told.remove(one)
    return told
