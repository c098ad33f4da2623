"""Reports the batches of a StreamingContext, the RDD-era kind of stream, to the run status."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from millrace.engine.failures.explain import explain
from millrace.engine.supervision.stopping import is_interruption
from millrace.errors import MillraceError
from millrace.errors.spark_text import full_text, is_shut_down
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import Phase, RunStatus
from millrace.units import so_many

if TYPE_CHECKING:
    from pyspark.streaming import StreamingContext, StreamingListener

NAME = "dstreams"
"""How the streams of a program are called; those of a second context get a number."""
EVERY = 0.2
"""Seconds between two questions whether the context has failed or stopped."""
_PATIENCE = 5.0
_REFUSED = "RejectedExecutionException"
"""What Spark says of a batch that was made while it stopped; nothing of it is done, nor lost."""

_Events = queue.SimpleQueue[Callable[[], None]]


class DStreamMonitor:
    """Tells a run status of the batches of one StreamingContext, from before its start until it has stopped."""

    def __init__(self, context: StreamingContext, name: str, run_status: RunStatus) -> None:
        self._context = context
        self._name = name
        self._run_status = run_status
        self._events: _Events = queue.SimpleQueue()
        self._done = 0
        self._waiting = 0
        self._recovered = 0
        """When a context from a checkpoint was started, in milliseconds: earlier batches are those of before."""
        self._uncounted = 0
        self._failure: MillraceError | None = None
        self._known = ""
        """The failure in Spark's words."""
        self._asked = False
        """Whether the context was asked to stop."""
        self._cut = False
        """Whether it has been before its batches were done."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)

    def start(self) -> DStreamMonitor:
        """Listen, and begin to tell."""
        self.listen()
        self.begin()
        return self

    @property
    def recovers(self) -> bool:
        """Whether the context comes from a checkpoint."""
        return bool(self._context._jssc.ssc().isCheckpointPresent())

    def listen(self) -> None:
        """Hear of every batch, from the first one on; the context is not started yet."""
        self._seconds = self._context._jssc.ssc().graph().batchDuration().milliseconds() / 1000
        self._kept = self._context._jssc.ssc().checkpointDir() is not None
        self._context.addStreamingListener(_listener(self._events, self))

    def begin(self) -> None:
        """Tell of what is heard."""
        self._run_status.started(self._name)
        if self.recovers:
            self._recovered = round(time.time() * 1000)
            missed = "Going on from its checkpoint: the batches of the time that it was away come first"
            self._run_status.update(self._name, Phase.STARTING, missed)
        self._thread.start()

    def asked(self, context: StreamingContext) -> None:
        """A context was asked to stop: what Spark cannot do any more from now on is no failure."""
        self._asked = self._asked or context is self._context

    def cut_off(self) -> None:
        """The batches in hand take too long, and are not waited for."""
        self._cut = True

    def close(self) -> None:
        """Tell what has happened until now, and end; while a graceful stop lasts, Spark answers nobody."""
        self._stop.set()
        self._thread.join(_PATIENCE)

    def submitted(self, _: Any) -> None:
        """A batch is due."""
        self._waiting += 1

    def began(self, event: Any) -> None:
        """A batch is at work."""
        of = _moment(event.batchInfo().batchTime().milliseconds())
        more = f"; {self._waiting - 1:,} more are due" if self._waiting > 1 else ""
        self._run_status.update(self._name, Phase.RUNNING, f"Processing the batch of {of:%H:%M:%S}{more}")

    def completed(self, event: Any) -> None:
        """A batch is done, or has failed: then it does not count, and why is found out by who looks."""
        self._waiting = max(0, self._waiting - 1)
        info = event.batchInfo()
        if not any(one.failureReason() for one in info.outputOperationInfos().values()):
            self._run_status.batch_done(_progress(info, self._name, self._done, self._seconds))
            self._done += 1
            self._uncounted += not info.numRecords() and info.batchTime().milliseconds() < self._recovered
        uncounted = f"; {self._without_rows()}" if self._uncounted else ""
        self._run_status.update(self._name, Phase.WAITING, f"Waiting for the next batch{uncounted}")

    def receiver_failed(self, event: Any) -> None:
        """A receiver could not go on; Spark starts it again."""
        info = event.receiverInfo()
        self._run_status.update(self._name, Phase.RUNNING, f"{info.name()}: {info.lastErrorMessage()}")

    def _run(self) -> None:
        over = False
        try:
            while not over:
                over = self._stop.is_set()
                self._tell()
                over = self._look() or over
            self._tell()
        except Exception as error:
            # Spark was stopped, or has died.
            gone = self._context._sc._jsc is None or self._stop.is_set()
            self._failure = self._failure or (None if gone else explain(error))
        left = (self._left() if self._cut else "", self._without_rows() if self._uncounted else "")
        self._run_status.ended(self._name, self._failure, "; ".join(filter(None, left)))

    def _left(self) -> str:
        again = "are made again from the checkpoint" if self._kept else "are lost, since there is no checkpoint"
        return f"the batches in hand were cut off and {again}"

    def _without_rows(self) -> str:
        return f"Spark does not count the rows of {so_many(self._uncounted, 'batch')} from before the start"

    def _tell(self) -> None:
        """What the listener has heard; waits a moment for it."""
        with suppress(queue.Empty):
            self._events.get(timeout=EVERY)()
            while True:
                self._events.get_nowait()()

    def _look(self) -> bool:
        """Whether the context has stopped; what it has failed with, which Spark keeps for whoever waits for it."""
        asked: Any = self._context._jssc
        over = str(asked.getState().toString()) == "STOPPED"
        try:
            asked.awaitTerminationOrTimeout(0)
        except Exception as error:
            behind = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
            if behind is None:
                raise  # Spark is gone
            self._stumble(str(behind.toString()), error)
        self._run_status.seen()
        return over

    def _stumble(self, words: str, error: Exception) -> None:
        if words == self._known or _REFUSED in words or is_interruption(error):
            return
        if self._asked and is_shut_down(full_text(error)):
            self._cut = True
            return
        self._known, self._failure = words, explain(error)
        self._run_status.batch_failed(self._name, self._failure)


def stop_context(patience: float) -> bool:
    """Stop the StreamingContext of this process, if one is at work, when all that it has received is done.

    False when that takes longer.
    """
    from pyspark.streaming import StreamingContext

    context = StreamingContext._activeContext
    if context is None:
        return True
    stopping = threading.Thread(target=_stop, args=(context, True), name="stopping", daemon=True)
    stopping.start()
    stopping.join(patience)
    return not stopping.is_alive()


def _stop(context: StreamingContext, graceful: bool) -> None:
    with suppress(Exception):  # the JVM may have died, which has been told
        context.stop(stopSparkContext=False, stopGraceFully=graceful)


def _listener(events: _Events, told: DStreamMonitor) -> StreamingListener:
    """It only hands on what it is given: Spark's events wait while it is called."""
    from pyspark.streaming import StreamingListener

    def hand_to(tell: Callable[[Any], None]) -> Callable[[Any, Any], None]:
        return lambda _, event: events.put(partial(tell, event))

    heard = {
        "onBatchSubmitted": told.submitted,
        "onBatchStarted": told.began,
        "onBatchCompleted": told.completed,
        "onReceiverError": told.receiver_failed,
    }
    return type("Listener", (StreamingListener,), {name: hand_to(tell) for name, tell in heard.items()})()


def _progress(info: Any, name: str, number: int, seconds: float) -> BatchProgress:
    """A batch in the words of structured queries; its steps are the waiting and the work, together the whole delay.

    It was due at its own time: Spark's scheduling delay begins later, when a batch of before a recovery is made anew.
    """
    rows, spent = int(info.numRecords()), max(0, info.processingDelay())
    waited = max(0, info.processingStartTime() - info.batchTime().milliseconds())
    sources = [
        SourceProgress(one.metadataDescription() or f"input stream {one.inputStreamId()}", int(one.numRecords()))
        for one in info.streamIdToInputInfo().values()
    ]
    return BatchProgress(
        query=name,
        run="",
        batch=number,
        at=_moment(info.processingStartTime()),
        input_rows=rows,
        input_rate=rows / seconds,
        rate=rows / max(spent, 1) * 1000,
        durations=MappingProxyType({"schedulingDelay": waited, "processing": spent}),
        milliseconds=spent,
        state_rows=None,
        state_bytes=None,
        sources=tuple(sources),
        waited=waited,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
