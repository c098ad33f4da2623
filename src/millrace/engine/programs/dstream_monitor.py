"""Reports the batches of a StreamingContext (DStreams) to the run status.

- A listener of Spark gets each batch; a thread passes it on, because Spark's events wait for the listener.
- The thread also asks whether the context has failed or stopped.
- `explain_dstream_error` explains errors of Spark that a program or its checkpoint causes.
- `stop_context` stops the context of this process gracefully.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

from pyspark.streaming import StreamingContext, StreamingListener

from millrace.engine.failures.explain import explain
from millrace.engine.supervision.stopping import is_interruption
from millrace.errors import CheckpointUnusable, InvalidStreams, MillraceError
from millrace.errors.spark_text import full_text, is_shut_down, python_error_of, root_cause
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import Phase, RunStatus
from millrace.units import format_count

NAME = "dstreams"
"""The name of a program's DStreams; those of a second context get a number."""
_POLL_INTERVAL_S = 0.2
_CLOSE_TIMEOUT_S = 5.0
_REJECTED = "RejectedExecutionException"
"""Spark's failure of a batch that was created while it stopped; nothing of it is done, nor lost."""
_NO_FOLDER = "The checkpoint directory has not been set"
_NOT_A_MULTIPLE = re.compile(r"(window|slide)Duration must be multiple of .+?\((\d+) ms\)", re.DOTALL)
_UNREADABLE = re.compile(r"Failed to read checkpoint from directory (.+)")
_MISSING_FOLDER = re.compile(r"Checkpoint directory does not exist: (?:file:)?(.+)")
_NEW_FOLDER = "or start with a new folder: the state and the offsets of sources then start from scratch too"
_DURATIONS = {"window": "length of a window", "slide": "slide of a window"}

_Events = queue.SimpleQueue[Callable[[], None]]


class DStreamMonitor:
    """Reports the batches of one StreamingContext, from before its start until it has stopped."""

    def __init__(self, context: StreamingContext, name: str, run_status: RunStatus) -> None:
        self._context, self._name, self._run_status = context, name, run_status
        self._events: _Events = queue.SimpleQueue()
        self._completed = 0
        self._queued = 0
        self._recovered_ms = 0
        """When a context from a checkpoint was started: earlier batches are those of the downtime."""
        self._uncounted = 0
        self._failure: MillraceError | None = None
        self._failure_text = ""
        self._stop_requested = False
        self._interrupted = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dstream-monitor", daemon=True)

    @property
    def recovers(self) -> bool:
        """Whether the context comes from a checkpoint."""
        return bool(self._context._jssc.ssc().isCheckpointPresent())

    def listen(self) -> None:
        """Listen to every batch; called before the context is started."""
        self._batch_interval_s = self._context._jssc.ssc().graph().batchDuration().milliseconds() / 1000
        self._has_checkpoint = self._context._jssc.ssc().checkpointDir() is not None
        self._context.addStreamingListener(_listener(self._events, self))

    def report(self) -> None:
        self._run_status.started(self._name)
        if self.recovers:
            self._recovered_ms = round(time.time() * 1000)
            message = "Resuming from its checkpoint: the batches of its downtime come first"
            self._run_status.update(self._name, Phase.STARTING, message)
        self._thread.start()

    def stop_requested(self, context: StreamingContext) -> None:
        """Record that a context is stopped: failures that only come from that are not reported."""
        self._stop_requested = self._stop_requested or context is self._context

    def interrupted(self) -> None:
        """Record that the running batches take too long, and are not waited for."""
        self._interrupted = True

    def close(self) -> None:
        """Report what has happened until now, and end; the wait is limited, since Spark may be busy with a stop."""
        self._stop.set()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def batch_submitted(self, _: Any) -> None:
        self._queued += 1

    def batch_started(self, event: Any) -> None:
        batch_time = _datetime(event.batchInfo().batchTime().milliseconds())
        queued = f"; {self._queued - 1:,} more are queued" if self._queued > 1 else ""
        self._run_status.update(self._name, Phase.RUNNING, f"Processing the batch of {batch_time:%H:%M:%S}{queued}")

    def batch_completed(self, event: Any) -> None:
        """Report a batch that is done; one that failed does not count, and the thread reports its failure."""
        self._queued = max(0, self._queued - 1)
        info = event.batchInfo()
        if not any(operation.failureReason() for operation in info.outputOperationInfos().values()):
            self._run_status.batch_done(_progress(info, self._name, self._completed, self._batch_interval_s))
            self._completed += 1
            self._uncounted += not info.numRecords() and info.batchTime().milliseconds() < self._recovered_ms
        message = "; ".join(filter(None, ("Waiting for the next batch", self._uncounted_note())))
        self._run_status.update(self._name, Phase.WAITING, message)

    def receiver_failed(self, event: Any) -> None:
        """Report a receiver that failed; Spark restarts it."""
        info = event.receiverInfo()
        self._run_status.update(self._name, Phase.RUNNING, f"{info.name()}: {info.lastErrorMessage()}")

    def _run(self) -> None:
        ended = False
        try:
            while not ended:
                ended = self._stop.is_set()
                self._handle_events()
                ended = self._has_stopped() or ended
            self._handle_events()
        except Exception as error:
            # Spark was stopped, or has died.
            stopped = self._context._sc._jsc is None or self._stop.is_set()
            self._failure = self._failure or (None if stopped else explain(error))
        result = "are repeated from the checkpoint" if self._has_checkpoint else "are lost: there is no checkpoint"
        interrupted = f"the running batches were interrupted and {result}" if self._interrupted else ""
        notes = "; ".join(filter(None, (interrupted, self._uncounted_note())))
        self._run_status.ended(self._name, self._failure, notes)

    def _uncounted_note(self) -> str:
        batches = format_count(self._uncounted, "batch")
        return f"Spark does not count the rows of {batches} from before the start" if self._uncounted else ""

    def _handle_events(self) -> None:
        """Wait a moment for events of the listener, and handle them."""
        with suppress(queue.Empty):
            self._events.get(timeout=_POLL_INTERVAL_S)()
            while True:
                self._events.get_nowait()()

    def _has_stopped(self) -> bool:
        """Report a failure of the context, and return whether it has stopped."""
        context: Any = self._context._jssc
        stopped = str(context.getState().toString()) == "STOPPED"
        try:
            context.awaitTerminationOrTimeout(0)  # raises the failure
        except Exception as error:
            java_error = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
            if java_error is None:
                raise  # Spark has stopped or died
            self._report_failure(str(java_error.toString()), error)
        self._run_status.seen()
        return stopped

    def _report_failure(self, text: str, error: Exception) -> None:
        if text == self._failure_text or _REJECTED in text or is_interruption(error):
            return
        if self._stop_requested and is_shut_down(full_text(error)):
            self._interrupted = True
            return
        self._failure_text, self._failure = text, explain(error)
        self._run_status.batch_failed(self._name, self._failure)


