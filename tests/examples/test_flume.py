"""examples/flume: what agents send is counted; real agents, with the configurations of the example."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import RunPipeline, committed
from flume_agent import flume_agent
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Record
from millrace.pipeline.loading import load
from millrace.pipeline.model import freeze
from millrace.services.process import free_port

from .conftest import EXAMPLES, Stage, moved, readme_rows, rows

FOLDER = EXAMPLES / "flume"
LINES = (FOLDER / "data/app.log").read_bytes().splitlines()


def counted(times: int = 1) -> list[tuple[str, ...]]:
    """The result as plain Python makes it."""
    counts = Counter(line.split()[1].decode() for line in LINES)
    return [("shop", level, str(count * times)) for level, count in sorted(counts.items())]


def new_topic(cluster: Cluster) -> str:
    """A topic of the test's own."""
    name = f"flume-{uuid.uuid4().hex[:12]}"
    topics.create(cluster, name, 1)
    return name


def test_until_it_is_caught_up_it_reads_what_the_topic_has_and_does_not_listen(stage: Stage) -> None:
    topic = stage.topic()
    stage.send(topic, *(Record(line, b"shop") for line in LINES))
    said: list[str] = []
    stage.run("flume", {"app-logs": topic}, say=said.append)
    assert stage.shown("levels") == counted()
    assert readme_rows("flume") == set(counted())
    assert any("does not listen at 127.0.0.1:4141" in text for text in said)


@pytest.mark.long
def test_agents_send_to_a_pipeline_that_runs(run_pipeline: RunPipeline, cluster: Cluster, tmp_path: Path) -> None:
    topic, port = new_topic(cluster), free_port()
    pipeline = moved(load(str(FOLDER / "pipeline.yaml")), {"app-logs": topic})
    (source,) = pipeline.sources
    options = freeze({**dict(source.connection.options), "listen": f"127.0.0.1:{port}"})
    there = replace(pipeline, sources=(replace(source, connection=replace(source.connection, options=options)),))
    changes = {"examples/flume/data": str(FOLDER / "data"), "port = 4141": f"port = {port}"}
    compressed = (FOLDER / "avro.conf").read_text("utf-8") + "agent.sinks.millrace.compression-type = deflate\n"
    (tmp_path / "compressed").mkdir()
    wanted = set(counted(times=2))
    with (
        flume_agent((FOLDER / "avro.conf").read_text("utf-8"), tmp_path, changes) as log,
        flume_agent(compressed, tmp_path / "compressed", changes),
    ):
        run_pipeline(there, until=lambda: any(set(rows(text)) == wanted for text in run_pipeline.printed))
    assert set(rows(run_pipeline.printed[-1])) == wanted, log.read_text("utf-8")
    found = Counter((one.key(), one.value()) for one in committed(cluster, topic))
    assert found == Counter({(b"shop", line): 2 * count for line, count in Counter(LINES).items()})
    assert {tuple(one.headers() or ()) for one in committed(cluster, topic)} == {(("key", b"shop"),)}


@pytest.mark.long
def test_an_agent_writes_straight_to_kafka(cluster: Cluster, tmp_path: Path) -> None:
    topic = new_topic(cluster)
    changes = {
        "examples/flume/data": str(FOLDER / "data"),
        "127.0.0.1:9092": cluster.bootstrap,
        "app-logs": topic,
    }
    with flume_agent((FOLDER / "kafka.conf").read_text("utf-8"), tmp_path, changes) as log:
        pause = threading.Event()
        for _ in range(600):
            if topics.describe(cluster, [topic])[0].offsets >= len(LINES) or pause.wait(0.1):
                break
    found = Counter((one.key(), one.value()) for one in committed(cluster, topic))
    assert found == Counter((b"shop", line) for line in LINES), log.read_text("utf-8")
