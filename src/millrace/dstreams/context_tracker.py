"""Track a StreamingContext from its start to its end.

- Decide what each batch of a source reads, log it, and create the batch's RDD.
- Know which batches are done, and commit to each source how far it was read.
- Stop the context when a batch cannot be created or an output fails, and keep the error for the program.
- Limit the size of batches by backpressure.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD, SparkContext
from pyspark.streaming import StreamingContext

from millrace.dstreams import batch_log, jvm_internals
from millrace.dstreams.batch_log import BatchInput, CheckpointFolder, DStreamBatchLog
from millrace.dstreams.errors import is_cut_off
from millrace.dstreams.pyspark_hooks import BatchCompletedEvent, install_hooks, listener_of
from millrace.errors import MillraceError, RunError

if TYPE_CHECKING:
    from millrace.dstreams.source import StreamSource

_BACKPRESSURE = "spark.streaming.backpressure."
_KEPT_BATCHES = 2
"""Batches whose inputs are kept beyond what Spark says that it remembers."""


class PidRateEstimator:
    """Backpressure: a PID controller that estimates how many records a second the next batches may have.

    It computes what the rate estimator of Spark's own receivers computes.
    """

    def __init__(self, interval: float, first: float | None, terms: tuple[float, float, float], least: float) -> None:
        self.rate = first
        """Records a second; None until a batch was measured."""
        self._interval, self._least = interval, least
        self._proportional, self._integral, self._derived = terms
        self._last: tuple[int, float, float] | None = None
        """When the last batch ended, its rate and its error."""

    @classmethod
    def of(cls, conf: Any, interval: float) -> PidRateEstimator | None:
        """Return the estimator that Spark's settings ask for, if any; `interval` is the batch interval in seconds."""
        if str(conf.get(f"{_BACKPRESSURE}enabled", "false")).lower() != "true":
            return None

        def number(name: str, default: float) -> float:
            return float(conf.get(f"{_BACKPRESSURE}pid.{name}", str(default)))

        first = conf.get(f"{_BACKPRESSURE}initialRate")
        terms = number("proportional", 1.0), number("integral", 0.2), number("derived", 0.0)
        return cls(interval, float(first) if first else None, terms, number("minRate", 100.0))

    def update(self, event: BatchCompletedEvent, records: int) -> None:
        """Take a batch into account, unless it had no records or no work."""
        if records <= 0 or event.processing_s <= 0 or (self._last and event.ended_ms <= self._last[0]):
            return
        measured = records / event.processing_s
        if self._last is None:
            self._last = (event.ended_ms, measured, 0.0)
            self.rate = min(self.rate, measured) if self.rate else measured
            return
        last_ended_ms, rate, last_error = self._last
        seconds = (event.ended_ms - last_ended_ms) / 1000
        error = rate - measured
        backlog = event.delay_s * measured / self._interval
        change = (error - last_error) / seconds
        wanted = rate - self._proportional * error - self._integral * backlog - self._derived * change
        self.rate = max(wanted, self._least)
        self._last = (event.ended_ms, self.rate, error)


class SourceState:
    """A source while its program runs: its client, the log of its batches, and how far it was committed.

    Commits run in a thread of their own: the next batch does not wait for them.
    """

    def __init__(self, source: StreamSource, log: DStreamBatchLog, estimator: PidRateEstimator | None) -> None:
        self.source, self.batch_log, self.estimator = source, log, estimator
        self.client = source.open()
        self._committed = -1
        self._commit_thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def on_batch_completed(self, event: BatchCompletedEvent) -> None:
        """Adapt the rate to the time that a batch took."""
        batch_input = self.batch_log.input_at(event.time)
        if self.estimator and batch_input is not None:
            self.estimator.update(event, self.source.record_count(batch_input))

    def commit(self, time: int) -> None:
        """Commit every batch up to a time; raise what an earlier commit raised."""
        if self._failure:
            raise self._failure
        batch_input = self.batch_log.newest_before(time + 1)
        if batch_input is None or time <= self._committed or (self._commit_thread and self._commit_thread.is_alive()):
            return  # a later batch, or the end, commits it
        commit = partial(self._commit, time, batch_input)
        self._commit_thread = threading.Thread(target=commit, name="millrace-commit", daemon=True)
        self._commit_thread.start()

    def close(self, time: int) -> None:
        """Commit for the last time, and close the client."""
        try:
            if self._commit_thread:
                self._commit_thread.join()
            batch_input = self.batch_log.newest_before(time + 1)
            if batch_input is not None and time > self._committed and not self._failure:
                self._commit(time, batch_input)
            if self._failure:
                raise self._failure
        finally:
            self.source.close(self.client)

    def _commit(self, time: int, batch_input: BatchInput) -> None:
        try:
            if self.source.commit(batch_input, self.client):
                self._committed = time
        except Exception as error:  # raised by the next commit
            self._failure = error


