"""`millrace dead redrive` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.dead_letters.file_journal import FileSource
from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget
from millrace.dead_letters.letter import DeadLetter
from millrace.dead_letters.writer import FolderDeadLetterTarget, WriterTask

Run = Callable[..., Any]


def letter(topic: str, offset: int, **more: Any) -> DeadLetter:
    common = {"key": b"ann", "partition": 1, "timestamp": None, "reason": f"not JSON at column {offset}"}
    return DeadLetter(topic=topic, offset=offset, **{"value": b'{"id": %d' % offset, **common, **more})


@pytest.fixture
def pipeline(cluster: Cluster, topic: str) -> str:
    """A pipeline with four letters of a topic."""
    name = f"p-{topic}"
    target = KafkaDeadLetterTarget(cluster, name, "posts")
    target.prepare([topic])
    writer = target.open(WriterTask("q", 0, 0))
    writer.write([*(letter(topic, number) for number in range(3)), letter(topic, 3, reason="field 'at' is missing")])
    writer.close()
    return name


@pytest.fixture
def folder(offline_run: Run, tmp_path: Path) -> Path:
    """A folder that a source reads, with three dead letters of one file."""
    source = tmp_path / "in"
    source.mkdir()
    buried = tmp_path / ".millrace" / "pipelines" / "trips" / "dead" / "csv"
    writer = FolderDeadLetterTarget(buried, "trips", "csv", FileSource(str(source), header="a,b")).open(
        WriterTask("q", 0, 0)
    )
    letters = [DeadLetter(value=b"1;%d" % n, file=(source / "a.csv").as_uri(), reason="one column") for n in range(3)]
    writer.write(letters)
    writer.close()
    return source


def sent(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """The values of the first records of a topic."""
    found: list[bytes] = []
    with closing(read_records(cluster, ReadRequest(topic, "earliest", committed=True))) as batches:
        while len(found) < count:
            found += [one.value() or b"" for one in next(batches)]
    return sorted(found)


def numbers(run: Run, topic: str) -> tuple[int, int]:
    """Open and redriven letters, as they are listed."""
    rows = json.loads(run("dead", "list", "--all", "--json").out)
    row = next(row for row in rows if row["where"] == f"{topic}.dead")
    return row["letters"], row["redriven"]


def test_a_dry_run_changes_nothing(run: Run, topic: str, pipeline: str) -> None:
    ran = run("dead", "redrive", pipeline, "--dry-run", "--fix-sql", "value || '}'")
    assert '  fixed:    {"id": 0}' in ran.out
    assert "3   not JSON at column N" in ran.out
    assert f"4 letters, to {topic}" in ran.err
    told = json.loads(run("dead", "redrive", pipeline, "--dry-run", "--json", "--reason", "MISSING").out)
    assert (told["letters"], told["would"]["sent"]) == (1, 1)
    assert numbers(run, topic) == (4, 0)


def test_nobody_is_asked_where_nobody_is(run: Run, topic: str, pipeline: str) -> None:
    assert "--yes" in run("dead", "redrive", pipeline, code=2).err
    assert numbers(run, topic) == (4, 0)


def test_some_then_the_rest_then_none(run: Run, cluster: Cluster, topic: str, pipeline: str) -> None:
    assert "1 sent again" in run("dead", "redrive", topic, "--partition", "1", "--offset", "2", "--yes").err
    assert numbers(run, topic) == (3, 1)
    again = run("dead", "redrive", topic, "--letter", f"{topic}[1]@2", "--yes")
    assert f"{topic}[1]@2 was sent again before" in again.err
    told = json.loads(run("dead", "redrive", pipeline, "--yes", "--json", "--fix-sql", "value || '}'").out)
    assert (told["sent"], told["failed"]) == (3, 0)
    assert numbers(run, topic) == (0, 4)
    assert "no dead letters to send again" in run("dead", "redrive", pipeline, "--yes").err
    assert sent(cluster, topic, 4) == [b'{"id": 0}', b'{"id": 1}', b'{"id": 2', b'{"id": 3}']
    listed = [row["where"] for row in json.loads(run("dead", "list", "--json").out)]
    assert f"{topic}.dead" not in listed
    assert run("dead", "show", topic, "--json").out == ""
    shown = run("dead", "show", topic, "--all")
    assert ", sent again" in shown.out
    assert "4 of 4 dead letters" in shown.err
    exported = run("dead", "export", topic, "--all").out.splitlines()
    assert [json.loads(line)["redriven"] for line in exported] == [True] * 4
    assert "0 dead letters" in run("dead", "export", topic).err


def test_a_fix_that_fails_leaves_its_letter(run: Run, tmp_path: Path, topic: str, pipeline: str) -> None:
    (tmp_path / "mend.py").write_text(
        "def mend(letter):\n"
        "    if letter.offset == 2:\n"
        "        raise ValueError('no two')\n"
        "    return letter.value + b'}'\n"
    )
    dry = run("dead", "redrive", pipeline, "--dry-run", "--fix", "mend.py:mend", code=1)
    assert f"{topic}[1]@2 is kept: ValueError: no two (mend.py:3)" in dry.err
    assert f"4 letters, 1 kept, 3 to {topic}" in dry.err
    ran = run("dead", "redrive", pipeline, "--yes", "--fix", "mend.py:mend", code=1)
    assert f"{topic}[1]@2 is kept: ValueError: no two (mend.py:3)" in ran.err
    assert "3 sent again, 1 failed and are kept" in ran.err
    assert numbers(run, topic) == (1, 3)


def test_what_cannot_be_asked_for(run: Run, topic: str, pipeline: str) -> None:
    for arguments in (
        ("--offset", "3"),
        ("--fix", "mend.py"),
        ("--fix", "a.py:b", "--fix-sql", "value"),
        ("--fix-sql", "valu"),
        ("--since", "soon"),
        ("--letter", "rubbish"),
    ):
        run("dead", "redrive", pipeline, "--yes", *arguments, code=2)
        run("dead", "redrive", pipeline, "--dry-run", *arguments, code=2)
    run("dead", "redrive", f"{topic}-none", "--yes", code=2)


def test_lines_of_files_go_back_without_any_kafka(offline_run: Run, folder: Path) -> None:
    ran = offline_run("dead", "redrive", "trips", "--yes", "--fix-sql", "replace(value, ';', ',')")
    assert "3 sent again" in ran.err
    (made,) = folder.glob("*.csv")
    assert made.read_text() == "a,b\n1,0\n1,1\n1,2\n"
    assert "no dead letters to send again" in offline_run("dead", "redrive", "trips", "--yes").err
    row = json.loads(offline_run("dead", "list", "--all", "--json").out)[0]
    assert (row["letters"], row["redriven"]) == (0, 3)
