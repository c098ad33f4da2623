"""What went wrong in a DStream program, in our words: from the tracebacks and stack traces that Spark hands on."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path
from typing import Any, TypeVar

import millrace.errors as errors
from millrace.errors import BadRecord, FunctionFailed, MillraceError, OffsetsGone, RunError, SourceLocation

E = TypeVar("E", bound=MillraceError)

_ANEW = "start anew with another checkpoint folder, and let Kafka keep records for longer (retention.ms)"
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_LIBRARIES = re.compile(r"[/\\](?:site-packages|pyspark|py4j|millrace[/\\]dstreams)[/\\]|pyspark\.zip")
_PYTHON = sysconfig.get_path("stdlib")
_RAISED = re.compile(r"^(?:([\w.]+)\.)?(\w+)(?:: (.*))?$", re.MULTILINE)
_WHY, _TRY, _AT = " | why: ", " | try: ", " | at: "
_GONE = re.compile(
    r"failOnDataLoss|may have been (?:lost|missed|aged out)|some data may|OffsetOutOfRange", re.IGNORECASE
)
_SHUT = re.compile(
    r"SparkContext (?:was|has been) (?:shut ?down|stopped)|stopped SparkContext"
    r"|RpcEnv(?: already | has been )?[sS]topped|driverEndpoint\(\)\W* is null|SparkEnv\W.* is null|Py4JNetworkError"
    r"|File \"[^\"]*pyspark[^\"]*\", line \d+, in \w+\n(?: {4}.*\n)+AttributeError: 'NoneType' object has no attribute"
)
"""What is said of work that a SparkContext which is shut down, or a JVM that is gone, no longer does."""
_CUT = "was cut off by the end of its program"
_OURS = re.compile(r"^millrace\.errors\.(?:\w+\.)?(\w+): (.*)$", re.MULTILINE)


def carried(error: E) -> E:
    """The error with all its parts in its message: only that crosses from a worker to the driver."""
    why = f"{_WHY}{_on_one_line(error.why)}" if error.why else ""
    hint = f"{_TRY}{_on_one_line(error.hint)}" if error.hint else ""
    place = f"{_AT}{error.place}" if error.place else ""
    return type(error)(f"{_on_one_line(error.message)}{why}{hint}{place}")


def undecodable(decoder: str, record: str, error: Exception) -> BadRecord:
    """What a task says when a decoder of the program's raised: for which record, and where in the program."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not _is_library(one.filename)]
    told = BadRecord(
        f"the {decoder} raised for {record}",
        why=f"{type(error).__name__}: {error}",
        hint="mend the decoder (it may give None) and start again: the batch is repeated",
        place=SourceLocation(frames[-1].filename, frames[-1].lineno) if frames else None,
    )
    return carried(told)


def raised_by(trace: str, milliseconds: int) -> MillraceError:
    """The error of a batch that could not be made, from Python's traceback."""
    return (
        _carried(trace)
        or _function(trace)
        or RunError(f"the batch of {milliseconds} could not be made", why=_last(trace))
    )


def cut_off(trace: str, milliseconds: int) -> MillraceError | None:
    """The same when Spark was shut down in the middle of it, which is no failure once a stop has been asked for."""
    if not shut_down(trace):
        return None
    return RunError(f"the batch of {milliseconds} {_CUT}", why=_last(trace))


def shut_down(text: str) -> bool:
    """Whether something was not done because Spark was shut down."""
    return not _carried(text) and _SHUT.search(text) is not None


def was_cut(failure: MillraceError | None) -> bool:
    """Whether a batch was cut off: nothing failed, and it is made again from the checkpoint."""
    return failure is not None and failure.message.endswith(_CUT)


def in_our_words(error: Any) -> MillraceError | None:
    """The error of a batch that failed; None when it says nothing of Python."""
    text = f"{error.java_exception.toString()}\n{_causes(error.java_exception)}"
    return _carried(text) or _gone(text) or _function(text)


def _causes(thrown: Any) -> str:
    said = []
    while thrown is not None:
        said.append(str(thrown.getMessage()))
        thrown = thrown.getCause()
    return "\n".join(said)


def _carried(text: str) -> MillraceError | None:
    found = _OURS.findall(text)
    if not found:
        return None
    name, said = found[-1]
    kind = getattr(errors, name, RunError)
    before, _, at = said.rpartition(_AT)
    file, _, line = at.rpartition(":")
    placed = bool(before) and line.isdecimal()
    rest, _, hint = (before if placed else said).partition(_TRY)
    message, _, why = rest.partition(_WHY)
    made: MillraceError = kind(
        message, why=why or None, hint=hint or None, place=SourceLocation(file, int(line)) if placed else None
    )
    return made


def _gone(text: str) -> MillraceError | None:
    if not _GONE.search(text):
        return None
    why = next((line for line in text.splitlines() if _GONE.search(line)), None)
    return OffsetsGone("records of a batch were no longer in Kafka when it was read", why=why, hint=_ANEW)


def _function(text: str) -> MillraceError | None:
    """A function of the program's that raised, with its place."""
    if "Traceback (most recent call last)" not in text:
        return None
    own = [frame for frame in _FRAME.findall(text) if not _is_library(frame[0])]
    place = SourceLocation(own[-1][0], int(own[-1][1])) if own else None
    named = f"the function {own[-1][2]} raised" if own else "a function raised"
    return FunctionFailed(named, why=_last(text), place=place, hint="mend it and start again: the batch is repeated")


def _last(text: str) -> str:
    """The last line of a traceback, which has the exception."""
    trace = text[text.rfind("Traceback (most recent call last)") :]
    for line in trace.splitlines()[1:]:
        if line and not line[0].isspace() and (found := _RAISED.match(line)):
            return line if found else ""
    return ""


def _is_library(file: str) -> bool:
    """Whether a frame is of a file that is not the program's: of a package, or of Python itself."""
    return _LIBRARIES.search(file) is not None or Path(file).is_relative_to(_PYTHON)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
