"""Dead letters where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.dead_letters import store
from millrace.dead_letters.letter import DeadLetter, to_headers, to_json_line
from millrace.dead_letters.store import create_dead_letter_topics, letters_in_folder, letters_in_topics
from millrace.errors import FileUnusable, UnknownTopic


def letter(number: int) -> DeadLetter:
    return DeadLetter(value=b"%d" % number, topic="t", partition=0, offset=number, reason="r", pipeline="p", source="s")


def as_record(one: DeadLetter, partition: int | None = None) -> Record:
    return Record(one.value, one.key, None, tuple(to_headers(one)), partition)


def test_a_dead_topic_takes_what_the_source_takes_and_keeps_it(cluster: Cluster, topic: str) -> None:
    topics.alter(cluster, topic, configs={"max.message.bytes": "5000000", "cleanup.policy": "compact"})
    name = f"{topic}.dead"
    assert create_dead_letter_topics(cluster, {topic: name}) == [name]
    made = topics.describe(cluster, [name])[0]
    assert len(made.partitions) == 3
    assert made.configs == {
        "cleanup.policy": "delete",
        "max.message.bytes": str(5_000_000 + 1024 * 1024),
        "retention.ms": "-1",
    }
    assert create_dead_letter_topics(cluster, {topic: name}) == []
    assert name in store.dead_topics(cluster)


def test_a_source_that_is_not_there_has_no_dead_topic(cluster: Cluster, topic: str) -> None:
    with pytest.raises(UnknownTopic):
        create_dead_letter_topics(cluster, {f"{topic}-none": f"{topic}-none.dead"})


def test_letters_are_read_to_the_end_and_others_are_told(
    cluster: Cluster, topic: str, put: Callable[..., object]
) -> None:
    put(topic, *(as_record(letter(number), number % 2) for number in range(10)), Record(b"strange"))
    strange: list[None] = []
    found = list(letters_in_topics(cluster, [topic], lambda: strange.append(None)))
    assert sorted(one.letter.offset or 0 for one in found) == list(range(10))
    assert len(strange) == 1
    assert {(one.location, one.partition) for one in found} == {(topic, 0), (topic, 1)}
    assert all(one.stored_at > 1_700_000_000_000 for one in found)


def test_letters_of_a_transaction_that_is_open_or_aborted_are_not_there(
    cluster: Cluster, lane: str, put: Callable[..., object]
) -> None:
    put(lane, as_record(letter(0)))
    writer = ConfluentProducer(cluster.config(transactional_id=lane))
    writer.init_transactions(30)
    for number, end in ((1, writer.abort_transaction), (2, writer.commit_transaction), (3, None)):
        writer.begin_transaction()
        writer.produce(lane, b"x", headers=to_headers(letter(number)))
        writer.flush(30)
        if end:
            end(30)
    assert [one.letter.offset for one in letters_in_topics(cluster, [lane])] == [0, 2]
    writer.abort_transaction(30)


def test_an_empty_topic_has_no_letters(cluster: Cluster, topic: str) -> None:
    assert list(letters_in_topics(cluster, [topic])) == []


def test_files_are_read_oldest_first(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines" / "p" / "dead" / "s"
    folder.mkdir(parents=True)
    (tmp_path / "pipelines" / "p" / "checkpoints").mkdir()
    for name, number in (("b.jsonl", 1), ("a.jsonl", 2), (".c.jsonl.1.tmp", 3)):
        (folder / name).write_bytes(to_json_line(letter(number)) + to_json_line(letter(number + 10)))
        os.utime(folder / name, (number, number))
    assert store.dead_folders(tmp_path) == store.dead_folders(tmp_path, "p") == [folder]
    assert store.dead_folders(tmp_path, "q") == []
    assert store.dead_folders(tmp_path / "pipelines" / "p") == [folder]
    found = list(letters_in_folder(folder))
    assert [(one.letter.offset, one.offset, one.stored_at) for one in found] == [
        (1, 1, 1000),
        (11, 2, 1000),
        (2, 1, 2000),
        (12, 2, 2000),
    ]


def test_a_damaged_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(to_json_line(letter(1)) + b"{\n")
    with pytest.raises(FileUnusable) as raised:
        list(letters_in_folder(tmp_path))
    assert str(raised.value.place) == f"{tmp_path}/a.jsonl:2"
