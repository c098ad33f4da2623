"""The dashboard reads with the credentials of the run: it shows the topics of the run, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import orjson
import pytest
from websockets.sync.client import connect

import millrace as mr
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dashboard.run_page import RunPage, page_of_pipeline, page_of_program
from millrace.dashboard.server import ServerOptions
from millrace.pipeline.plan import make_plan
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import RunStatus

OFFSETS = "__consumer_offsets"
PATIENCE = 60


@pytest.fixture
def other(cluster: Cluster, topic: str) -> Iterator[str]:
    """A topic that the run has nothing to do with."""
    name = f"{topic}-other"
    topics.create(cluster, name, 1)
    producer = Producer(cluster, name)
    producer.send([Record(b"not for the run")])
    producer.close()
    yield name
    topics.delete(cluster, [name])


def watching_pipeline(topic: str, folder: Path, *, all_topics: bool = False) -> RunPage:
    pipeline = mr.Pipeline("reading")
    pipeline.source("posts", mr.kafka(topic, schema="id string"))
    pipeline.sink("posts", mr.memory())
    plan = make_plan(pipeline.model())
    return page_of_pipeline(plan, RunStatus(), ServerOptions(port=0, all_topics=all_topics), state=folder)


def tail_error(address: str, name: str) -> str:
    """What a subscription to the records of a topic says is wrong with it."""
    with connect(f"{address.replace('http', 'ws')}ws") as socket:
        socket.send(orjson.dumps({"type": "subscribe", "channels": [f"tail:{name}"]}).decode())
        while True:
            told = orjson.loads(socket.recv(PATIENCE))
            assert told["type"] != "frame", "records were shown"
            if told["type"] == "error":
                return str(told["message"])


def shown_topics(address: str) -> set[str]:
    """The topics that the channel of them has."""
    with connect(f"{address.replace('http', 'ws')}ws") as socket:
        socket.send('{"type": "subscribe", "channels": ["topics"]}')
        while True:
            told = orjson.loads(socket.recv(PATIENCE))
            if told["type"] == "frame" and "topics" in told["channels"]:
                return {one["name"] for one in told["channels"]["topics"]["data"]}


def test_only_the_topics_of_the_run_are_shown(cluster: Cluster, topic: str, other: str, tmp_path: Path) -> None:
    with watching_pipeline(topic, tmp_path) as watching, watching.kafka(lambda: cluster):
        address = watching.address
        assert {one["name"] for one in httpx.get(f"{address}api/topics", timeout=PATIENCE).json()} == {topic}
        assert shown_topics(address) == {topic}
        assert httpx.get(f"{address}api/topics/{topic}", timeout=PATIENCE).status_code == 200
        for name in (other, OFFSETS, "made-up", f"{other}.dead", "%00", "x" * 300):
            refused = httpx.get(f"{address}api/topics/{name}", timeout=PATIENCE)
            assert refused.status_code == 404, name
            assert "--all-topics" in refused.json()["hint"]
            assert "not for the run" not in refused.text
        assert "made-up" not in httpx.get(f"{address}api/topics/made-up", timeout=PATIENCE).json()["hint"]
        assert other in tail_error(address, other)
        assert OFFSETS in tail_error(address, OFFSETS)
        body = {"source": "posts", "topic": f"{other}.dead"}
        assert httpx.post(f"{address}api/dead/redrive", json=body, timeout=PATIENCE).status_code == 404


def test_all_topics_are_shown_where_the_operator_says_so(
    cluster: Cluster, topic: str, other: str, tmp_path: Path
) -> None:
    with watching_pipeline(topic, tmp_path, all_topics=True) as watching, watching.kafka(lambda: cluster):
        address = watching.address
        assert {topic, other} <= {one["name"] for one in httpx.get(f"{address}api/topics", timeout=PATIENCE).json()}
        (record,) = httpx.get(f"{address}api/topics/{other}", timeout=PATIENCE).json()
        assert record["value"] == "not for the run"


def test_of_a_program_the_topics_that_it_is_seen_to_read(
    cluster: Cluster, topic: str, other: str, tmp_path: Path
) -> None:
    run_status = RunStatus()
    page = page_of_program(tmp_path / "job.py", run_status, ServerOptions(port=0), kafka=cluster.bootstrap)
    with page as watching, watching.kafka(lambda: cluster):
        address = watching.address
        assert httpx.get(f"{address}api/topics", timeout=PATIENCE).json() == []
        run_status.started("query 1")
        read = SourceProgress("KafkaV2", 1, end={topic: {"0": 0}})
        run_status.batch_done(BatchProgress("query 1", "r", 0, datetime.now(UTC), sources=(read,)))
        assert {one["name"] for one in httpx.get(f"{address}api/topics", timeout=PATIENCE).json()} == {topic}
        assert httpx.get(f"{address}api/topics/{other}", timeout=PATIENCE).status_code == 404
        assert httpx.get(f"{address}api/dead", timeout=PATIENCE).json() == []
