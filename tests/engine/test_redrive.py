"""Dead letters through their pipeline again: what is still bad dies again, what was mended is in the sink once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import millrace as mr
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dead_letters import store
from millrace.dead_letters.file_redrive import redrive_files
from millrace.dead_letters.fixes import sql_fix
from millrace.dead_letters.redrive import Redrive, redrive_topic
from millrace.dead_letters.store import letters_in_folder, letters_in_topics, redrive_markers_in_topics
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]


def send(cluster: Cluster, topic: str, *values: bytes) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(value, b"k") for value in values])
    producer.close()


def test_of_a_topic(cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path) -> None:
    pipeline = mr.Pipeline("redriven")
    pipeline.source("posts", mr.kafka(topic, schema="id int NOT NULL"))
    pipeline.sink("posts", mr.files(str(tmp_path / "out"), format="json"))
    send(cluster, topic, b'{"id": 1}', b'{"id": 2', b'{"id": 3}')

    def run() -> list[store.StoredDeadLetter]:
        run_pipeline(pipeline, tmp_path / "state")
        marks = redrive_markers_in_topics(cluster, [f"{topic}.dead"])
        return [one for one in letters_in_topics(cluster, [f"{topic}.dead"], markers=marks) if not one.redriven]

    assert [one.letter.attempts for one in run()] == [1]
    assert redrive_topic(cluster, f"{topic}.dead", Redrive()).sent == 1
    (again,) = run()
    assert (again.letter.attempts, again.letter.value) == (2, b'{"id": 2')
    assert redrive_topic(cluster, f"{topic}.dead", Redrive(fix=sql_fix("value || '}'"))).sent == 1
    assert run() == []
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(lines) == ['{"id":1}', '{"id":2}', '{"id":3}']


def test_of_files_with_a_header(run_pipeline: Run, tmp_path: Path) -> None:
    source, state = tmp_path / "in", tmp_path / "state"
    source.mkdir()
    (source / "a b.csv").write_text("id,name\n1,ann\nx,bob\n")
    pipeline = mr.Pipeline("refiled")
    pipeline.source("people", mr.files(str(source), format="csv", header=True, schema="id int NOT NULL, name string"))
    pipeline.sink("people", mr.files(str(tmp_path / "out"), format="json"))
    letters = state / "dead" / "people"

    def open_() -> list[store.StoredDeadLetter]:
        run_pipeline(pipeline, state)
        return [one for one in letters_in_folder(letters) if not one.redriven]

    (first,) = open_()
    assert first.letter.value == b"x,bob"
    assert redrive_files(letters, Redrive()).sent == 1
    assert [one.letter.attempts for one in open_()] == [2]
    assert redrive_files(letters, Redrive(fix=sql_fix("replace(value, 'x', '2')"))).sent == 1
    assert open_() == []
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(lines) == ['{"id":1,"name":"ann"}', '{"id":2,"name":"bob"}']
