"""Sources and sinks on a real Spark: formats, dead letters of files, the user's own code, triggers without batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

import millrace as mr
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.memory import MEMORY
from millrace.dead_letters.store import letters_in_folder, letters_in_topics
from millrace.errors import MillraceError
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]


def send(cluster: Cluster, topic: str, *values: bytes | None, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(value, b"k", partition=0, headers=headers) for value in values])
    producer.close()


def received(cluster: Cluster, topic: str, most: int) -> list[Any]:
    """So many records from the beginning of a topic."""
    reading = ReadRequest(topic, start="earliest", most=most, timeout=30.0)
    return [message for batch in read_records(cluster, reading) for message in batch]


def copied(source: Any, query: str = "SELECT * FROM source", **sink: Any) -> mr.Pipeline:
    pipeline = mr.Pipeline("copy")
    pipeline.source("source", source)
    pipeline.sql("result", query)
    pipeline.sink("result", mr.memory(), **sink)
    return pipeline


def result() -> list[dict[str, Any]]:
    return sorted(MEMORY.tables()["result"].to_pylist(), key=repr)


def test_csv_messages(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b"a,1", b"b,x", b"c,3")
    run_pipeline(copied(mr.kafka(topic, format="csv", schema="name string, n int")))
    assert result() == [{"name": "a", "n": 1}, {"name": "c", "n": 3}]
    assert [found.letter.value for found in letters_in_topics(cluster, [f"{topic}.dead"])] == [b"b,x"]


def test_text_that_is_not_utf8_is_a_dead_letter(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b"fine", b"\xff\xfe", None, headers=(("h", b"\x00"),))
    run_status = run_pipeline(copied(mr.kafka(topic, format="text"), "SELECT value, key, offset FROM source"))
    assert result() == [{"value": "fine", "key": "k", "offset": 0}]
    letters = [found.letter for found in letters_in_topics(cluster, [f"{topic}.dead"])]
    assert [(letter.value, letter.offset, letter.headers) for letter in letters] == [
        (b"\xff\xfe", 1, (("h", b"\x00"),)),
        (None, 2, (("h", b"\x00"),)),
    ]
    assert run_status.dead() == {"source": 2}


def test_raw_bytes_and_headers(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b"\xff", headers=(("h", b"\x01"),))
    run_pipeline(copied(mr.kafka(topic, format="raw", include=("key", "headers"))))
    assert result() == [{"value": b"\xff", "key": b"k", "headers": [{"key": "h", "value": b"\x01"}]}]


def test_headers_beside_json(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b'{"n": 1}', headers=(("h", b"\x01"),))
    run_pipeline(copied(mr.kafka(topic, schema="n int", include=("headers", "partition"))))
    assert result() == [{"n": 1, "headers": [{"key": "h", "value": b"\x01"}], "partition": 0}]


def test_avro_there_and_back(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b'{"name": "a", "n": 1}', b'{"name": null, "n": 2}')
    written = mr.Pipeline("write")
    written.source("source", mr.kafka(topic, schema="name string, n bigint"))
    written.sink("source", mr.kafka(f"{topic}-avro", format="avro", key="name"))
    run_pipeline(written)
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "name", "type": ["null", "string"]}, {"name": "n", "type": ["null", "long"]}],
    }
    run_pipeline(copied(mr.kafka(f"{topic}-avro", format="avro", avro_schema=json.dumps(schema))))
    assert result() == [{"name": "a", "n": 1}, {"name": None, "n": 2}]


def test_on_bad_drop(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b'{"n": 1}', b"nonsense")
    run_pipeline(copied(mr.kafka(topic, schema="n int", on_bad="drop")))
    assert result() == [{"n": 1}]
    assert f"{topic}.dead" not in cluster.connect().topics


def test_on_bad_fail_says_where_the_record_is(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    send(cluster, topic, b'{"n": 1}', b"nonsense")
    with pytest.raises(MillraceError) as raised:
        run_pipeline(copied(mr.kafka(topic, schema="n int", on_bad="fail")))
    assert raised.value.condition == "record.bad"
    assert f"{topic}[0]@1" in str(raised.value.why)


@pytest.mark.parametrize(
    ("kind", "content", "options", "good", "bad"),
    [
        ("json", b'{"n": 1}\nnonsense\n', {"schema": "n int"}, [{"n": 1}], [b"nonsense"]),
        ("csv", b"n,t\n1,a\nx,b\n", {"schema": "n int, t string", "header": True}, [{"n": 1, "t": "a"}], [b"x,b"]),
        ("text", b"fine\n\xff\n", {}, [{"value": "fine"}], [b"\xff"]),
    ],
)
def test_bad_lines_of_files(
    tmp_path: Path,
    run_pipeline: Run,
    kind: str,
    content: bytes,
    options: dict[str, Any],
    good: list[dict[str, Any]],
    bad: list[bytes],
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(content)
    run_pipeline(copied(mr.files(str(tmp_path / "in"), format=kind, **options)), state=tmp_path / "state")
    assert result() == good
    letters = [found.letter for found in letters_in_folder(tmp_path / "state" / "dead" / "source")]
    assert [letter.value for letter in letters] == bad
    assert str(letters[0].file).endswith("/in/file")


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv", "text"])
def test_files_there_and_back_with_an_inferred_schema(
    tmp_path: Path, run_pipeline: Run, cluster: Cluster, topic: str, kind: str
) -> None:
    send(cluster, topic, b"one", b"two")
    pipeline = mr.Pipeline("write")
    pipeline.source("source", mr.kafka(topic, format="text", include=()))
    pipeline.sink("source", mr.files(str(tmp_path / "out"), format=kind, header=kind == "csv"))
    run_pipeline(pipeline)
    run_pipeline(copied(mr.files(str(tmp_path / "out"), format=kind, header=kind == "csv")))
    assert result() == [{"value": "one"}, {"value": "two"}]


def test_a_relative_path_beside_another_sink(
    tmp_path: Path, run_pipeline: Run, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    send(cluster, topic, b"one")
    pipeline = copied(mr.kafka(topic, format="text", include=()))
    pipeline.sink("result", mr.files("out", format="text"))
    run_pipeline(pipeline)
    assert [file.read_text() for file in (tmp_path / "out").glob("*.txt")] == ["one\n"]


def test_files_are_archived_after_reading(tmp_path: Path, run_pipeline: Run) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"n": number}))
        source = mr.files(str(tmp_path / "in"), schema="n int", after="archive", archive=str(tmp_path / "old"))
        pipeline = mr.Pipeline("copy")
        pipeline.source("source", source)
        pipeline.sink("source", mr.files(str(tmp_path / "out")))
        run_pipeline(pipeline, state=tmp_path / "state")
    assert not (tmp_path / "in" / "0.json").exists()
    assert list((tmp_path / "old").rglob("0.json"))


class Written:
    """Rows into files, as an object with open, process and close."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, partition: int, batch: int) -> bool:
        self.file = (self.folder / f"{batch}-{partition}").open("w")
        return True

    def process(self, row: Row) -> None:
        self.file.write(f"{row.value}\n")

    def close(self, error: Exception | None) -> None:
        self.file.close()


