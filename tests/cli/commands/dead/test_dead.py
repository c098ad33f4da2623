"""`millrace dead` as a user meets it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record
from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget
from millrace.dead_letters.letter import DeadLetter, from_json_line
from millrace.dead_letters.writer import FolderDeadLetterTarget, WriterTask

Run = Callable[..., Any]
MOMENT = 1_700_000_000_000


def letter(topic: str, offset: int, **more: Any) -> DeadLetter:
    common = {"key": b"ann", "partition": 1, "timestamp": MOMENT, "reason": f"not JSON at column {offset}"}
    return DeadLetter(topic=topic, offset=offset, **{"value": b'{"id": %d' % offset, **common, **more})


@pytest.fixture
def pipeline(cluster: Cluster, topic: str) -> str:
    """A pipeline with four letters of a topic; the topic has another of another pipeline."""
    name = f"p-{topic}"
    target = KafkaDeadLetterTarget(cluster, name, "posts")
    target.prepare([topic])
    letters = [
        letter(topic, 3),
        letter(topic, 4, value=b"\xff\x00", key=None, headers=(("trace", b"\x1b[31m"),)),
        letter(topic, 5, value=None),
        letter(topic, 6, reason="field 'at' is missing"),
    ]
    for owner, found in (
        (target, letters),
        (KafkaDeadLetterTarget(cluster, f"other-{topic}", "s"), [letter(topic, 9)]),
    ):
        writer = owner.open(WriterTask("q", 0, 0))
        writer.write(found)
        writer.close()
    return name


@pytest.fixture
def folder(offline_run: Run, tmp_path: Path) -> Path:
    """The dead letters of a source that reads files, in the folder where commands run."""
    folder = tmp_path / ".millrace" / "pipelines" / "trips" / "dead" / "csv"
    writer = FolderDeadLetterTarget(folder, "trips", "csv").open(WriterTask("q", 0, 0))
    writer.write([DeadLetter(value=b"1,2", file="in/a.csv", reason=f"line {number}: 3 columns") for number in range(3)])
    writer.close()
    return folder


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("dead", "list", "--json", *arguments).out)
    return found


def offsets(ran: Any) -> list[int]:
    return [json.loads(line)["offset"] for line in ran.out.splitlines()]


def test_list_counts_by_reason(run: Run, topic: str, pipeline: str) -> None:
    row = next(row for row in rows(run) if row["where"] == f"{topic}.dead")
    assert row["letters"] == 5
    assert row["pipelines"] == [f"other-{topic}", pipeline]
    assert row["newest"] > MOMENT
    assert row["reasons"] == [
        {"reason": "not JSON at column N", "letters": 4},
        {"reason": "field 'at' is missing", "letters": 1},
    ]
    assert f"{topic}.dead" in run("dead", "list").out


def test_list_has_folders_too_and_needs_no_kafka_for_them(offline_run: Run, folder: Path) -> None:
    listed = offline_run("dead", "list")
    assert "only folders were searched" in listed.err
    assert "3 × line N: N columns" in listed.out
    assert [row["letters"] for row in rows(offline_run)] == [3]
    elsewhere = offline_run("dead", "list", "--state", "elsewhere")
    assert "there are no dead letters" in elsewhere.err


@pytest.mark.parametrize("target", ["{topic}", "{topic}.dead"])
def test_show_by_topic(run: Run, topic: str, pipeline: str, target: str) -> None:
    ran = run("dead", "show", target.format(topic=topic), "--json")
    assert sorted(offsets(ran)) == [3, 4, 5, 6, 9]
    assert "5 of 5 dead letters" in ran.err


def test_show_by_pipeline(run: Run, topic: str, pipeline: str) -> None:
    assert sorted(offsets(run("dead", "show", pipeline, "--json"))) == [3, 4, 5, 6]
    assert len(offsets(run("dead", "show", pipeline, "--json", "--max", "2"))) == 2


def test_show_by_file(run: Run, tmp_path: Path, topic: str, pipeline: str) -> None:
    (tmp_path / "p.yaml").write_text(f"name: {pipeline}\nsources: {{}}\n")
    assert sorted(offsets(run("dead", "show", "p.yaml", "--json"))) == [3, 4, 5, 6]


def test_show_one_record(run: Run, topic: str, pipeline: str) -> None:
    assert offsets(run("dead", "show", topic, "--json", "--partition", "1", "--offset", "4")) == [4]
    assert run("dead", "show", topic, "--json", "--partition", "0").out == ""


def test_show_for_people(run: Run, topic: str, pipeline: str) -> None:
    shown = run("dead", "show", pipeline).out
    assert f"{topic}[1]@3 of 2023-11-14T22:13:20.000Z" in shown
    assert "  reason:   not JSON at column 3" in shown
    assert '  value:    {"id": 3' in shown
    assert "  key:      ann" in shown
    assert "  header:   trace: \\x1b[31m" in shown  # not obeyed
    assert "  value:    ff 00 (2 bytes, not UTF-8)" in shown
    assert "  value:    (null)" in shown
    assert f"{pipeline}, source posts" in shown


def test_what_is_long_is_cut(run: Run, cluster: Cluster, topic: str) -> None:
    target = KafkaDeadLetterTarget(cluster, f"p-{topic}", "s")
    target.prepare([topic])
    writer = target.open(WriterTask("q", 0, 0))
    writer.write([letter(topic, 0, value=b"x" * 5000), letter(topic, 1, value=b"\xff" * 5000)])
    writer.close()
    shown = run("dead", "show", topic).out
    assert "xxx… (5,000 bytes)" in shown
    assert "ff ff … (5,000 bytes, not UTF-8)" in shown


def test_export_gives_every_byte(run: Run, tmp_path: Path, topic: str, pipeline: str) -> None:
    assert "4 dead letters" in run("dead", "export", pipeline, "--out", "letters.jsonl").err
    lines = (tmp_path / "letters.jsonl").read_bytes().splitlines()
    letters = {one.offset: one for one in map(from_json_line, lines)}
    assert letters[4].value == b"\xff\x00"
    assert letters[4].headers == (("trace", b"\x1b[31m"),)
    assert letters[5].value is None
    row = json.loads(lines[0])
    assert (base64.b64decode(row["value"]), row["text"]) == (b'{"id": 3', '{"id": 3')
    assert row["dead"] == {"topic": f"{topic}.dead", "partition": 1, "offset": 0}
    assert run("dead", "export", pipeline).out.encode().splitlines() == lines


def test_letters_of_files(offline_run: Run, folder: Path) -> None:
    shown = offline_run("dead", "show", "trips", "--max", "1").out
    assert shown.startswith("in/a.csv\n")
    assert f"{folder.relative_to(folder.parents[4])}/q-0-0.jsonl:3" in shown
    lines = offline_run("dead", "export", "trips").out.splitlines()
    assert [json.loads(line)["reason"] for line in lines] == [f"line {number}: 3 columns" for number in range(3)]


def test_records_of_others_are_told(run: Run, cluster: Cluster, topic: str) -> None:
    topics.create(cluster, f"{topic}.dead", 1)
    producer = Producer(cluster, f"{topic}.dead", Delivery(idempotence=False))
    producer.send([Record(b"strange")])
    producer.close()
    ran = run("dead", "show", topic)
    assert "1 records of" in ran.err
    assert "no dead letters" in ran.err


def test_what_has_no_letters_yet_is_no_mistake(run: Run, tmp_path: Path, topic: str) -> None:
    (tmp_path / ".millrace" / "pipelines" / "quiet").mkdir(parents=True)
    (tmp_path / "quiet.yml").write_text("name: silent\n")
    for target in ("quiet", "quiet.yml", topic):
        assert "no dead letters" in run("dead", "show", target).err


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (["show", "nobody-has-this-name"], "name.unknown"),
        (["export", "nobody-has-this-name"], "name.unknown"),
        (["show", "TOPIC", "--offset", "1"], "option.invalid"),
        (["show", "none.yaml"], "file.unusable"),
        (["show", "broken.yaml"], "file.unusable"),
        (["show", "nameless.yaml"], "file.unusable"),
        (["export", "TOPIC", "--out", "no/such/folder"], "file.unusable"),
    ],
)
def test_what_is_wrong_exits_2(
    run: Run, tmp_path: Path, topic: str, pipeline: str, arguments: list[str], condition: str
) -> None:
    (tmp_path / "broken.yaml").write_text("name: [")
    (tmp_path / "nameless.yaml").write_text("- 1\n")
    words = [topic if word == "TOPIC" else word for word in arguments]
    assert run("dead", *words, code=2).err.startswith(f"error[{condition}]")


def test_without_kafka_and_without_files_there_is_nothing_to_show(offline_run: Run) -> None:
    assert offline_run("dead", "show", "posts", code=2).err.startswith("error[kafka.none]")
