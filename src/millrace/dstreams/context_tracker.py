"""The course of a StreamingContext: which batches were made, which are done, and what went wrong.

A stream from outside while its program runs: its connections, its notes, and how far it is told that it is done.

How many records a second the batches to come may have, learned from those that are done: backpressure.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from millrace.dstreams.batch_log import (
    DStreamBatchLog,
    Folder,
    Note,
    folder_at,
    forget_others,
    oldest_checkpoint,
    require_own,
)
from millrace.dstreams.errors import is_cut_off
from millrace.dstreams.jvm_internals import (
    await_failure,
    last_done,
    pending_batches,
    remember_milliseconds,
    report_input,
    stop_streams,
)
from millrace.dstreams.pyspark_hooks import BatchCompletedEvent, install_hooks, listener_of
from millrace.errors import MillraceError, RunError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.streaming import StreamingContext

    from millrace.dstreams.source import StreamSource

_ENABLED = "spark.streaming.backpressure.enabled"
_FIRST = "spark.streaming.backpressure.initialRate"
_PID = "spark.streaming.backpressure.pid."


class PidRateEstimator:
    """A controller with a proportional, an integral and a derived term, as Spark's own receivers have it."""

    def __init__(self, interval: float, first: float | None, terms: tuple[float, float, float], least: float) -> None:
        self.rate = first
        """Records a second; None until there is something to learn from."""
        self._interval, self._least = interval, least
        self._proportional, self._integral, self._derived = terms
        self._last: tuple[int, float, float] | None = None
        """When the last batch ended, its rate and its error."""

    @classmethod
    def of(cls, conf: Any, interval: float) -> PidRateEstimator | None:
        """The one that Spark's settings ask for, if they do; `interval` is the batch's, in seconds."""
        if str(conf.get(_ENABLED, "false")).lower() != "true":
            return None

        def number(name: str, otherwise: float) -> float:
            return float(conf.get(_PID + name, str(otherwise)))

        first = conf.get(_FIRST)
        terms = number("proportional", 1.0), number("integral", 0.2), number("derived", 0.0)
        return cls(interval, float(first) if first else None, terms, number("minRate", 100.0))

    def learn(self, told: BatchCompletedEvent, records: int) -> None:
        """Take a batch into account; one without records or work says nothing."""
        if records <= 0 or told.worked <= 0 or (self._last and told.ended <= self._last[0]):
            return
        reached = records / told.worked
        if self._last is None:
            self._last = (told.ended, reached, 0.0)
            self.rate = min(self.rate, reached) if self.rate else reached
            return
        since, rate, error_before = self._last
        seconds = (told.ended - since) / 1000
        error = rate - reached
        waiting = told.waited * reached / self._interval
        change = (error - error_before) / seconds
        wanted = rate - self._proportional * error - self._integral * waiting - self._derived * change
        self.rate = max(wanted, self._least)
        self._last = (told.ended, self.rate, error)


class SourceState:
    """One inflow in this process.

    That batches are done is told in a thread of its own: whoever makes the next one does not wait for an answer.
    """

    def __init__(self, inflow: StreamSource, checkpoint: Folder | None, pace: PidRateEstimator | None) -> None:
        self.inflow = inflow
        self.pace = pace
        self.notes = DStreamBatchLog(checkpoint, inflow.stream)
        self.opened = inflow.open()
        self._settled = -1
        self._telling: threading.Thread | None = None
        self._failure: Exception | None = None

    def learn(self, told: BatchCompletedEvent) -> None:
        """Take the time that a batch took into account."""
        note = self.notes.at(told.time)
        if self.pace and note is not None:
            self.pace.learn(told, self.inflow.count(note))

    def settle(self, line: int) -> None:
        """Say that everything up to a time is done; raises what has become of that when it was said before."""
        if self._failure:
            raise self._failure
        note = self.notes.before(line + 1)
        if note is None or line <= self._settled or (self._telling and self._telling.is_alive()):
            return  # what is not told now is told with a later batch, or at the end
        self._telling = threading.Thread(target=self._tell, args=(line, note), name="millrace-settling", daemon=True)
        self._telling.start()

    def close(self, line: int) -> None:
        """Say it for the last time, and let go of what is open."""
        try:
            if self._telling:
                self._telling.join()
            note = self.notes.before(line + 1)
            if note is not None and line > self._settled and not self._failure:
                self._tell(line, note)
            if self._failure:
                raise self._failure
        finally:
            self.inflow.close(self.opened)

    def _tell(self, line: int, note: Note) -> None:
        try:
            if self.inflow.settle(note, self.opened):
                self._settled = line
        except Exception as error:  # raised to whoever settles next
            self._failure = error


