"""Read the exceptions of Spark and of Python workers, most of which reach the driver as text.

- Collect the text, the Java classes and the Spark error conditions of an exception and its causes.
- Strip error codes, query plans and stack traces from a message.
- Find the Python exception in a text, and the line of the user's code that raised it.
- Recognize work that failed only because Spark was shut down.
"""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from millrace.errors.base import SourceLocation

_MAX_CAUSES = 12
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ", re.DOTALL)
_CALLING = re.compile(r"^An error occurred while calling \S+?\.\n: ")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_CLASS = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)?: ")
_STAGE = re.compile(r"^Job aborted due to stage failure: .*?: (?=[\w.$]+(?:Exception|Error)\b)", re.DOTALL)
_SQL_STATE = re.compile(r",? ?SQLSTATE: \w{5}")
_JAVA_FRAME = re.compile(r"^\s+at .*$|^\s+\.\.\. \d+ (?:more|elided)$|^Caused by: |^Driver stacktrace:", re.MULTILINE)
_AFTER_MESSAGE = re.compile(
    r"\n=== Streaming Query ===|\n== (?:DataFrame|SQL)\b|\n+JVM stacktrace:|;\n(?=['~+!*(\w]+ )"
)
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_FRAME = re.compile(r'^  File "(.+?)", line (\d+), in (.+)$')
_PYTHON_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")
_INDENTED = re.compile(r"(?:[ \t].*)?")
_CAUSED_BY = re.compile(r"^Caused by: ", re.MULTILINE)
_CALLED_FROM = re.compile(r"was called from\s+(.+?):(\d+)\s*$", re.MULTILINE)
_SQL_POSITION = re.compile(r"\(?line (\d+), pos (\d+)\)?|; line (\d+) pos (\d+)")
_LIBRARY_PART = re.compile(r"site-packages|dist-packages|pyspark\.zip|py4j-.*\.zip")
_ERROR_NAME = re.compile(r"\b(?:_?[A-Z][A-Z0-9_]{4,}|[A-Z]\w*(?:Exception|Error)|[A-Z]\w*[a-z][A-Z]\w*)\b")
_SHUT_DOWN = re.compile(
    r"SparkContext (?:was|has been) (?:shut ?down|stopped)|stopped SparkContext"
    r"|RpcEnv(?: already | has been )?[sS]topped|driverEndpoint\(\)\W* is null|SparkEnv\W.* is null|Py4JNetworkError"
    r"|File \"[^\"]*pyspark[^\"]*\", line \d+, in \w+\n(?: {4}.*\n)+AttributeError: 'NoneType' object has no attribute"
)


class JavaCause(NamedTuple):
    """A Java exception: its class, its message, and its Spark error condition (empty if it has none)."""

    kind: str
    message: str
    condition: str

    @property
    def simple_kind(self) -> str:
        """The class without its package."""
        return self.kind.rpartition(".")[2]


def full_text(error: BaseException) -> str:
    """Return the text of an exception and of all its Java causes."""
    return "\n".join([str(error), *(f"{cause.kind}: {cause.message}" for cause in java_causes(error))])


def java_causes(error: BaseException) -> list[JavaCause]:
    """Return the Java exception behind a Python one, then each of its causes."""
    causes: list[JavaCause] = []
    with suppress(Exception):  # the JVM may have ended; then there is only the text
        of_query = getattr(error, "_cause", None)  # a query that ended: only the cause of its error is Java's
        thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
        thrown = thrown or getattr(of_query, "_origin", None)
        while thrown is not None and len(causes) < _MAX_CAUSES:
            kind, message = str(thrown.getClass().getName()), str(thrown.getMessage() or "")
            causes.append(JavaCause(kind, message, _condition(thrown)))
            thrown = thrown.getCause()
    return causes


def _condition(thrown: Any) -> str:
    with suppress(Exception):  # most Java exceptions are no SparkThrowable
        return str(thrown.getCondition() or "")
    return ""


def root_cause(error: BaseException) -> str:
    """Return the message of the innermost cause of a failure, in one or a few plain lines."""
    messages = [plain_text(cause.message) for cause in java_causes(error) if cause.message.strip()]
    return (messages[-1] if messages else plain_text(str(error))) or type(error).__name__


