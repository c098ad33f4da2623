"""Explain what went wrong in a DStream program, from the tracebacks and stack traces that Spark passes on.

- Raise errors of tasks so that they reach the driver whole.
- Name the function of the program that raised, and its line.
- Recognize a batch that was cut off because the program ended.
"""

from __future__ import annotations

import re

from millrace.errors import BadRecord, FunctionFailed, MillraceError, OffsetsGone, RunError
from millrace.errors.spark_text import full_text, is_shut_down, python_error_in, python_error_of
from millrace.errors.transport import from_transport, to_transport

_DATA_LOSS = re.compile(
    r"failOnDataLoss|may have been (?:lost|missed|aged out)|some data may|OffsetOutOfRange", re.IGNORECASE
)
_CUT_OFF = "was cut off by the end of its program"


def decoder_failed(decoder: str, record: str, error: Exception) -> BaseException:
    """Return the exception that a task raises when a decoder of the program raised: for which record, and where."""
    why, place = f"{type(error).__name__}: {error}", python_error_of(error).place
    hint = "fix the decoder (it may return None) and start again: the batch is repeated"
    return to_transport(BadRecord(f"the {decoder} raised for {record}", why=why, hint=hint, place=place))


def batch_error(trace: str, milliseconds: int) -> MillraceError:
    """Return the error of a batch that could not be created, from the Python traceback."""
    return (
        from_transport(trace)
        or _function_failed(trace)
        or RunError(f"the batch of {milliseconds} could not be created", why=trace.strip().rpartition("\n")[2])
    )


def cut_off_error(trace: str, milliseconds: int) -> MillraceError | None:
    """Return the error of a batch during which Spark was shut down: no failure if a stop was requested."""
    if not failed_by_shutdown(trace):
        return None
    return RunError(f"the batch of {milliseconds} {_CUT_OFF}", why=str(python_error_in(trace) or ""))


def failed_by_shutdown(text: str) -> bool:
    """Return whether work failed because Spark was shut down."""
    return not from_transport(text) and is_shut_down(text)


def is_cut_off(failure: MillraceError | None) -> bool:
    """Return whether a batch was cut off: nothing failed, and it is created again from the checkpoint."""
    return failure is not None and failure.message.endswith(_CUT_OFF)


def streaming_error(error: BaseException) -> MillraceError | None:
    """Return the error for an exception of Spark Streaming; None when no Python is involved."""
    text = full_text(error)
    return from_transport(text) or _offsets_gone(text) or _function_failed(text)


def _offsets_gone(text: str) -> MillraceError | None:
    line = next((line for line in text.splitlines() if _DATA_LOSS.search(line)), None)
    if line is None:
        return None
    hint = "start from scratch with another checkpoint folder, and let Kafka keep records for longer (retention.ms)"
    return OffsetsGone("records of a batch were no longer in Kafka when it was read", why=line, hint=hint)


def _function_failed(text: str) -> MillraceError | None:
    """Return the error of a function of the program that raised, with its line."""
    raised = python_error_in(text)
    if raised is None:
        return None
    frame = raised.user_frame
    return FunctionFailed(
        f"the function {frame.function} raised" if frame else "a function raised",
        why=str(raised),
        place=raised.place,
        exception=raised.kind,
        hint="fix it and start again: the batch is repeated",
    )