log = logging.getLogger("millrace.dstreams")
_MARGIN = 2
"""Batches for which notes are kept beyond what Spark says that it remembers."""


class ContextTracker:
    """From a context's start to its end; PySpark has at most one that runs."""

    def __init__(self, ssc: StreamingContext, inflows: list[StreamSource]) -> None:
        self.failure: MillraceError | None = None
        self.asked = False
        """Whether the context was asked to stop."""
        self._lock = threading.RLock()
        self._ending = threading.Lock()
        """Whoever comes second to the end waits for it as well."""
        self._jssc: Any = ssc._jssc
        self._java: Any = self._jssc.ssc()
        self._interval = int(self._java.graph().batchDuration().milliseconds())
        self._checkpoint = self._checkpoint_of(ssc)
        if self._checkpoint:
            require_own(self._checkpoint, _program(), [one.described() for one in inflows])
        self._inflows = inflows
        self._flows: dict[str, SourceState] = {}
        self._lows: dict[int, int] = {}
        """For each batch made here the oldest that was not done when it was made."""
        self._done: set[int] = set()
        self._failed: dict[int, MillraceError] = {}
        """Batches of which an output failed; nothing from the oldest of them on is settled."""
        self._line = -1
        """The newest batch that is done, and with it all before it."""
        self._remembered: int | None = None
        """For how many milliseconds streams of the graph may ask for batches of the past; None until it is settled."""
        self._swept = False
        self._reported: set[tuple[str, int]] = set()
        self._conf = ssc.sparkContext.getConf()
        ssc.addStreamingListener(listener_of(self))

    def running(self) -> None:
        """The context has started.

        Its graph is asked here and nowhere else: Spark holds its lock while it makes a batch, and we hold ours then.
        """
        self._remembered = remember_milliseconds(self._java)

    def rdd(self, inflow: StreamSource, time: int, context: SparkContext) -> RDD[Any]:
        """The records of a batch; the batch is decided if it was not before."""
        with self._lock:
            if failure := self.look():
                raise failure
            try:
                return self._made(self._flow(inflow), time, context)
            except MillraceError as error:
                self.fail(error)
                raise

    def note(self, inflow: StreamSource, time: int) -> Note | None:
        """What a batch reads, if that is decided. Without the lock: an output must not wait for a broker."""
        flow = self._flows.get(inflow.stream)
        return flow.notes.at(time) if flow else None

    def completed(self, told: BatchCompletedEvent) -> None:
        """A batch has ended, in whatever order; one that failed is not done, and nothing after it is settled."""
        with self._lock:
            if told.succeeded:
                for flow in self._flows.values():
                    flow.learn(told)
                self._done.add(told.time)
            else:
                unknown = RunError(f"an output of the batch of {told.time} failed", hint="mend it and start again")
                self._failed.setdefault(told.time, unknown)
            try:
                self._settle()
            except MillraceError as error:  # Spark's listener, which called, would only print it
                self.fail(error)

    def stumbled(self, time: int, error: MillraceError) -> None:
        """An output of a batch raised. Without the lock, and before Spark knows: no checkpoint may be quicker."""
        if time in pending_batches(self._java):  # else it is one of a context before, which is cut off only now
            self._failed.setdefault(time, error)

    def look(self) -> MillraceError | None:
        """Why no further batch is made, if so.

        Spark takes a batch for done when the last of its outputs was good, whatever became of the others.
        """
        if self._failed and self.failure is None:
            lost = self._failed.keys() - set(pending_batches(self._java))
            if lost:
                self.fail(self._failed[min(lost)])
        return self.failure

    def fail(self, failure: MillraceError) -> None:
        """A batch could not be made, or was dropped: it stays undone, the context ends, its program is told why."""
        if self.failure is None:
            self.failure = failure
            if is_cut_off(failure):
                return  # it ends already
            threading.Thread(target=self._stop, name="millrace-stopping", daemon=True).start()

    def belongs_to(self, ssc: StreamingContext) -> bool:
        """Whether this is the course of a context."""
        return bool(self._jssc.equals(ssc._jssc))

    def end(self) -> None:
        """The context has been stopped."""
        # Each is closed, whatever becomes of the others, and after the lock is free again.
        with self._ending, ExitStack() as closing, self._lock:
            try:
                if self.failure is None:
                    self._done |= last_done(self._java)
                    self._advance()
            finally:
                for flow in self._flows.values():
                    closing.callback(flow.close, self._line)
                self._flows.clear()

    def _flow(self, inflow: StreamSource) -> SourceState:
        if inflow.stream not in self._flows:
            pace = PidRateEstimator.of(self._conf, self._interval / 1000)
            self._flows[inflow.stream] = SourceState(inflow, self._checkpoint, pace)
        return self._flows[inflow.stream]

    def _made(self, flow: SourceState, time: int, context: SparkContext) -> RDD[Any]:
        from millrace.dstreams.source import DStreamBatch

        self._settle()
        batch = DStreamBatch(time, self._interval / 1000, context, flow.pace.rate if flow.pace else None)
        note = flow.notes.at(time)
        if note is None:
            note = self._decided(flow, batch)
            flow.notes.write(time, note)
        self._lows.setdefault(time, min([time, *pending_batches(self._java)]))
        self._report(flow, time, note)
        return flow.inflow.read(note, batch, flow.opened)

    def _decided(self, flow: SourceState, batch: Any) -> Note:
        last = flow.notes.last()
        if last and last[0] > batch.time:
            # Spark passed this one by when it could not be made, and a later one has its records.
            return flow.inflow.nothing(flow.notes.before(batch.time))
        return flow.inflow.decide(last[1] if last else None, batch, flow.opened)

    def _settle(self) -> None:
        self._advance()
        for flow in self._flows.values():
            if self._line >= 0:
                flow.settle(self._line)
        self._forget()

    def _advance(self) -> None:
        waiting = [time for time in pending_batches(self._java) if time not in self._done]
        undone = min([*waiting, *self._failed], default=None)
        line = max((time for time in self._done if undone is None or time < undone), default=-1)
        if line > self._line:
            self._line = line
            self._done = {time for time in self._done if time >= line}

    def _forget(self) -> None:
        """Remove the notes that no checkpoint needs any more."""
        since = oldest_checkpoint(self._checkpoint) if self._checkpoint else self._line
        low = self._lows.get(since) if since is not None and self._checkpoint else since
        if low is None or low < 0 or self._remembered is None:
            return
        self._lows = {time: one for time, one in self._lows.items() if since is None or time >= since}
        before = min(low, self._line) - self._remembered - _MARGIN * self._interval
        for flow in self._flows.values():
            flow.notes.forget(before)
        if self._checkpoint and not self._swept:  # every checkpoint that is there is of this start
            self._swept = True
            forget_others(self._checkpoint, [one.stream for one in self._inflows])

    def _report(self, flow: SourceState, time: int, note: Note) -> None:
        """Tell Spark how many records the batch has: its own pages, listeners and ours show it."""
        if (flow.inflow.stream, time) in self._reported:
            return
        self._reported = {one for one in self._reported if one[1] > time - 10 * self._interval}
        self._reported.add((flow.inflow.stream, time))
        report_input(self._java, flow.inflow.input, time, flow.inflow.count(note))

    def _checkpoint_of(self, ssc: StreamingContext) -> Folder | None:
        place = self._java.checkpointDir()
        return folder_at(place, ssc._jvm, ssc._sc._jsc.hadoopConfiguration()) if place else None

    def _stop(self) -> None:
        """End the context when Spark has noticed the failure: a stop before that would pass for a good end."""
        await_failure(self._jssc)
        stop_streams(self._jssc)
        with suppress(MillraceError, Py4JError, OSError):  # the failure that is told came first
            self.end()