@pytest.mark.parametrize("sinks", [1, 2])
def test_foreach_with_an_object(tmp_path: Path, run_pipeline: Run, cluster: Cluster, topic: str, sinks: int) -> None:
    send(cluster, topic, b"one", b"two")
    pipeline = mr.Pipeline("each")
    pipeline.source("source", mr.kafka(topic, format="text"))
    (tmp_path / "out").mkdir()
    pipeline.sink("source", mr.foreach(Written(tmp_path / "out")))
    if sinks == 2:
        pipeline.sink("source", mr.memory())
    run_pipeline(pipeline)
    assert sorted(line for file in (tmp_path / "out").iterdir() for line in file.read_text().split()) == ["one", "two"]


def test_foreach_with_a_function_of_batches(run_pipeline: Run, cluster: Cluster, topic: str) -> None:
    send(cluster, topic, b"one", b"two")
    seen: list[tuple[int, int]] = []
    pipeline = mr.Pipeline("each")
    pipeline.source("source", mr.kafka(topic, format="text"))
    pipeline.sink("source", mr.foreach(lambda frame, batch: seen.append((batch, frame.count())), batch=True))
    run_pipeline(pipeline)
    assert seen == [(0, 2)]


def test_topic_partition_and_headers_from_columns(
    cluster: Cluster, topic: str, run_pipeline: Run, spark: SparkSession
) -> None:
    send(cluster, topic, b'{"n": 1}')
    pipeline = mr.Pipeline("routed")
    pipeline.source("source", mr.kafka(topic, schema="n int"))
    pipeline.sql(
        "routed",
        f"SELECT n, '{topic}-out' AS where, 0 AS part, array(struct('h' AS key, encode('v', 'utf-8') AS value)) AS h"  # noqa: S608
        " FROM source",
    )
    pipeline.sink("routed", mr.kafka(topic_column="where", partition="part", headers="h", key="n"))
    pipeline.sink("source", mr.kafka(f"{topic}-out"))
    run_pipeline(pipeline)
    found = {message.headers() and message.headers()[0]: message for message in received(cluster, f"{topic}-out", 2)}
    routed = found["h", b"v"]
    assert (routed.key(), routed.partition(), json.loads(routed.value())) == (b"1", 0, {"n": 1})


