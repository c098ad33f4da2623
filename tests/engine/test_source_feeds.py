"""A source that others send to listens while its pipeline runs."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import millrace as mr
from conftest import RunPipeline, committed
from feeds.flume_client import Client
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.base.registry import topics_read, uses_system
from millrace.dashboard.pipeline_info import topics_touched
from millrace.engine.checkpoints.resume import resume_decisions
from millrace.engine.checkpoints.state_dir import origins
from millrace.engine.plan_report import query_report
from millrace.errors import PortInUse
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import make_plan
from millrace.services.process import free_port
from millrace.telemetry.topology import topology_of


def pipeline(topic: str, port: int, folder: Path, **options: Any) -> PipelineDef:
    """Events as rows in files."""
    made = mr.Pipeline("agents")
    where = f"127.0.0.1:{port}"
    made.source("events", mr.flume(topic, listen=where, schema="n int", include=["key", "headers"], **options))
    made.sql("kept", "SELECT n, key, CAST(headers[0].value AS string) AS host FROM events")
    made.sink("kept", mr.files(str(folder), format="json"))
    return made.model()


def test_what_agents_send_goes_through_the_topic_into_the_pipeline(
    run_pipeline: RunPipeline, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    port, said, answers = free_port(), [], []
    sent = threading.Event()

    def send(number: int) -> None:
        with Client(port, timeout=60) as agent:
            for part in range(0, 100, 20):
                numbers = range(number * 100 + part, number * 100 + part + 20)
                events = [({"host": f"web-{number}"}, b'{"n": %d}' % one) for one in numbers]
                answers.append(agent.append([*events, ({}, b"broken")] if part == 0 else events))

    def listens(text: str) -> None:
        said.append(text)
        if "listening for agents of Flume" in text:
            threading.Thread(target=send_all).start()

    def send_all() -> None:
        with ThreadPoolExecutor(5) as beside:
            list(beside.map(send, range(5)))
        sent.set()

    def lines() -> list[bytes]:
        return [line for file in (tmp_path / "out").glob("*.json") for line in file.read_bytes().splitlines()]

    run_pipeline(
        pipeline(topic, port, tmp_path / "out", key="host"),
        tmp_path / "state",
        until=lambda: sent.is_set() and len(lines()) >= 500,
        say=listens,
    )
    assert set(answers) == {"OK"}
    assert sorted((row["n"], row["key"], row["host"]) for row in map(json.loads, lines())) == [
        (n, f"web-{n // 100}", f"web-{n // 100}") for n in range(500)
    ]
    with pytest.raises(OSError, match="refused"):
        Client(port)
    assert len(committed(cluster, f"{topic}.dead")) == 5


def test_until_it_is_caught_up_it_does_not_listen(
    run_pipeline: RunPipeline, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    said: list[str] = []
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"n": 1}')])
    producer.close()
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so it would fail if it did
        run_status = run_pipeline(pipeline(topic, taken.getsockname()[1], tmp_path / "out"), say=said.append)
    assert [one.rows for one in run_status.queries()] == [1]
    assert any("does not listen" in text for text in said)
    assert not any("listening" in text for text in said)


def test_a_port_in_use_ends_the_run_before_it_begins(run_pipeline: RunPipeline, topic: str, tmp_path: Path) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        made = pipeline(topic, taken.getsockname()[1], tmp_path / "out")
        with pytest.raises(PortInUse) as raised:
            run_pipeline(made, until=lambda: False, say=said.append)
    assert "'events'" in raised.value.message
    assert raised.value.place == made.sources[0].place
    assert not any("listening" in text or "starting" in text for text in said)


def test_the_page_and_the_checkpoint_know_it_as_its_topic(tmp_path: Path) -> None:
    made = pipeline("logs", 4141, tmp_path)
    plan = make_plan(made)
    assert uses_system(made, "kafka")
    assert topics_touched(made) == ["logs"]
    assert topology_of(plan, topics_read(made)).read_by("kept") == ("logs",)
    (told,) = query_report(made, resume_decisions(plan, tmp_path, "id")[0], tmp_path)["sources"]
    assert (told["reads"], told["listens"], told["start"]) == ("topic logs", "127.0.0.1:4141", "earliest")
    plain = mr.Pipeline("agents")
    plain.source("events", mr.kafka("logs", schema="n int"))
    plain.sql("kept", "SELECT n FROM events")
    plain.sink("kept", mr.files(str(tmp_path)))
    # A pipeline may begin to listen, or stop to, and go on where it was.
    assert origins(made, plan.queries[0], "id") == origins(plain.model(), make_plan(plain.model()).queries[0], "id")