_arrived: list[tuple[StreamSource, StreamingContext | None]] = []
_courses: list[ContextTracker] = []


def arrived(inflow: StreamSource, ssc: StreamingContext | None) -> None:
    """An inflow of a context that is not started yet; of a recovered one nobody knows which."""
    _arrived.append((inflow, ssc))


def attend() -> None:
    """From now on, know of every StreamingContext that starts."""
    install_hooks(sys.modules[__name__])


def started(ssc: StreamingContext) -> ContextTracker | None:
    """A context is about to start."""
    _courses.clear()
    inflows = {one.stream: one for one, its in _arrived if its is None or its is ssc}
    _arrived[:] = [one for one in _arrived if one[0].stream not in inflows]
    if inflows:
        _courses.append(ContextTracker(ssc, list(inflows.values())))
    return current()


def current() -> ContextTracker | None:
    """The course of the context that runs, or ran last."""
    return _courses[0] if _courses else None


def failure() -> MillraceError | None:
    """Why no further batch is made, if so."""
    return _courses[0].look() if _courses else None


def rdd_of(inflow: StreamSource, time: datetime, context: SparkContext) -> RDD[Any]:
    """The records of the batch of a time."""
    return _courses[0].rdd(inflow, milliseconds(time), context)


def note_of(inflow: StreamSource, time: datetime) -> Note | None:
    """What the batch of a time reads."""
    return _courses[0].note(inflow, milliseconds(time))


def milliseconds(time: datetime) -> int:
    """A batch's time as Spark counts it."""
    return round(time.timestamp() * 1000)


def _program() -> str:
    """What the user calls the program that runs."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return spec.name if spec else Path(sys.argv[0] or "-").name
