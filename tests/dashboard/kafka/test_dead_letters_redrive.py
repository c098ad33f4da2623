"""Dead letters sent again from the page."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.dashboard.kafka import dead_letters
from millrace.dashboard.kafka.dead_letters import DashboardRedrive, DeadLetterStores, Groups
from millrace.dashboard.run_interface import DeadLetterQuery, LetterGroup
from millrace.dead_letters.file_journal import FileSource
from millrace.dead_letters.letter import DeadLetter, dead_topic, to_headers, to_json_line
from millrace.dead_letters.store import create_dead_letter_topics, letters_in_folder
from millrace.errors import NoCluster, RedriveBusy
from millrace.telemetry.channels import Slot

from .conftest import Put


def letter(topic: str, offset: int, reason: str) -> DeadLetter:
    return DeadLetter(
        value=b"{", topic=topic, partition=0, offset=offset, reason=reason, pipeline=topic, source="posts"
    )


@pytest.fixture
def where(cluster: Cluster, topic: str, put: Put) -> DeadLetterStores:
    """Four letters for two reasons."""
    create_dead_letter_topics(cluster, {topic: dead_topic(topic)})
    letters = [letter(topic, number, reason) for number, reason in enumerate(["a 1", "a 2", "a 3", "b"])]
    put(dead_topic(topic), *(Record(one.value, headers=tuple(to_headers(one)), partition=0) for one in letters))
    return DeadLetterStores(lambda: cluster, pipeline=topic)


def counted(where: DeadLetterStores, until: tuple[int, int]) -> list[tuple[str, int, int]]:
    """The groups once so many letters are open and redriven."""
    slot, stop = Slot(), threading.Event()
    thread = threading.Thread(target=dead_letters.follow, args=(where, slot, stop))
    thread.start()

    def groups() -> list[dict[str, Any]]:
        return [one for one in slot.value or () if one["topic"]]

    try:
        while (sum(one["count"] for one in groups()), sum(one["redriven"] for one in groups())) != until:
            stop.wait(0.05)
        return [(one["reason"], one["count"], one["redriven"]) for one in groups()]
    finally:
        stop.set()
        thread.join()


def test_a_group_then_one(where: DeadLetterStores, topic: str) -> None:
    slot = Slot()
    redriving = DashboardRedrive(slot)
    home = dead_topic(topic)
    told = redriving.run(where, LetterGroup("posts", home, "a N"))
    assert (told["state"], told["sent"], told["failures"]) == ("done", 3, [])
    assert slot.value == told
    assert counted(where, (1, 3)) == [("b", 1, 0), ("a N", 0, 3)]
    (left,) = dead_letters.letters(where, DeadLetterQuery("posts"))
    assert (left["reason"], left["redriven"], left["attempts"]) == ("b", False, 1)
    assert [one["redriven"] for one in dead_letters.letters(where, DeadLetterQuery("posts", redriven=True))] == [
        True
    ] * 3 + [False]
    assert redriving.run(where, LetterGroup("posts", home, letter=left["place"]))["sent"] == 1
    assert list(dead_letters.letters(where, DeadLetterQuery("posts"))) == []


def test_of_files(tmp_path: Path) -> None:
    folder, source = tmp_path / "dead" / "logs", tmp_path / "in"
    folder.mkdir(parents=True)
    source.mkdir()
    FileSource(str(source)).save(folder)
    one = DeadLetter(value=b"x", file=str(source / "a.json"), reason="not JSON", pipeline="p", source="logs")
    (folder / "q-0-0.jsonl").write_bytes(to_json_line(one))
    where = DeadLetterStores(None, lambda: [folder], "p")
    assert DashboardRedrive(Slot()).run(where, LetterGroup("logs", None, "not JSON"))["sent"] == 1
    groups = Groups(where)
    groups.add(letters_in_folder(folder))
    assert [(one["count"], one["redriven"]) for one in groups.summary()] == [(0, 1)]
    assert len(list(source.iterdir())) == 1


def test_one_at_a_time_and_failures_are_told() -> None:
    slot = Slot()
    redriving = DashboardRedrive(slot)
    with pytest.raises(NoCluster):
        redriving.run(DeadLetterStores(None), LetterGroup("posts", "posts.dead"))
    assert (slot.value["state"], slot.value["error"]) == ("failed", "this run uses no Kafka")
    with redriving._busy, pytest.raises(RedriveBusy):
        redriving.run(DeadLetterStores(None), LetterGroup("posts", None))
