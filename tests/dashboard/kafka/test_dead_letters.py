"""Dead letters, grouped and one by one."""

from __future__ import annotations

import threading
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.dashboard.kafka import dead_letters
from millrace.dashboard.kafka.dead_letters import DeadLetterStores, Groups
from millrace.dashboard.run_interface import DeadLetterQuery
from millrace.dead_letters.letter import DeadLetter, dead_topic, to_headers, to_json_line
from millrace.telemetry.channels import Slot

from .conftest import Put


def letter(topic: str, offset: int, reason: str, pipeline: str) -> DeadLetter:
    return DeadLetter(
        value=b"{broken", topic=topic, partition=0, offset=offset, reason=reason, pipeline=pipeline, source="posts"
    )


@pytest.fixture
def where(cluster: Cluster, topic: str, put: Put) -> DeadLetterStores:
    """Five letters of a pipeline of its own, and one of another."""
    topics.create(cluster, dead_topic(topic), 2)
    reasons = ["not JSON at 1", "not JSON at 22", "not JSON at 333", "field <b>id</b>", "field <b>id</b>"]
    letters = [letter(topic, number, reason, topic) for number, reason in enumerate(reasons)]
    letters.append(letter(topic, 9, "of another", "another"))
    put(
        dead_topic(topic),
        *(Record(one.value, one.key, headers=tuple(to_headers(one)), partition=0) for one in letters),
        Record(b"no letter", partition=1),
    )
    return DeadLetterStores(lambda: cluster, pipeline=topic, queries={"posts": "popular"})


def followed(where: DeadLetterStores, slot: Slot, many: int) -> Any:
    stop = threading.Event()
    thread = threading.Thread(target=dead_letters.follow, args=(where, slot, stop))
    thread.start()
    try:
        while sum(one["count"] for one in slot.value or ()) < many:
            stop.wait(0.05)
        return slot.value
    finally:
        stop.set()
        thread.join()


def test_groups_by_source_and_reason(where: DeadLetterStores, topic: str) -> None:
    first, second = followed(where, Slot(), 5)
    assert (first["reason"], first["count"], first["source"], first["query"]) == (
        "not JSON at N",
        3,
        "posts",
        "popular",
    )
    assert (first["topic"], first["sample"]) == (dead_topic(topic), {"partition": 0, "offset": 2})
    assert (second["reason"], second["count"]) == ("field <b>id</b>", 2)


def test_letters_one_by_one(where: DeadLetterStores) -> None:
    newest = list(dead_letters.letters(where, DeadLetterQuery(most=2)))
    assert [one["offset"] for one in newest] == [4, 3]
    assert newest[0]["text"] == "{broken"
    assert newest[0]["dead"]["offset"] == 4
    assert [one["offset"] for one in dead_letters.letters(where, DeadLetterQuery(reason="not JSON at N"))] == [0, 1, 2]
    assert list(dead_letters.letters(where, DeadLetterQuery(source="other"))) == []
    assert list(dead_letters.letters(where, DeadLetterQuery(topic="other.dead"))) == []
    assert len(list(dead_letters.letters(where, DeadLetterQuery(topic=newest[0]["dead"]["topic"])))) == 5


def test_letters_in_files(tmp_path: Path) -> None:
    folder = tmp_path / "dead" / "logs"
    folder.mkdir(parents=True)
    one = DeadLetter(value=b"x", file="a.json", reason="not JSON", pipeline="p", source="logs")
    (folder / "1.jsonl").write_bytes(to_json_line(one) + to_json_line(one))
    where = DeadLetterStores(None, lambda: [folder], "p")
    (group,) = followed(where, Slot(), 2)
    assert (group["source"], group["topic"], group["count"]) == ("logs", None, 2)
    assert [found["file"] for found in dead_letters.letters(where, DeadLetterQuery())] == ["a.json", "a.json"]


def test_too_many_kinds_are_counted_together() -> None:
    groups = Groups(DeadLetterStores(None))
    made = [letter("t", number, "a" * (number + 1), "p") for number in range(300)]
    groups.add(dead_letters.StoredDeadLetter(one, "t.dead", 0, one.offset or 0, 5) for one in made)
    told = groups.summary()
    assert len(told) == dead_letters.MOST_GROUPS + 1
    assert (told[0]["reason"], told[0]["count"]) == ("other reasons", 100)
    assert sum(one["count"] for one in told) == 300


def test_the_letters_of_other_reasons_are_those_in_no_group(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    reasons = ["a", "b", "c", "c"]
    made = [DeadLetter(value=b"x", file="f", reason=reason, pipeline="p", source="logs") for reason in reasons]
    (folder / "1.jsonl").write_bytes(b"".join(map(to_json_line, made)))
    where = DeadLetterStores(None, lambda: [folder])
    shown = [
        {"source": "logs", "topic": None, "reason": "a"},
        {"source": "", "topic": None, "reason": dead_letters.REST},
    ]
    found = list(dead_letters.letters(where, DeadLetterQuery(None, dead_letters.REST, 10), shown))
    assert [one["reason"] for one in found] == ["c", "c", "b"]
    assert len({str(one["dead"]) for one in found}) == 3


def test_a_long_letter_is_cut_for_the_page_and_whole_in_the_export(tmp_path: Path) -> None:
    folder = tmp_path / "posts"
    folder.mkdir()
    long = DeadLetter(value=b"x" * 10_000, key=b"k" * 5_000, file="f", reason="too long", pipeline="p", source="posts")
    (folder / "one.jsonl").write_bytes(to_json_line(long))
    where = DeadLetterStores(None, lambda: [folder])
    (shown,) = dead_letters.letters(where, DeadLetterQuery(None, None, 10))
    assert (b64decode(shown["value"]), b64decode(shown["key"]), shown["cut"]) == (b"x" * 3000, b"k" * 3000, True)
    (exported,) = dead_letters.letters(where, DeadLetterQuery(None, None, None))
    assert b64decode(exported["value"]) == long.value
