"""The last windows of a run: written once, nothing else with them, and not mixed with what comes later."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from checkpoint_files import write_checkpoint
from conftest import committed
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.query_checkpoint import last_committed_batch
from millrace.engine.checkpoints.last_batch import is_last_batch_done, is_last_batch_planned, plan_last_batch
from millrace.engine.run import _flush
from millrace.errors import CheckpointIncompatible, InvalidOption, MillraceError
from millrace.pipeline.plan import Query, make_plan
from millrace.telemetry.query_status import RunStatus

Run = Callable[..., RunStatus]

COUNTED = "SELECT window(at, '10 seconds') AS w, k, count(*) AS n FROM clicks GROUP BY window(at, '10 seconds'), k"
TOTALS = "SELECT sum(n) AS n FROM counted GROUP BY window(w, '30 seconds')"
SESSIONS = "SELECT k, count(*) AS n FROM clicks GROUP BY k, session_window(at, '5 seconds')"

ANSWERED = """
SELECT c.k AS k, r.k AS other FROM clicks c
LEFT JOIN replies r ON c.k = r.k AND r.at BETWEEN c.at AND c.at + INTERVAL 1 SECOND
"""


def write(folder: Path, name: str, seconds: range) -> None:
    """A file of clicks: one each second, by three keys in turn."""
    rows = [json.dumps({"k": s % 3, "at": f"2026-05-04T12:{s // 60:02}:{s % 60:02}Z"}) for s in seconds]
    (folder / name).write_text("".join(f"{row}\n" for row in rows))


def clicks(folder: Path, *tables: tuple[str, str]) -> mr.Pipeline:
    pipeline = mr.Pipeline("flushed")
    pipeline.source("clicks", mr.files(str(folder), schema="k int, at timestamp"), watermark=("at", "5 seconds"))
    for name, sql in tables:
        pipeline.sql(name, sql)
    return pipeline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "0.json", range(95))
    return folder


def test_every_window_is_written_once_and_a_later_run_is_refused(
    tmp_path: Path, folder: Path, run_pipeline: Run, spark: SparkSession, topic: str, cluster: Cluster
) -> None:
    state = tmp_path / "state"
    pipeline = clicks(folder, ("counted", COUNTED), ("totals", TOTALS), ("sessions", SESSIONS))
    pipeline.sink("totals", mr.kafka(topic))
    pipeline.sink("sessions", mr.files(str(tmp_path / "sessions")))
    pipeline.sink("clicks", mr.files(str(tmp_path / "copies")))

    def written() -> tuple[list[int], list[int], int]:
        totals = [json.loads(message.value() or b"")["n"] for message in committed(cluster, topic)]
        sessions = [row.n for row in spark.read.parquet(str(tmp_path / "sessions")).collect()]
        return sorted(totals), sorted(sessions), spark.read.parquet(str(tmp_path / "copies")).count()

    run_status = run_pipeline(pipeline, state=state, flush=True)
    assert written() == ([5, 30, 30, 30], [31, 32, 32], 95)
    assert {query.query: query.late_rows for query in run_status.queries()} == dict.fromkeys(
        ("totals", "sessions", "clicks"), 0
    )
    for name in ("totals", "sessions"):  # as if the run had been killed before Spark noted that the batch is done
        commits = state / "checkpoints" / name / "commits"
        max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()
    run_pipeline(pipeline, state=state, flush=True)
    assert written() == ([5, 30, 30, 30], [31, 32, 32], 95)
    write(folder, "1.json", range(95, 100))
    with pytest.raises(CheckpointIncompatible, match="totals"):
        run_pipeline(pipeline, state=state)
    with pytest.raises(CheckpointIncompatible, match="totals"):
        run_pipeline(pipeline, state=state, flush=True)
    copies = clicks(folder)
    copies.sink("clicks", mr.files(str(tmp_path / "copies")))
    run_pipeline(copies, state=state)
    assert spark.read.parquet(str(tmp_path / "copies")).count() == 100, "what has no windows resumes"


def test_what_comes_later_may_be_accepted(tmp_path: Path, folder: Path, run_pipeline: Run, spark: SparkSession) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    pipeline = clicks(folder, ("sessions", SESSIONS))
    pipeline.sink("sessions", mr.files(str(out)))
    run_pipeline(pipeline, state=state, flush=True)
    write(folder, "1.json", range(95, 98))
    for sink in (mr.files(str(out)), mr.memory("sessions")):  # which resumes, and which does not
        broken = clicks(folder, ("sessions", SESSIONS), ("broken", "SELECT missing FROM clicks"))
        broken.sink("sessions", sink)
        broken.sink("broken", mr.memory("broken"))
        with pytest.raises(MillraceError):
            run_pipeline(broken, state=state, flush=True, accept=("sessions",))
        assert is_last_batch_done(state / "checkpoints" / "sessions"), "a run that does not begin changes nothing"
    run_status = run_pipeline(pipeline, state=state, flush=True, accept=("sessions",))
    assert run_status.query("sessions").late_rows == 0
    assert sorted(row.n for row in spark.read.parquet(str(out)).collect()) == [1, 1, 1, 31, 32, 32]


def test_a_run_that_fails_in_the_last_batch_is_finished_by_the_next(
    tmp_path: Path, folder: Path, run_pipeline: Run
) -> None:
    state, out, broken = tmp_path / "state", tmp_path / "out", tmp_path / "broken"
    out.mkdir()
    broken.touch()

    def save(frame: Any, batch: int) -> None:
        rows = [row.n for row in frame.collect()]
        if rows and broken.exists():
            raise ValueError("the disk is full of clicks")
        (out / str(batch)).write_text(json.dumps(rows))

    pipeline = clicks(folder, ("sessions", SESSIONS))
    pipeline.sink("sessions", mr.foreach(save, batch=True))
    with pytest.raises(MillraceError, match="full of clicks"):
        run_pipeline(pipeline, state=state, flush=True)
    write(folder, "1.json", range(3))
    with pytest.raises(CheckpointIncompatible) as raised:
        run_pipeline(pipeline, state=state, accept=("sessions",))
    assert "--flush" in str(raised.value.hint)
    broken.unlink()
    run_status = run_pipeline(pipeline, state=state, flush=True)
    assert run_status.query("sessions").rows == 0, "what came meanwhile is not read: it would be late"
    written = [rows for file in out.iterdir() if (rows := json.loads(file.read_text()))]
    assert [sorted(rows) for rows in written] == [[31, 32, 32]]


class Killed(BaseException):
    """In place of the end of the process."""


def test_a_run_that_is_killed_when_one_of_two_queries_is_done(
    tmp_path: Path, folder: Path, run_pipeline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, rows, done = tmp_path / "state", dict[tuple[str, int], list[int]](), threading.Event()

    def kept(name: str) -> Callable[[Any, int], None]:
        def keep(frame: Any, batch: int) -> None:
            rows[name, batch] = sorted(row.n for row in frame.collect())
            if name == "sessions" and rows[name, batch]:
                done.set()

        return keep

    def given(name: str) -> list[int]:
        return [number for (query, _), numbers in sorted(rows.items()) if query == name for number in numbers]

    def plan(checkpoint: Path, *, watermarked: bool) -> bool:
        if checkpoint.name == "totals":
            done.wait()
            raise Killed
        return plan_last_batch(checkpoint, watermarked=watermarked)

    pipeline = clicks(folder, ("counted", COUNTED), ("totals", TOTALS), ("sessions", SESSIONS))
    for name in ("sessions", "totals"):
        pipeline.sink(name, mr.foreach(kept(name), batch=True))
    with monkeypatch.context() as patched:
        patched.setattr("millrace.engine.run.plan_last_batch", plan)
        with pytest.raises(Killed):
            run_pipeline(pipeline, state=state, flush=True)
    assert is_last_batch_done(state / "checkpoints" / "sessions")
    assert given("totals") == [30, 30]
    write(folder, "1.json", range(95, 98))
    with pytest.raises(CheckpointIncompatible, match="sessions"):
        run_pipeline(pipeline, state=state)
    run_status = run_pipeline(pipeline, state=state, flush=True)
    assert [(query.query, query.late_rows) for query in run_status.queries()] == [("totals", 0)]
    before = dict(rows)
    assert (given("sessions"), sorted(given("totals"))) == ([31, 32, 32], [8, 30, 30, 30])
    last = last_committed_batch(state / "checkpoints" / "totals")
    (state / "checkpoints" / "totals" / "commits" / f"{last}").unlink()  # a run was killed in the last batch
    with pytest.raises(CheckpointIncompatible, match="totals"):
        run_pipeline(pipeline, state=state)
    run_status = run_pipeline(pipeline, state=state, flush=True)
    assert [query.query for query in run_status.queries()] == ["totals"]
    assert rows == before
    with pytest.raises(CheckpointIncompatible, match="sessions"):
        run_pipeline(pipeline, state=state, flush=True)


def test_queries_that_feed_each_other_are_refused(tmp_path: Path, folder: Path, run_pipeline: Run) -> None:
    pipeline = clicks(folder, ("counted", COUNTED), ("again", "SELECT n FROM written"))
    pipeline.source("written", mr.files(str(tmp_path / "out"), schema="n long"))
    pipeline.sink("counted", mr.files(str(tmp_path / "out")))
    pipeline.sink("again", mr.memory("again"))
    with pytest.raises(InvalidOption):
        run_pipeline(pipeline, state=tmp_path / "state", flush=True)
    assert not (tmp_path / "state").exists()


class Started:
    """A supervisor that starts nothing, and stops the run at its first start if it should."""

    def __init__(self, pipeline: mr.Pipeline, state: Path, *, stops: bool) -> None:
        self.stop, self.waited, self.started = threading.Event(), list[float | None](), list[str]()
        lock = SimpleNamespace(check=lambda: None)
        context = SimpleNamespace(lock=lock, notify=lambda _: None)
        self.builder = SimpleNamespace(
            pipeline=pipeline.model(),
            context=context,
            rereads=lambda _: True,
            checkpoint=lambda query: state / query.name,
        )
        self._stops = stops

    def is_busy(self) -> bool:
        return False

    def start_last_batch(self, query: Query) -> None:
        self.started.append(query.name)
        if self._stops:
            self.stop.set()

    def wait(self, seconds: float | None, _: threading.Event) -> None:
        self.waited.append(seconds)


@pytest.mark.parametrize("stops", [False, True])
def test_a_run_that_is_stopped_plans_nothing_more(tmp_path: Path, folder: Path, stops: bool) -> None:
    pipeline = clicks(folder, ("counted", COUNTED), ("sessions", SESSIONS))
    for name in ("counted", "sessions"):
        pipeline.sink(name, mr.memory(name))
        write_checkpoint(tmp_path / name)
    supervisor: Any = Started(pipeline, tmp_path, stops=stops)
    _flush(supervisor, make_plan(pipeline.model(), once=True).queries, 7.0, supervisor.stop)
    assert supervisor.started == ["counted", "sessions"][: 1 if stops else 2]
    assert is_last_batch_planned(tmp_path / "sessions") is not stops
    assert supervisor.waited == [7.0], "no longer than the run may take"


def test_a_query_without_records_on_one_side_of_a_join(tmp_path: Path, folder: Path, run_pipeline: Run) -> None:
    (tmp_path / "none").mkdir()
    pipeline = clicks(folder, ("answered", ANSWERED))
    none = mr.files(str(tmp_path / "none"), schema="k int, at timestamp")
    pipeline.source("replies", none, watermark=("at", "5 seconds"))
    rows: list[Any] = []
    pipeline.sink("answered", mr.foreach(lambda frame, _: rows.extend(frame.collect()), batch=True))
    run_pipeline(pipeline, state=tmp_path / "state", flush=True)
    assert len(rows) == 95
    assert {row.other for row in rows} == {None}
