"""Hooks in PySpark's StreamingContext, the only place that changes its methods.

- Report the start, the stop and completed batches of a context to its tracker.
- Report functions that raise: Spark calls no listener for a batch that it could not create.
- Raise Millrace's errors from `start` and `awaitTermination`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.streaming import StreamingContext, StreamingListener
from pyspark.streaming.util import TransformFunction

from millrace.dstreams.errors import batch_error, cut_off_error, failed_by_shutdown, is_cut_off, streaming_error
from millrace.dstreams.jvm_internals import restore_ticking_inputs
from millrace.errors import MillraceError

if TYPE_CHECKING:
    from millrace.dstreams.context_tracker import ContextTracker

_INSTALLED = "_millrace_attends"
_OUTPUT_THREAD = "streaming-job-executor"
"""The prefix of the threads in which Spark runs outputs; other threads create batches."""


@dataclass(frozen=True)
class BatchCompletedEvent:
    """The end of a batch, as a StreamingListener receives it."""

    time: int
    """The batch time in milliseconds."""
    succeeded: bool
    ended_ms: int
    processing_s: float
    """From the start of its first output to the end of its last."""
    delay_s: float
    """How long it waited before that."""


def listener_of(tracker: ContextTracker) -> Any:
    """Return a StreamingListener that reports completed batches to a tracker."""

    class Listener(StreamingListener):  # type: ignore[misc]
        def onBatchCompleted(self, batchCompleted: Any) -> None:  # noqa: N802, N803 - Spark's names
            info = batchCompleted.batchInfo()
            failed = any(output.failureReason() for output in info.outputOperationInfos().values())
            processing_s, delay_s = info.processingDelay() / 1000, info.schedulingDelay() / 1000
            time, ended_ms = int(info.batchTime().milliseconds()), int(info.processingEndTime())
            tracker.on_batch_completed(BatchCompletedEvent(time, not failed, ended_ms, processing_s, delay_s))

    return Listener()


def install_hooks(trackers: ModuleType) -> None:
    """Wrap the methods of PySpark that a tracker has to know of; once in a process.

    A recovered program calls none of our functions before its context starts, so a listener would come too late.
    """
    if getattr(StreamingContext, _INSTALLED, False):
        return
    setattr(StreamingContext, _INSTALLED, True)
    _wrap(StreamingContext, "start", partial(_start, trackers))
    _wrap(StreamingContext, "stop", partial(_stop, trackers))
    for name in ("awaitTermination", "awaitTerminationOrTimeout"):
        _wrap(StreamingContext, name, partial(_wait, trackers))
    _wrap(TransformFunction, "call", partial(_call_function, trackers))


def _wrap(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    """Replace a method by a hook, which gets the method and its arguments."""
    method = getattr(owner, name)

    @wraps(method)
    def hooked(*arguments: Any, **named: Any) -> Any:
        return hook(method, *arguments, **named)

    setattr(owner, name, hooked)


def _start(trackers: ModuleType, start: Any, ssc: StreamingContext) -> None:
    tracker = trackers.start_tracking(ssc)
    if tracker:
        restore_ticking_inputs(ssc)
    _call_explained(tracker, start, ssc)
    if tracker:
        tracker.on_started()


def _stop(trackers: Any, stop: Any, ssc: Any, stopSparkContext: bool = True, stopGraceFully: bool = False) -> Any:  # noqa: N803
    tracker = trackers.current()
    if tracker is None or not tracker.tracks(ssc):
        return stop(ssc, stopSparkContext, stopGraceFully)
    tracker.stop_requested = True
    # First the streams alone: to commit what is completed at their end, Spark is still needed.
    stop(ssc, False, stopGraceFully)
    try:
        tracker.finish()
    finally:
        if stopSparkContext:
            stop(ssc, stopSparkContext, stopGraceFully)
    return None


def _wait(trackers: ModuleType, wait: Any, ssc: StreamingContext, *arguments: Any, **named: Any) -> Any:
    return _call_explained(trackers.current(), wait, ssc, *arguments, **named)


def _call_function(trackers: ModuleType, call: Any, function: Any, milliseconds: int, jrdds: Any) -> Any:
    result = call(function, milliseconds, jrdds)
    tracker = trackers.current()
    if function.failure and tracker and not tracker.failure:
        cut_off = cut_off_error(function.failure, milliseconds) if tracker.stop_requested else None
        error = cut_off or batch_error(function.failure, milliseconds)
        if _runs_output(function):
            tracker.on_output_failed(milliseconds, error)
        else:
            tracker.fail(error)
    return result


def _runs_output(function: Any) -> bool:
    """Return whether a function that raised is an output of a batch; others create the batch."""
    jvm = function.ctx._jvm if function.ctx else None
    try:
        return jvm is not None and str(jvm.java.lang.Thread.currentThread().getName()).startswith(_OUTPUT_THREAD)
    except (Py4JError, OSError):  # the JVM has ended, which is why the function raised
        return True


def _call_explained(tracker: ContextTracker | None, call: Any, ssc: Any, *arguments: Any, **named: Any) -> Any:
    """Call a method of the context and raise Java's errors as ours."""
    try:
        return call(ssc, *arguments, **named)
    except Py4JJavaError as error:
        if tracker is None or not tracker.tracks(ssc):
            raise
        ours: MillraceError | None = tracker.failure or streaming_error(error)
        if is_cut_off(ours) or (tracker.stop_requested and not tracker.failure and failed_by_shutdown(str(error))):
            return None  # it was stopped on request
        if ours is None:
            raise
        raise ours from None
