"""Python's tracebacks, as objects or as the text that Spark hands on from its workers: where the user's code failed."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from millrace.engine.spoken import is_users, plain
from millrace.errors import Place

_START = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(.+?)", line (\d+), in (.+)$')
_SINK = re.compile(r"\bconnectors[/\\]foreach\.py |\bfunc_with(?:out_process|_open_process_close)$")
"""Our sink for functions, and Spark's own foreach."""
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of Python: its kind, its words, and the last line of the user's that it came through."""

    kind: str
    words: str
    place: Place | None
    function: str | None
    writes: bool = False
    """Whether it was called by a sink, to write rows."""

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def raised_in(text: str) -> Raised | None:
    """The innermost exception of Python in a text."""
    start = text.rfind(_START)
    if start < 0:
        return None
    frames: list[tuple[str, int, str]] = []
    for line in text[start:].splitlines()[1:]:
        frame = _FRAME.match(line)
        if frame:
            frames.append((frame[1], int(frame[2]), frame[3]))
        elif found := _RAISED.match(line):
            words = plain(text[start:]) if found[1].endswith("Py4JJavaError") else found[2] or ""
            return _raised(found[1], words, frames)
    return None


def raised(error: BaseException) -> Raised:
    """The same of an exception that is at hand."""
    frames = [(one.filename, one.lineno or 0, one.name) for one in traceback.extract_tb(error.__traceback__)]
    words = str(error)
    return _raised(type(error).__name__, plain(words) if _START in words else words, frames)


def _raised(kind: str, words: str, frames: list[tuple[str, int, str]]) -> Raised:
    own = [frame for frame in frames if is_users(frame[0])]
    file, line, function = own[-1] if own else (None, 0, None)
    writes = any(_SINK.search(f"{where} {what}") for where, _, what in frames)
    return Raised(kind.rpartition(".")[2], words.strip(), Place(file, line) if file else None, function, writes)