def stop_context(timeout_s: float) -> bool:
    """Stop the StreamingContext of this process, if there is one, when everything it has received is processed.

    Return False if that takes longer than the timeout.
    """
    context = StreamingContext._activeContext
    if context is None:
        return True

    def stop_gracefully() -> None:
        with suppress(Exception):  # the JVM may have died, which the monitor reports
            context.stop(stopSparkContext=False, stopGraceFully=True)

    stopping = threading.Thread(target=stop_gracefully, name="stopping", daemon=True)
    stopping.start()
    stopping.join(timeout_s)
    return not stopping.is_alive()


def _listener(events: _Events, monitor: DStreamMonitor) -> StreamingListener:
    """Return a listener that only queues its events: Spark waits while it is called."""

    def queue_for(handle: Callable[[Any], None]) -> Callable[[Any, Any], None]:
        return lambda _, event: events.put(partial(handle, event))

    handlers = {
        "onBatchSubmitted": monitor.batch_submitted,
        "onBatchStarted": monitor.batch_started,
        "onBatchCompleted": monitor.batch_completed,
        "onReceiverError": monitor.receiver_failed,
    }
    return type("Listener", (StreamingListener,), {name: queue_for(handle) for name, handle in handlers.items()})()


def _progress(info: Any, name: str, number: int, batch_interval_s: float) -> BatchProgress:
    """Return the progress of a batch as that of a structured query; its durations add up to the total delay.

    The delay counts from the batch time: Spark's scheduling delay starts later for batches that a recovery repeats.
    """
    rows, processing_ms = int(info.numRecords()), max(0, info.processingDelay())
    waiting_ms = max(0, info.processingStartTime() - info.batchTime().milliseconds())
    sources = [
        SourceProgress(
            stream.metadataDescription() or f"input stream {stream.inputStreamId()}", int(stream.numRecords())
        )
        for stream in info.streamIdToInputInfo().values()
    ]
    return BatchProgress(
        query=name,
        run="",
        batch=number,
        at=_datetime(info.processingStartTime()),
        input_rows=rows,
        input_rate=rows / batch_interval_s,
        rate=rows / max(processing_ms, 1) * 1000,
        durations=MappingProxyType({"schedulingDelay": waiting_ms, "processing": processing_ms}),
        milliseconds=processing_ms,
        state_rows=None,
        state_bytes=None,
        sources=tuple(sources),
        waited=waiting_ms,
    )


def _datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def explain_dstream_error(error: BaseException) -> MillraceError | None:
    """Return the error to show for an exception that a program did not catch; None if it is none of these."""
    try:
        text = full_text(error)
    except Exception:  # an error of Java reads its text from the JVM, which may have ended: the traceback is shown
        return None
    place = python_error_of(error).place
    if _NO_FOLDER in text:
        return InvalidStreams(
            "a stream keeps state, and there is no checkpoint folder",
            why="updateStateByKey, and windows with an inverse function, keep their state in it",
            hint="call ssc.checkpoint(FOLDER) before the start",
            place=place,
        )
    if match := _NOT_A_MULTIPLE.search(text):
        interval = f"{int(match[2]) / 1000:g} s"
        return InvalidStreams(
            f"the {_DURATIONS[match[1]]} is not a multiple of {interval}",
            why=f"the stream has a batch every {interval}, and a window consists of whole batches",
            hint=f"choose a multiple of {interval}, or another batch interval for the StreamingContext",
            place=place,
        )
    if match := _MISSING_FOLDER.search(text):
        return CheckpointUnusable(
            f"the checkpoint refers to {match[1].strip()}, which does not exist",
            why="it has the full paths of its files: the folder was moved or copied, or a part of it was removed",
            hint=f"move the folder back, {_NEW_FOLDER}",
            place=place,
        )
    if match := _UNREADABLE.search(text):
        return CheckpointUnusable(
            f"no checkpoint in {match[1].strip()} can be read",
            why=root_cause(error).partition("\n")[0],
            hint=f"undo the change of the program or its modules, restore a copy of the folder, {_NEW_FOLDER}",
            place=place,
        )
    return None
