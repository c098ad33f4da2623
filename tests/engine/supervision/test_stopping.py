"""How queries are stopped: those that write between two batches, those that only draw at once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace.engine.supervision import stopping, stream_execution
from millrace.engine.supervision.stopping import stop_all
from millrace.engine.supervision.stream_execution import StreamExecution

Write = Callable[[DataFrame, int], None]


def begin(spark: SparkSession, checkpoint: Path, write: Write) -> StreamingQuery:
    """A query whose batches follow each other without a pause."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write).start()


def noted(checkpoint: Path, log: str) -> set[str]:
    return {file.name for file in (checkpoint / log).glob("[0-9]*")}


def done(checkpoint: Path) -> int:
    """Up to where the batches that count have read."""
    newest = max(map(int, noted(checkpoint, "commits")))
    *_, last = (checkpoint / "offsets" / str(newest)).read_text().splitlines()
    return int(json.loads(last)["offset"])


class Output:
    """What a query has written, and a wish to stop it in the middle of its second batch."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ids: list[int] = []
        self.wanted = threading.Event()

    def write(self, rows: DataFrame, batch: int) -> None:
        self.begun.append(batch)
        if batch >= 1:
            self.wanted.set()
        self.ids += [row["value"] for row in rows.collect()]


@pytest.mark.parametrize("pinned", [True, False])
def test_the_batch_in_hand_is_the_last_and_is_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    monkeypatch.setattr(stopping, "has_pinned_threads", lambda: pinned)
    for number in range(5):
        checkpoint = tmp_path / str(number)
        output = Output()
        query = begin(spark, checkpoint, output.write)
        assert output.wanted.wait(60)
        assert stop_all([query]) == []
        assert query.exception() is None
        newest = [max(map(int, noted(checkpoint, kind))) for kind in ("commits", "offsets")]  # Spark removes old notes
        assert newest == [output.begun[-1]] * 2
        assert output.begun == list(range(len(output.begun)))
        assert sorted(output.ids) == list(range(done(checkpoint)))  # nothing more, nothing less, none twice


def test_a_batch_that_takes_too_long_is_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        begun.set()
        go.wait(60)

    query = begin(spark, tmp_path, write)
    assert begun.wait(60)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(stop_all, [query], 0.05)
        while query.isActive:
            assert not ending.done(), ending.exception()
        go.set()
        assert ending.result(60) == [query]


def test_only_what_is_kept_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    ready = threading.Barrier(3, timeout=60)
    go = threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        if batch == 0:
            ready.wait()
        go.wait(60)

    writing, drawing = begin(spark, tmp_path / "writing", write), begin(spark, tmp_path / "drawing", write)
    ready.wait()
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(stop_all, [writing], 60.0, at_once=[drawing])
        while drawing.isActive:
            assert not ending.done(), ending.exception()
        assert writing.isActive
        go.set()
        assert ending.result(60) == []
    assert not writing.isActive
    assert noted(tmp_path / "writing", "commits") == noted(tmp_path / "writing", "offsets")


def test_threads_that_are_not_pinned_leave_the_lock_alone(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream_execution.has_pinned_threads()
    with monkeypatch.context() as patch:
        patch.setattr(SparkContext, "_gateway", JavaGateway.__new__(JavaGateway))
        assert not stream_execution.has_pinned_threads()
    monkeypatch.setattr(stopping, "has_pinned_threads", lambda: False)
    query = Pretended("Processing new data", lock=None)
    query.at_the_end(query.end)
    assert stopped(query) == []


@contextmanager
def held(query: StreamingQuery) -> Iterator[None]:
    """While this is open somebody has the lock of a query, as Spark has while it writes to a log."""
    lock: Any = query._jsq.streamingQuery().awaitProgressLock()
    lock.lock()
    try:
        yield
    finally:
        lock.unlock()


def test_a_log_that_takes_long_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_OFFSETS_TIMEOUT_S", 0.02)
    begun, go = threading.Event(), threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        begun.set()
        go.wait(60)

    query = begin(spark, tmp_path, write)
    assert begun.wait(60)
    with ThreadPoolExecutor(1) as pool:
        with held(query):
            ending = pool.submit(stop_all, [query])
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                assert query.isActive, ending.result(60)
            go.set()
        assert ending.result(60) == []
    assert noted(tmp_path, "commits") == noted(tmp_path, "offsets")


def test_a_log_that_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(stopping, "_OFFSETS_TIMEOUT_S", 0.02)
    query = Pretended("Writing offsets to log", lock=Lock(taken=True))
    assert stopped(query, 0.05) == [query]


def test_a_batch_that_was_planned_before_is_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that a start repeats may not be seen yet when we look, and needs no lock to begin."""
    begun, go, looked = threading.Event(), threading.Event(), threading.Event()

    def write(rows: DataFrame, batch: int) -> None:
        begun.set()
        go.wait(60)

    runs_batch = StreamExecution.runs_batch

    def first_not_seen(execution: StreamExecution) -> bool:
        if not looked.is_set():
            looked.set()
            return False
        return runs_batch(execution)

    query = begin(spark, tmp_path, write)
    assert begun.wait(60)
    monkeypatch.setattr(StreamExecution, "runs_batch", first_not_seen)
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(stop_all, [query])
        assert looked.wait(60)
        while query.isActive:
            assert not ending.done(), ending.exception()
        go.set()
        assert ending.result(60) == []
    assert query.exception() is None
    assert noted(tmp_path, "commits") == noted(tmp_path, "offsets") == {"0"}


