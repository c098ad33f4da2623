"""DStreams are seen from their start to their end: batches, delays, records, and what failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from millrace.engine.programs.dstream_monitor import DStreamMonitor
from millrace.telemetry.measurements import Measurements
from millrace.telemetry.metrics import health, run_state
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.telemetry.topology import UNPLANNED
from talking import Talker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext

pytestmark = pytest.mark.filterwarnings("ignore:DStream is deprecated:FutureWarning")


def until(run_status: RunStatus, holds: Callable[[QueryStatus], Any]) -> QueryStatus:
    """The standing of the streams once something holds."""
    deadline = time.monotonic() + 60
    while not holds(run_status.query("dstreams")):
        assert time.monotonic() < deadline, run_status.queries()
        time.sleep(0.02)
    return run_status.query("dstreams")


@pytest.fixture
def context(spark: SparkSession) -> Iterator[StreamingContext]:
    """A context with batches of a tenth of a second."""
    from pyspark.streaming import StreamingContext

    made = StreamingContext(spark.sparkContext, 0.1)  # type: ignore[arg-type]
    yield made
    made.stop(stopSparkContext=False)


@pytest.fixture
def talker() -> Iterator[Talker]:
    """Somebody to listen to."""
    with Talker() as found:
        yield found


def listen_and_report(monitor: DStreamMonitor) -> None:
    monitor.listen()
    monitor.report()


def test_batches_and_delays_of_dstreams(context: StreamingContext, talker: Talker) -> None:
    run_status, seen = RunStatus(), list[str]()
    lines = context.socketTextStream("127.0.0.1", talker.port)
    lines.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    batches = DStreamMonitor(context, "dstreams", run_status)
    listen_and_report(batches)
    context.start()
    talker.say(*["apache spark", "apache kafka"] * 2)
    told = until(run_status, lambda one: one.rows == 4)
    last = told.last
    assert last
    assert last.waited is not None
    assert last.delay == last.waited + last.milliseconds
    assert dict(last.durations) == {"schedulingDelay": last.waited, "processing": last.milliseconds}
    (query,) = run_state(run_status, Measurements(), UNPLANNED)["queries"]
    assert (query["rows"], query["error"]) == (4, None)
    assert (query["state_rows"], query["watermark"]) == (None, None)
    assert query["why"]["state_rows"]
    assert query["delay_ms"] >= query["waited_ms"] >= 0
    context.stop(stopSparkContext=False, stopGraceFully=True)
    assert until(run_status, lambda one: one.phase.ended).phase is Phase.STOPPED
    batches.close()
    done = run_status.history("dstreams")
    assert [one.batch for one in done] == list(range(len(done)))
    assert sum(one.input_rows for one in done) == len(seen) == 4


def test_a_batch_that_fails_is_told_and_the_next_ones_go_on(context: StreamingContext, spark: SparkSession) -> None:
    def refuse(number: int) -> int:
        if number == 2:
            raise ValueError("two is too much")
        return number

    run_status, seen = RunStatus(), list[int]()
    numbers = context.queueStream([spark.sparkContext.parallelize([one], 1) for one in range(4)])
    numbers.map(refuse).foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    batches = DStreamMonitor(context, "dstreams", run_status)
    listen_and_report(batches)
    context.start()
    failed = until(run_status, lambda one: one.error is not None and one.batches > 4)
    assert failed.error
    assert failed.error.condition == "function.failed", failed.error.lines()
    assert "ValueError: two is too much" in failed.error.message
    assert failed.error.place
    assert failed.error.place.file == __file__
    assert seen == [0, 1, 3]
    assert not failed.phase.ended
    assert not health(run_status, Measurements(), UNPLANNED).healthy
    context.stop(stopSparkContext=False)
    assert until(run_status, lambda one: one.phase.ended).phase is Phase.FAILED
    batches.close()


def event(*, due: int, began: int, ended: int, failed: str | None = None, rows: int = 0) -> Any:
    """What Spark tells of a batch that has ended."""
    info = SimpleNamespace(
        batchTime=lambda: SimpleNamespace(milliseconds=lambda: due),
        submissionTime=lambda: began,
        processingStartTime=lambda: began,
        processingEndTime=lambda: ended,
        schedulingDelay=lambda: 0,
        processingDelay=lambda: ended - began,
        numRecords=lambda: rows,
        streamIdToInputInfo=dict,
        outputOperationInfos=lambda: {0: SimpleNamespace(failureReason=lambda: failed)},
    )
    return SimpleNamespace(batchInfo=lambda: info)


def told_of(*, recovered: bool = False) -> tuple[DStreamMonitor, RunStatus]:
    """A context that is not asked anything, and its run_status."""
    context, run_status = cast("Any", Failing(_SHUT, "/there", recovered=recovered)), RunStatus()
    context.over = True
    batches = DStreamMonitor(context, "dstreams", run_status)
    batches.stop_requested(context)
    return batches, run_status


def test_a_batch_is_late_by_its_own_time_also_when_it_was_made_after_a_recovery() -> None:
    batches, run_status = told_of()
    run_status.started("dstreams")
    batches._batch_interval_s = 1.0
    batches.batch_completed(event(due=1_000, began=300_000, ended=349_000))
    last = run_status.query("dstreams").last
    assert last
    assert (last.waited, last.milliseconds, last.delay) == (299_000, 49_000, 348_000)


def test_a_batch_that_failed_is_not_done() -> None:
    batches, run_status = told_of()
    run_status.started("dstreams")
    batches._batch_interval_s = 1.0
    batches.batch_completed(event(due=1_000, began=1_000, ended=2_000, failed="ValueError", rows=2))
    assert (run_status.query("dstreams").batches, run_status.query("dstreams").rows) == (0, 0)


def test_rows_that_spark_does_not_count_after_a_recovery_are_told() -> None:
    batches, run_status = told_of(recovered=True)
    listen_and_report(batches)
    batches.close()
    assert "does not count" not in run_status.query("dstreams").doing
    batches, run_status = told_of(recovered=True)
    batches._events.put(lambda: batches.batch_completed(event(due=1_000, began=2_000, ended=3_000)))
    listen_and_report(batches)
    batches.close()
    assert "does not count the rows of 1 batch" in run_status.query("dstreams").doing


class Failing:
    """A context that has failed, and then stops."""

    def __init__(self, said: str, checkpoint: str | None, *, recovered: bool = False) -> None:
        self._jssc = self._sc = self._jsc = self
        self._said, self._checkpoint = said, checkpoint
        self._recovered = recovered
        self.over = False

    def ssc(self) -> Any:
        duration = SimpleNamespace(milliseconds=lambda: 1000)
        graph = SimpleNamespace(batchDuration=lambda: duration)
        return SimpleNamespace(
            graph=lambda: graph, checkpointDir=lambda: self._checkpoint, isCheckpointPresent=lambda: self._recovered
        )

    def addStreamingListener(self, _: Any) -> None:  # noqa: N802 - Spark's name
        """Nobody is told of a batch."""

    def getState(self) -> Any:  # noqa: N802
        return SimpleNamespace(toString=lambda: "STOPPED" if self.over else "ACTIVE")

    def awaitTerminationOrTimeout(self, _: int) -> None:  # noqa: N802
        error = RuntimeError(self._said)
        error.java_exception = SimpleNamespace(toString=lambda: self._said)  # type: ignore[attr-defined]
        raise error


_SHUT = "org.apache.spark.SparkException: SparkContext was shut down"


@pytest.mark.parametrize(("checkpoint", "left"), [("/there", "are repeated from the checkpoint"), (None, "are lost")])
def test_what_the_end_cuts_off_is_no_failure_once_it_was_asked_for(checkpoint: str | None, left: str) -> None:
    context, run_status = cast("Any", Failing(_SHUT, checkpoint)), RunStatus()
    batches = DStreamMonitor(context, "dstreams", run_status)
    batches.stop_requested(context)
    listen_and_report(batches)
    context.over = True
    batches.close()
    told = run_status.query("dstreams")
    assert (told.phase, told.error) == (Phase.STOPPED, None)
    assert left in told.doing


@pytest.mark.parametrize(("asked", "said"), [(False, _SHUT), (True, "java.lang.ArithmeticException: / by zero")])
def test_any_other_failure_is_one(asked: bool, said: str) -> None:
    context, run_status = cast("Any", Failing(said, None)), RunStatus()
    batches = DStreamMonitor(context, "dstreams", run_status)
    if asked:
        batches.stop_requested(context)
    listen_and_report(batches)
    context.over = True
    batches.close()
    assert run_status.query("dstreams").phase is Phase.FAILED
