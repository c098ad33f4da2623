"""Where PySpark's StreamingContext is attended to: its start and end, batches that are done, functions that raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

from millrace.dstreams.errors import batch_error, cut_off_error
from millrace.dstreams.jvm_internals import keep_ticking
from millrace.errors import MillraceError

if TYPE_CHECKING:
    from pyspark.streaming import StreamingContext

    from millrace.dstreams.context_tracker import ContextTracker

_MARK = "_millrace_attends"
_OUTPUT = "streaming-job-executor"
"""How the threads are named in which Spark runs outputs; batches are made in others."""


@dataclass(frozen=True)
class BatchCompletedEvent:
    """What a listener is told of a batch that has ended."""

    time: int
    succeeded: bool
    ended: int
    """When, in milliseconds."""
    worked: float
    """Seconds from the start of its first output to the end of its last."""
    waited: float
    """Seconds before that."""


def listener_of(course: ContextTracker) -> Any:
    """A StreamingListener that tells a course of batches that have ended."""
    from pyspark.streaming import StreamingListener

    class Listener(StreamingListener):  # type: ignore[misc]
        def onBatchCompleted(self, batchCompleted: Any) -> None:  # noqa: N802, N803 - Spark's names
            course.completed(_told(batchCompleted.batchInfo()))

    return Listener()


def install_hooks(course: ModuleType) -> None:
    """Wrap the few methods of PySpark's that must be known of; once in a process.

    Spark tells no listener of a batch that it could not make, and a recovered program comes by none of our functions
    before its context starts.
    """
    from pyspark.streaming import StreamingContext
    from pyspark.streaming.util import TransformFunction

    if getattr(StreamingContext, _MARK, False):
        return
    setattr(StreamingContext, _MARK, True)
    _wrap(StreamingContext, "start", lambda start: _starting(course, start))
    _wrap(StreamingContext, "stop", lambda stop: _stopping(course, stop))
    for name in ("awaitTermination", "awaitTerminationOrTimeout"):
        _wrap(StreamingContext, name, lambda wait: _waiting(course, wait))
    _wrap(TransformFunction, "call", lambda call: _calling(course, call))


def _wrap(owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
    setattr(owner, name, wraps(getattr(owner, name))(wrapper(getattr(owner, name))))


def _starting(course: ModuleType, start: Any) -> Any:
    def wrapped(ssc: StreamingContext) -> None:
        begun = course.started(ssc)
        if begun:
            keep_ticking(ssc)
        _call_explained(begun, start, ssc)
        if begun:
            begun.running()

    return wrapped


def _stopping(course: ModuleType, stop: Any) -> Any:
    def wrapped(ssc: StreamingContext, stopSparkContext: bool = True, stopGraceFully: bool = False) -> Any:  # noqa: N803
        running = course.current()
        if running is None or not running.belongs_to(ssc):
            return stop(ssc, stopSparkContext, stopGraceFully)
        running.asked = True
        # First the streams alone: what is done at their end is settled while Spark is there to be asked.
        stop(ssc, False, stopGraceFully)
        try:
            running.end()
        finally:
            if stopSparkContext:
                stop(ssc, stopSparkContext, stopGraceFully)
        return None

    return wrapped


def _waiting(course: ModuleType, wait: Any) -> Any:
    def wrapped(ssc: StreamingContext, *arguments: Any, **named: Any) -> Any:
        return _call_explained(course.current(), wait, ssc, *arguments, **named)

    return wrapped


def _calling(course: ModuleType, call: Any) -> Any:
    def wrapped(function: Any, milliseconds: int, jrdds: Any) -> Any:
        made = call(function, milliseconds, jrdds)
        running = course.current()
        if function.failure and running and not running.failure:
            cut = cut_off_error(function.failure, milliseconds) if running.asked else None
            error = cut or batch_error(function.failure, milliseconds)
            if _runs_output(function):
                running.stumbled(milliseconds, error)
            else:
                running.fail(error)
        return made

    return wrapped


def _runs_output(function: Any) -> bool:
    """Whether a function that raised was an output of a batch; others make one."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm = function.ctx._jvm if function.ctx else None
    try:
        return jvm is not None and str(jvm.java.lang.Thread.currentThread().getName()).startswith(_OUTPUT)
    except (Py4JError, OSError):  # it has ended, which is why the function raised
        return True


def _call_explained(running: ContextTracker | None, call: Any, ssc: Any, *arguments: Any, **named: Any) -> Any:
    from py4j.protocol import Py4JJavaError

    from millrace.dstreams.errors import failed_by_shutdown, is_cut_off, streaming_error

    try:
        return call(ssc, *arguments, **named)
    except Py4JJavaError as error:
        if running is None or not running.belongs_to(ssc):
            raise
        ours: MillraceError | None = running.failure or streaming_error(error)
        if is_cut_off(ours) or (running.asked and not running.failure and failed_by_shutdown(str(error))):
            return None  # it was stopped, as it was asked to
        if ours is None:
            raise
        raise ours from None


def _told(info: Any) -> BatchCompletedEvent:
    failed = any(output.failureReason() for output in info.outputOperationInfos().values())
    return BatchCompletedEvent(
        int(info.batchTime().milliseconds()),
        not failed,
        int(info.processingEndTime()),
        info.processingDelay() / 1000,
        info.schedulingDelay() / 1000,
    )