class Lock:
    """A lock that Spark has, or whose turn a batch at its end waits for."""

    def __init__(self, *, taken: bool = False, awaited: bool = False) -> None:
        self.taken, self.awaited = taken, awaited
        self.given_back: Callable[[], None] = lambda: None

    def tryLock(self, wait: int, unit: object) -> bool:  # noqa: N802 - Java's name
        time.sleep(wait / 1000 if self.taken else 0)
        return not self.taken

    def hasQueuedThread(self, thread: object) -> bool:  # noqa: N802 - Java's name
        return self.awaited

    def unlock(self) -> None:
        self.given_back()


class Pretended:
    """A query as far as it can be seen from here; it is also its own thread, state and logs."""

    def __init__(self, message: str, *, lock: Lock | None, begun: int = 3, done: int = 3) -> None:
        self.status = {"message": message, "isTriggerActive": True}
        self.begun, self.done, self.alive = begun, done, True
        self._lock = lock
        self._jsq = self
        self._last: Callable[[], None] = lambda: None
        self.fails: Exception | None = None

    def at_the_end(self, last: Callable[[], None]) -> None:
        self._last = last

    def end(self) -> None:
        self.alive = False

    def stop(self) -> None:
        if self.fails:
            raise self.fails
        self.end()

    def streamingQuery(self) -> Pretended:  # noqa: N802 - Java's name
        return self

    def queryExecutionThread(self) -> Pretended:  # noqa: N802 - Java's name
        return self

    def isAlive(self) -> bool:  # noqa: N802 - Java's name
        return self.alive

    def getState(self) -> str:  # noqa: N802 - Java's name
        return "RUNNABLE"

    def state(self) -> Pretended:
        return self

    def set(self, state: object) -> None:
        self._last()

    def awaitProgressLock(self) -> Lock:  # noqa: N802 - Java's name
        assert self._lock, "nobody may ask for it"
        return self._lock

    def offsetLog(self) -> Log:  # noqa: N802 - Java's name
        return Log(self.begun)

    def commitLog(self) -> Log:  # noqa: N802 - Java's name
        return Log(self.done)


class Log(int):
    def getLatestBatchId(self) -> Log:  # noqa: N802 - Java's name
        return self

    def equals(self, other: int) -> bool:
        return self == other


def stopped(query: Any, timeout_s: float = 60.0) -> list[Any]:
    return stop_all([query], timeout_s)


def test_a_batch_that_only_waits_to_note_its_end_is_not_cut_off(spark: SparkSession) -> None:
    lock = Lock(awaited=True)
    query = Pretended("Processing new data", lock=lock)
    lock.given_back = lambda: query.status.update(isTriggerActive=False)
    query.at_the_end(query.end)
    assert stopped(query, 0.0) == []


@pytest.mark.parametrize("message", ["Getting offsets from somewhere", "Initializing sources"])
@pytest.mark.parametrize("begun", [3, 4])
def test_a_source_that_does_not_answer_is_not_waited_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, message: str, begun: int
) -> None:
    """But when it has answered meanwhile, and a batch has begun, that is told."""
    monkeypatch.setattr(stopping, "_OFFSETS_TIMEOUT_S", 0.02)
    query = Pretended(message, lock=Lock(taken=message.startswith("Getting")), begun=begun)
    assert stopped(query) == ([query] if begun > query.done else [])
    assert not query.alive


def test_what_cannot_be_stopped_is_told_unless_it_has_ended(spark: SparkSession) -> None:
    query = Pretended("Waiting for next trigger", lock=None)  # its lock fails
    query.fails = Py4JError("no answer")
    assert stopped(query) == [query]
    assert stop_all([], at_once=[query]) == []  # type: ignore[list-item]
    query.end()
    assert stopped(query) == []
    query._jsq = None  # type: ignore[assignment]  # nobody is there to ask
    assert stopped(query) == []
