"""Spark's exceptions as text: what was said, without plans, stack traces and codes.

Python's tracebacks, as objects or as the text that Spark hands on from its workers: where the user's code failed.
"""

from __future__ import annotations

import re
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.errors import SourceLocation

_DEEPEST = 12
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL)
_CALLING = re.compile(r"^An error occurred while calling \S+?\.\n: ")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_CLASS = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)?: ")
_STAGE = re.compile(r"^Job aborted due to stage failure: .*?: (?=[\w.$]+(?:Exception|Error)\b)", re.DOTALL)
_STATE = re.compile(r",? ?SQLSTATE: \w{5}")
_JAVA_FRAME = re.compile(r"^\s+at .*$|^\s+\.\.\. \d+ (?:more|elided)$|^Caused by: |^Driver stacktrace:", re.MULTILINE)
_AFTER = re.compile(r"\n=== Streaming Query ===|\n== (?:DataFrame|SQL)\b|\n+JVM stacktrace:|;\n(?=['~+!*(\w]+ )")
_TRACEBACK = "Traceback (most recent call last):"
_INDENTED = re.compile(r"(?:[ \t].*)?")
_BEHIND = re.compile(r"^Caused by: ", re.MULTILINE)
_CALLED_FROM = re.compile(r"was called from\s+(.+?):(\d+)\s*$", re.MULTILINE)
_LINE = re.compile(r"\(?line (\d+), pos (\d+)\)?|; line (\d+) pos (\d+)")


def full_text(error: BaseException) -> str:
    """All that an exception says, its Java causes included: what rules look through."""
    return "\n".join([str(error), *(f"{kind}: {message}" for kind, message in java_causes(error))])


def java_causes(error: BaseException) -> list[tuple[str, str]]:
    """Class and message of the Java exception behind a Python one, then of each of its causes."""
    found: list[tuple[str, str]] = []
    with suppress(Exception):  # the JVM may be gone; then the text is all there is
        behind = getattr(error, "_cause", None)  # of a query that has ended: only its cause is Java's
        cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        cause = cause or getattr(behind, "_origin", None)
        while cause is not None and len(found) < _DEEPEST:
            found.append((str(cause.getClass().getName()), str(cause.getMessage() or "")))
            cause = cause.getCause()
    return found


def cause_of(error: BaseException) -> str:
    """The root of a failure in one or a few plain lines."""
    causes = [plain_text(message) for _, message in java_causes(error) if message.strip()]
    return (causes[-1] if causes else plain_text(str(error))) or type(error).__name__


def plain_text(text: str) -> str:
    """Spark's words without its codes, its plans and Java's stack traces."""
    text = _CALLING.sub("", _STREAM.sub("", text.strip()))
    text = _CALLING.sub("", _root(text)) if _TRACEBACK in text else text
    for end in (_AFTER, _JAVA_FRAME):
        found = end.search(text)
        text = text[: found.start()] if found else text
    text = _STAGE.sub("", _CLASS.sub("", text.strip()))
    text = _CONDITION.sub("", _CLASS.sub("", text))
    return _STATE.sub("", text).strip().rstrip(";").strip()


def _root(text: str) -> str:
    """What a traceback of Python's ends in; where that is an exception of Java's, the last of its causes."""
    lines = text[text.rfind(_TRACEBACK) :].splitlines()[1:]
    at = next((number for number, line in enumerate(lines) if not _INDENTED.fullmatch(line)), len(lines))
    raised = _CLASS.sub("", "\n".join(lines[at:]))
    return _BEHIND.split(raised)[-1] or text[: text.find(_TRACEBACK)]


def call_site(error: BaseException) -> SourceLocation | None:
    """The line of the user's program that made the expression which failed, where Spark knows it."""
    texts = [str(error)]
    with suppress(Exception):
        texts += [context.summary() for context in error.getQueryContext() or []]  # type: ignore[attr-defined]
    found = [match for text in texts for match in _CALLED_FROM.finditer(text)]
    places = [SourceLocation(file, int(line)) for file, line in (match.groups() for match in found) if is_users(file)]
    return places[0] if places else None


def sql_position(text: str) -> tuple[int, int] | None:
    """Line and column in the SQL text, both from 1."""
    found = _LINE.search(text)
    if not found:
        return None
    line, column = (int(one) for one in found.groups() if one is not None)
    return line, column + 1


def is_users(file: str) -> bool:
    """Whether a file is the user's own: not Python's, not Spark's, not ours, not a library's."""
    if file.startswith("<"):
        return False
    parts = Path(file).parts
    return not ({"site-packages", "dist-packages", "pyspark.zip"} & {*parts}) and not _is_library(file)


def _is_library(file: str) -> bool:
    import sysconfig

    import millrace

    folders = [sysconfig.get_path("stdlib"), *(str(one) for one in millrace.__path__)]
    return any(Path(file).is_relative_to(folder) for folder in folders)


_START = "Traceback (most recent call last):"
_PYTHON_FRAME = re.compile(r'^  File "(.+?)", line (\d+), in (.+)$')
_SINK = re.compile(r"\bconnectors[/\\]foreach\.py |\bfunc_with(?:out_process|_open_process_close)$")
"""Our sink for functions, and Spark's own foreach."""
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")


@dataclass(frozen=True, slots=True)
class PythonError:
    """An exception of Python: its kind, its words, and the last line of the user's that it came through."""

    kind: str
    words: str
    place: SourceLocation | None
    function: str | None
    writes: bool = False
    """Whether it was called by a sink, to write rows."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def raised_in(text: str) -> PythonError | None:
    """The innermost exception of Python in a text."""
    start = text.rfind(_START)
    if start < 0:
        return None
    frames: list[tuple[str, int, str]] = []
    for line in text[start:].splitlines()[1:]:
        frame = _PYTHON_FRAME.match(line)
        if frame:
            frames.append((frame[1], int(frame[2]), frame[3]))
        elif found := _RAISED.match(line):
            words = plain_text(text[start:]) if found[1].endswith("Py4JJavaError") else found[2] or ""
            return _raised(found[1], words, frames)
    return None


def raised_by(error: BaseException) -> PythonError:
    """The same of an exception that is at hand."""
    frames = [(one.filename, one.lineno or 0, one.name) for one in traceback.extract_tb(error.__traceback__)]
    words = str(error)
    return _raised(type(error).__name__, plain_text(words) if _START in words else words, frames)


def _raised(kind: str, words: str, frames: list[tuple[str, int, str]]) -> PythonError:
    own = [frame for frame in frames if is_users(frame[0])]
    file, line, function = own[-1] if own else (None, 0, None)
    writes = any(_SINK.search(f"{where} {what}") for where, _, what in frames)
    return PythonError(
        kind.rpartition(".")[2], words.strip(), SourceLocation(file, line) if file else None, function, writes
    )