class ContextTracker:
    """One StreamingContext; PySpark runs at most one at a time."""

    def __init__(self, ssc: StreamingContext, sources: list[StreamSource]) -> None:
        self.failure: MillraceError | None = None
        self.stop_requested = False
        self._lock = threading.RLock()
        self._finish_lock = threading.Lock()
        """A second caller of `finish` waits for the first."""
        self._jssc: Any = ssc._jssc
        self._java: Any = self._jssc.ssc()
        self._interval = int(self._java.graph().batchDuration().milliseconds())
        self._checkpoint: CheckpointFolder | None = None
        if folder := self._java.checkpointDir():
            self._checkpoint = CheckpointFolder.at(folder, ssc._jvm, ssc._sc._jsc.hadoopConfiguration())
            batch_log.claim_checkpoint(self._checkpoint, _program_name(), [source.description() for source in sources])
        self._sources = sources
        self._states: dict[str, SourceState] = {}
        self._oldest_pending: dict[int, int] = {}
        """For each batch created here, the oldest batch that was pending when it was created."""
        self._completed: set[int] = set()
        self._failed_outputs: dict[int, MillraceError] = {}
        """Batches with a failed output; nothing from the oldest of them on is committed."""
        self._completed_until = -1
        """The newest batch that is completed together with all batches before it."""
        self._remembered_ms: int | None = None
        """How long the streams of the graph may ask for past batches; None until the context has started."""
        self._removed_other_streams = False
        self._reported: set[tuple[str, int]] = set()
        self._conf = ssc.sparkContext.getConf()
        ssc.addStreamingListener(listener_of(self))

    def on_started(self) -> None:
        """Read the graph, once: Spark holds its lock while it creates a batch, and we hold ours at that time."""
        self._remembered_ms = jvm_internals.remember_milliseconds(self._java)

    def batch_rdd(self, source: StreamSource, time: int, context: SparkContext) -> RDD[Any]:
        """Return the records of a batch; decide and log what it reads if that was not done before."""
        with self._lock:
            if failure := self.check_failure():
                raise failure
            try:
                return self._create_batch(self._state(source), time, context)
            except MillraceError as error:
                self.fail(error)
                raise

    def batch_input(self, source: StreamSource, time: int) -> BatchInput | None:
        """Return what a batch reads, if that is decided. It takes no lock: an output must not wait for a broker."""
        state = self._states.get(source.stream)
        return state.batch_log.input_at(time) if state else None

    def on_batch_completed(self, event: BatchCompletedEvent) -> None:
        """Record the end of a batch, in whatever order; after a failed batch nothing is committed."""
        with self._lock:
            if event.succeeded:
                for state in self._states.values():
                    state.on_batch_completed(event)
                self._completed.add(event.time)
            else:
                unknown = RunError(f"an output of the batch of {event.time} failed", hint="fix it and start again")
                self._failed_outputs.setdefault(event.time, unknown)
            try:
                self._commit()
            except MillraceError as error:  # Spark's listener, which called, would only print it
                self.fail(error)

    def on_output_failed(self, time: int, error: MillraceError) -> None:
        """Record that an output raised. It takes no lock, to be earlier than Spark's next checkpoint."""
        if time in jvm_internals.pending_batches(self._java):  # else it belongs to an earlier context, cut off only now
            self._failed_outputs.setdefault(time, error)

    def check_failure(self) -> MillraceError | None:
        """Return why no further batch is created, if so.

        Spark treats a batch as done when the last of its outputs succeeded, whatever happened to the others.
        """
        if self._failed_outputs and self.failure is None:
            dropped = self._failed_outputs.keys() - set(jvm_internals.pending_batches(self._java))
            if dropped:
                self.fail(self._failed_outputs[min(dropped)])
        return self.failure

    def fail(self, failure: MillraceError) -> None:
        """Stop the context: a batch could not be created, or was dropped."""
        if self.failure is None:
            self.failure = failure
            if not is_cut_off(failure):  # else it stops already
                threading.Thread(target=self._stop, name="millrace-stopping", daemon=True).start()

    def tracks(self, ssc: StreamingContext) -> bool:
        return bool(self._jssc.equals(ssc._jssc))

    def finish(self) -> None:
        """Commit what is completed and close the sources, after the context was stopped."""
        # Each source is closed, whatever happens to the others, and after the lock is released.
        with self._finish_lock, ExitStack() as closing, self._lock:
            try:
                if self.failure is None:
                    self._completed |= jvm_internals.last_completed_batch(self._java)
                    self._advance()
            finally:
                for state in self._states.values():
                    closing.callback(state.close, self._completed_until)
                self._states.clear()

    def _state(self, source: StreamSource) -> SourceState:
        if source.stream not in self._states:
            estimator = PidRateEstimator.of(self._conf, self._interval / 1000)
            log = DStreamBatchLog(self._checkpoint, source.stream)
            self._states[source.stream] = SourceState(source, log, estimator)
        return self._states[source.stream]

    def _create_batch(self, state: SourceState, time: int, context: SparkContext) -> RDD[Any]:
        from millrace.dstreams.source import DStreamBatch

        self._commit()
        batch = DStreamBatch(time, self._interval / 1000, context, state.estimator.rate if state.estimator else None)
        batch_input = state.batch_log.input_at(time)
        if batch_input is None:
            batch_input = self._next_input(state, batch)
            state.batch_log.write(time, batch_input)
        self._oldest_pending.setdefault(time, min([time, *jvm_internals.pending_batches(self._java)]))
        self._report(state, time, batch_input)
        return state.source.read(batch_input, batch, state.client)

    def _next_input(self, state: SourceState, batch: Any) -> BatchInput:
        newest = state.batch_log.newest()
        if newest and newest[0] > batch.time:
            # Spark skipped this batch when it could not be created, and a later one has its records.
            return state.source.empty_input(state.batch_log.newest_before(batch.time))
        return state.source.next_input(newest[1] if newest else None, batch, state.client)

    def _commit(self) -> None:
        self._advance()
        for state in self._states.values():
            if self._completed_until >= 0:
                state.commit(self._completed_until)
        self._clean_up()

    def _advance(self) -> None:
        waiting = [time for time in jvm_internals.pending_batches(self._java) if time not in self._completed]
        open_batch = min([*waiting, *self._failed_outputs], default=None)
        until = max((time for time in self._completed if open_batch is None or time < open_batch), default=-1)
        if until > self._completed_until:
            self._completed_until = until
            self._completed = {time for time in self._completed if time >= until}

    def _clean_up(self) -> None:
        """Remove the inputs that no checkpoint needs any more."""
        since = batch_log.oldest_checkpoint(self._checkpoint) if self._checkpoint else self._completed_until
        needed = self._oldest_pending.get(since) if since is not None and self._checkpoint else since
        if needed is None or needed < 0 or self._remembered_ms is None:
            return
        for time in [time for time in self._oldest_pending if since is not None and time < since]:
            del self._oldest_pending[time]
        before = min(needed, self._completed_until) - self._remembered_ms - _KEPT_BATCHES * self._interval
        for state in self._states.values():
            state.batch_log.remove_before(before)
        if self._checkpoint and not self._removed_other_streams:  # every existing checkpoint is of this start
            self._removed_other_streams = True
            batch_log.remove_other_streams(self._checkpoint, [source.stream for source in self._sources])

    def _report(self, state: SourceState, time: int, batch_input: BatchInput) -> None:
        """Report the number of records to Spark, for its own UI, its listeners and our dashboard."""
        stream = state.source.stream
        if (stream, time) in self._reported:
            return
        self._reported = {report for report in self._reported if report[1] > time - 10 * self._interval}
        self._reported.add((stream, time))
        jvm_internals.report_input(self._java, state.source.input, time, state.source.record_count(batch_input))

    def _stop(self) -> None:
        """Stop the context once Spark knows of the failure: an earlier stop would look like a success."""
        jvm_internals.await_failure(self._jssc)
        jvm_internals.stop_streams(self._jssc)
        with suppress(MillraceError, Py4JError, OSError):  # the failure that is reported came first
            self.finish()