def alone(cluster: Cluster, topic: str) -> str:
    """A topic of one partition: without batches each one holds a slot, and the tests' Spark has few."""
    topics.create(cluster, f"{topic}-alone", 1)
    return f"{topic}-alone"


def test_real_time_from_topic_to_topic(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    topic = alone(cluster, topic)
    send(cluster, topic, b'{"n": 1}', b"nonsense", b'{"n": 2}')
    pipeline = mr.Pipeline("quick", trigger="realtime 5s")
    pipeline.source("source", mr.kafka(topic, schema="n int"))
    pipeline.sql("doubled", "SELECT n * 2 AS n FROM source")
    pipeline.sink("doubled", mr.kafka(f"{topic}-out"), mode="update")
    found: list[Any] = []

    def arrived() -> bool:
        if f"{topic}-out" in cluster.connect().topics and not found:
            found.extend(received(cluster, f"{topic}-out", 2))
        return len(found) == 2 and bool(buried())

    def buried() -> list[bytes | None]:
        return [one.letter.value for one in letters_in_topics(cluster, [f"{topic}.dead"])]

    run_pipeline(pipeline, until=arrived)
    assert buried() == [b"nonsense"]
    assert sorted(json.loads(message.value())["n"] for message in found) == [2, 4]


def test_a_state_that_was_made_before_any_batch_does_not_stand_in_the_way(
    cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path
) -> None:
    """As real-time mode leaves it when it is stopped before its first checkpoint."""
    send(cluster, topic, b"a", b"b", b"a")
    made = tmp_path / "state" / "checkpoints" / "counts-update" / "state" / "0" / "0" / "_metadata"
    made.mkdir(parents=True)
    (made / "schema").write_text("v2")
    pipeline = mr.Pipeline("left")
    pipeline.source("source", mr.kafka(topic, format="text"))
    pipeline.sql("counts", "SELECT value, count(*) AS n FROM source GROUP BY value")
    pipeline.sink("counts", mr.kafka(f"{topic}-out"), mode="update")
    run_pipeline(pipeline, tmp_path / "state")
    told = [json.loads(message.value()) for message in received(cluster, f"{topic}-out", 2)]
    assert {one["value"]: one["n"] for one in told} == {"a": 2, "b": 1}


def test_continuous_from_topic_to_topic(cluster: Cluster, topic: str, run_pipeline: Run) -> None:
    topic = alone(cluster, topic)
    send(cluster, topic, b"one")
    pipeline = mr.Pipeline("flowing", trigger="continuous 1s")
    pipeline.source("source", mr.kafka(topic, format="text", on_bad="drop", include=()))
    pipeline.sink("source", mr.kafka(f"{topic}-out", format="text"))
    found: list[Any] = []

    def arrived() -> bool:
        if f"{topic}-out" in cluster.connect().topics and not found:
            found.extend(received(cluster, f"{topic}-out", 1))
        return bool(found)

    run_pipeline(pipeline, until=arrived)
    assert found[0].value() == b"one"