def plain_text(text: str) -> str:
    """Return a message of Spark without error codes, query plans and Java stack traces."""
    text = _CALLING.sub("", _STREAM.sub("", text.strip()))
    text = _CALLING.sub("", _traceback_end(text)) if _TRACEBACK in text else text
    for end in (_AFTER_MESSAGE, _JAVA_FRAME):
        text = end.split(text, maxsplit=1)[0]
    text = _STAGE.sub("", _CLASS.sub("", text.strip()))
    text = _CONDITION.sub("", _CLASS.sub("", text))
    return _SQL_STATE.sub("", text).strip().rstrip(";").strip()


def _traceback_end(text: str) -> str:
    """Return what follows the frames of the last Python traceback; of a Java exception, its last cause."""
    lines = text[text.rfind(_TRACEBACK) :].splitlines()[1:]
    end = next((number for number, line in enumerate(lines) if not _INDENTED.fullmatch(line)), len(lines))
    raised = _CLASS.sub("", "\n".join(lines[end:]))
    return _CAUSED_BY.split(raised)[-1] or text[: text.find(_TRACEBACK)]


def error_names(text: str) -> frozenset[str]:
    """Return the exception classes, Spark conditions and Kafka error codes that a text names.

    Of classes without their package and without Exception or Error at their end, which languages use differently.
    """
    return frozenset(name.removesuffix("Exception").removesuffix("Error") for name in _ERROR_NAME.findall(text))


def call_site(error: BaseException) -> SourceLocation | None:
    """Return the line of the user's program that built the failed expression, if Spark recorded it."""
    texts = [str(error)]
    with suppress(Exception):
        texts += [context.summary() for context in error.getQueryContext() or []]  # type: ignore[attr-defined]
    calls = [match.groups() for text in texts for match in _CALLED_FROM.finditer(text)]
    return next((SourceLocation(file, int(line)) for file, line in calls if is_user_file(file)), None)


def sql_position(text: str) -> tuple[int, int] | None:
    """Return the line and the column in the SQL text, both from 1."""
    match = _SQL_POSITION.search(text)
    if not match:
        return None
    line, column = (int(number) for number in match.groups() if number is not None)
    return line, column + 1


def is_shut_down(text: str) -> bool:
    """Return whether work failed because Spark was shut down, or its JVM has ended."""
    return _SHUT_DOWN.search(text) is not None


def is_user_file(file: str) -> bool:
    """Return whether a file is the user's: not of Python, Spark, Millrace or another library.

    The file may be on another machine, so libraries are recognized by the names of their folders as well.
    """
    if file.startswith("<") or any(_LIBRARY_PART.fullmatch(part) for part in Path(file).parts):
        return False
    packages = [sys.modules[name].__path__ for name in ("millrace", "pyspark", "py4j") if name in sys.modules]
    folders = [sysconfig.get_path("stdlib"), *(folder for package in packages for folder in package)]
    return not any(Path(file).is_relative_to(folder) for folder in folders)


class PythonFrame(NamedTuple):
    """A line of a Python traceback."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class PythonError:
    """A Python exception: its class, its message and its frames."""

    kind: str
    message: str
    frames: tuple[PythonFrame, ...] = ()

    @property
    def user_frame(self) -> PythonFrame | None:
        """The last frame in a file of the user's."""
        return next((frame for frame in reversed(self.frames) if is_user_file(frame.file)), None)

    @property
    def place(self) -> SourceLocation | None:
        """The last line of the user's code that the exception passed through."""
        return SourceLocation(frame.file, frame.line) if (frame := self.user_frame) else None

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


def python_error_in(text: str) -> PythonError | None:
    """Return the exception of the last Python traceback in a text."""
    start = text.rfind(_TRACEBACK)
    if start < 0:
        return None
    frames: list[PythonFrame] = []
    for line in text[start:].splitlines()[1:]:
        if frame := _PYTHON_FRAME.match(line):
            frames.append(PythonFrame(frame[1], int(frame[2]), frame[3]))
        elif raised := _PYTHON_EXCEPTION.match(line):
            message = plain_text(text[start:]) if raised[1].endswith("Py4JJavaError") else raised[2] or ""
            return PythonError(raised[1].rpartition(".")[2], message.strip(), tuple(frames))
    return None


def python_error_of(error: BaseException) -> PythonError:
    """Return the class, message and frames of an exception object."""
    frames = (PythonFrame(at.filename, at.lineno or 0, at.name) for at in traceback.extract_tb(error.__traceback__))
    message = plain_text(str(error)) if _TRACEBACK in str(error) else str(error)
    return PythonError(type(error).__name__, message.strip(), tuple(frames))