_registered: list[tuple[StreamSource, StreamingContext | None]] = []
_trackers: list[ContextTracker] = []


def register_source(source: StreamSource, ssc: StreamingContext | None) -> None:
    """Add a source of a context that is not started yet; None for a recovered source, whose context is not known."""
    _registered.append((source, ssc))


def track_contexts() -> None:
    """Track every StreamingContext that starts from now on."""
    install_hooks(sys.modules[__name__])


def start_tracking(ssc: StreamingContext) -> ContextTracker | None:
    """Return the tracker of a context that is about to start; None when it has no source of ours."""
    _trackers.clear()
    sources = {source.stream: source for source, owner in _registered if owner is None or owner is ssc}
    _registered[:] = [entry for entry in _registered if entry[0].stream not in sources]
    if sources:
        _trackers.append(ContextTracker(ssc, list(sources.values())))
    return current()


def current() -> ContextTracker | None:
    """Return the tracker of the context that runs, or ran last."""
    return _trackers[0] if _trackers else None


def current_failure() -> MillraceError | None:
    """Return why no further batch is created, if so."""
    return _trackers[0].check_failure() if _trackers else None


def batch_rdd(source: StreamSource, time: datetime, context: SparkContext) -> RDD[Any]:
    """Return the records of the batch of a time."""
    return _trackers[0].batch_rdd(source, round(time.timestamp() * 1000), context)


def batch_input(source: StreamSource, time: datetime) -> BatchInput | None:
    """Return what the batch of a time reads."""
    return _trackers[0].batch_input(source, round(time.timestamp() * 1000))


def _program_name() -> str:
    """Return the name that the user gives to this program: a module or a file."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return spec.name if spec else Path(sys.argv[0] or "-").name
