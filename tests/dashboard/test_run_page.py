"""The page beside a run, on a run_status fed by hand and a real Kafka."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dashboard.run_page import page_of_pipeline, page_of_program
from millrace.dashboard.server import ServerOptions
from millrace.errors import QueryFailed
from millrace.pipeline.plan import Plan, make_plan
from millrace.telemetry.publisher import StatusPublisher
from millrace.telemetry.query_status import Phase, RunStatus

from .pages import Page
from .test_pipeline_info import trending

FREE = ServerOptions(port=0)


@pytest.fixture
def plan() -> Plan:
    return make_plan(trending().model())


def test_from_before_the_start_until_after_the_end(plan: Plan, tmp_path: Path) -> None:
    run_status = RunStatus()
    with page_of_pipeline(plan, run_status, FREE, state=tmp_path) as watching, Page(watching.address) as page:
        page.subscribe("state", "events", "history:popular-update")
        page.until(lambda one: one.values.get("state", {}).get("phase") == "starting")
        assert httpx.get(f"{watching.address}readyz").status_code == 503
        asked = httpx.post(f"{watching.address}api/sql", json={"sql": "SELECT 1"})
        assert (asked.status_code, asked.json()["error"]) == (503, "the run is starting")
        assert httpx.get(f"{watching.address}api/topics").status_code == 503
        watching.doing("Spark is starting")
        page.until(lambda one: one.values["state"]["reasons"] == ["Spark is starting"])
        run_status.started("popular-update")
        run_status.update("popular-update", Phase.RUNNING)
        page.until(lambda one: one.values["state"]["phase"] == "running")
        assert httpx.get(f"{watching.address}readyz").status_code == 200
        run_status.ended("popular-update", QueryFailed("no"))
        page.until(lambda one: one.values["state"]["phase"] == "failed")
        assert httpx.get(f"{watching.address}healthz").json()["reasons"] == ["query popular-update failed: no"]
        told = page.columns["events"]["text"]
        assert told[-2:] == ["started", "failed: no"]


def test_a_page_sees_the_end_of_the_run(plan: Plan, tmp_path: Path) -> None:
    watching = page_of_pipeline(plan, RunStatus(), FREE, state=tmp_path)
    with watching, Page(watching.address) as page:
        page.subscribe("state")
        page.until(lambda one: "state" in one.values)
        ending = threading.Thread(
            target=watching.__exit__, args=(QueryFailed, QueryFailed("the broker has gone"), None)
        )
        ending.start()
        page.until(lambda one: one.values["state"]["reasons"] == ["the broker has gone"])
        ending.join()


def test_figures_that_cannot_be_shown_hide_no_error_and_leave_no_server(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StatusPublisher, "look", Mock(side_effect=ValueError("year is out of range")))
    run_page = page_of_pipeline(plan, RunStatus(), FREE, state=tmp_path)
    with pytest.raises(QueryFailed, match="the broker has gone"), run_page:
        raise QueryFailed("the broker has gone")
    with pytest.raises(httpx.ConnectError):
        httpx.get(run_page.address)


def test_kafka_beside_it(plan: Plan, tmp_path: Path, cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"<b>", partition=0)])
    producer.close()
    every = ServerOptions(port=0, all_topics=True)
    with page_of_pipeline(plan, RunStatus(), every, state=tmp_path) as watching, watching.kafka(lambda: cluster):
        names = {one["name"] for one in httpx.get(f"{watching.address}api/topics", timeout=30).json()}
        assert topic in names
        (record,) = httpx.get(f"{watching.address}api/topics/{topic}", timeout=30).json()
        assert record["value"] == "<b>"
        assert httpx.get(f"{watching.address}api/topics/nothing").status_code == 404
        assert httpx.get(f"{watching.address}api/dead", timeout=30).json() == []
        assert httpx.get(f"{watching.address}api/pipeline").json()["versions"]["kafka"] == cluster.bootstrap
        with Page(watching.address) as page:
            page.subscribe("topics", "dead", f"tail:{topic}", "tail:nothing")
            page.until(lambda one: {"topics", "dead"} <= one.values.keys() and bool(one.errors))
            page.until(lambda one: one.columns.get(f"tail:{topic}", {}).get("value") == ["<b>"])
            assert page.errors[0]["channel"] == "tail:nothing"


def test_a_program_that_is_not_ours(tmp_path: Path) -> None:
    run_status = RunStatus()
    with page_of_program(tmp_path / "job.py", run_status, FREE) as watching, Page(watching.address) as page:
        assert httpx.get(f"{watching.address}readyz").status_code == 200
        run_status.started("query 1")
        run_status.update("query 1", Phase.WAITING)
        page.subscribe("state")
        page.until(lambda one: bool(one.values.get("state", {}).get("queries")))
        assert page.values["state"]["queries"][0]["name"] == "query 1"
        assert httpx.get(f"{watching.address}api/topics").status_code == 404
