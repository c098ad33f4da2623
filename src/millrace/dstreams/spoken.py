"""What went wrong in a DStream program, in our words: from the tracebacks and stack traces that Spark hands on."""

from __future__ import annotations

import re
from typing import Any

from millrace import errors
from millrace.errors import FunctionFailed, MillraceError, Place, RunError

_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_LIBRARIES = re.compile(r"[/\\](?:site-packages|pyspark|py4j|millrace[/\\]dstreams)[/\\]|pyspark\.zip")
_RAISED = re.compile(r"^(?:([\w.]+)\.)?(\w+)(?:: (.*))?$", re.MULTILINE)
_OURS = re.compile(r"^millrace\.errors\.(\w+): (.*)$", re.MULTILINE)


class Carried:
    """An error of ours that has to cross from a worker to the driver as text; its parts stand in its lines."""

    @staticmethod
    def pack(error: MillraceError) -> str:
        """The message, and the rest in marked parts."""
        return "".join((error.message, f" | why: {error.why}" * bool(error.why), f" | try: {error.hint}" * bool(error.hint)))


def raised_by(trace: str, milliseconds: int) -> MillraceError:
    """The error of a batch that could not be made, from Python's traceback."""
    return _carried(trace) or _function(trace) or RunError(f"the batch of {milliseconds} could not be made", why=_last(trace))


def in_our_words(error: Any) -> MillraceError | None:
    """The error of a batch that failed; None when it says nothing of Python."""
    text = f"{error.java_exception.toString()}\n{_causes(error.java_exception)}"
    return _carried(text) or _function(text)


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
    message, _, rest = said.partition(" | why: ")
    why, _, hint = rest.partition(" | try: ")
    made: MillraceError = kind(message, why=why or None, hint=hint or None)
    return made


def _function(text: str) -> MillraceError | None:
    """A function of the program's that raised, with its place."""
    if "Traceback (most recent call last)" not in text:
        return None
    own = [frame for frame in _FRAME.findall(text) if not _LIBRARIES.search(frame[0])]
    place = Place(own[-1][0], int(own[-1][1])) if own else None
    named = f"the function {own[-1][2]} raised" if own else "a function raised"
    return FunctionFailed(named, why=_last(text), place=place, hint="mend it and start again: the batch is repeated")


def _last(text: str) -> str:
    """The last line of a traceback, which has the exception."""
    trace = text[text.rfind("Traceback (most recent call last)") :]
    for line in trace.splitlines()[1:]:
        if line and not line[0].isspace() and (found := _RAISED.match(line)):
            return line if found else ""
    return ""
