"""Check a pipeline's file in a process of its own, within a time limit.

The code of the file may do anything to the process that reads it: end it, block it, exhaust its memory, close its
files. So `check` forks a child for it and trusts only the shape of the child's report:

- The report is JSON in shared memory; there is no file descriptor that the file could close.
- If the child does not report, its line is known: `faulthandler` writes it at the time-out or at a fatal signal, and
  the calls that end a process (`os._exit`, `os.kill`, `os.exec…`) note theirs.
- The parent has the time limit too; at the end it kills the child's process group with everything it started.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import gc
import json
import mmap
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import millrace.errors as errors
from millrace.errors import MillraceError, Problem, SourceLocation, printable
from millrace.pipeline.lineage import Endpoint
from millrace.pipeline.loading.user_errors import FUNCTIONS_MODULE, mistake
from millrace.units import format_duration

_REPORT_BYTES = 16 << 20
_REPORT_AT = 4096
_MAX_TEXT_CHARS = 4000
_MAX_PATH_BYTES = 2048
_GRACE_S = 2.0
"""The parent waits longer than the child, which knows the line."""
_SPARK_TIMEOUT_S = 600.0
"""The limit for Millrace's own steps: to start and to stop Spark."""
_POLL_INTERVAL_S = 0.05
_MAX_MEMORY_BYTES = 16 << 30
_MIN_MEMORY_BYTES = 2 << 30
_FIRST_DESCRIPTOR = 200
"""Of the file that faulthandler writes to: higher than those of files that the pipeline's file opens."""
_ENDING_CALLS = ("_exit", "abort", "kill", "killpg", "execv", "execve")
_ENDING_SIGNALS = ("SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGPROF", "SIGVTALRM", "SIGQUIT")
"""They end a process that does not handle them; faulthandler handles others by itself."""
_NO_ENDING = "remove it: the file only describes the pipeline, and must not end the process that reads it"

_exit, _getpid = os._exit, os.getpid


@dataclass(frozen=True)
class CheckedContents:
    """The name of a pipeline, the line that has it, and its size."""

    name: str
    line: int
    sources: int
    tables: int
    sinks: int


@dataclass(frozen=True)
class CheckResult:
    """The problems of a file."""

    problems: list[Problem]
    contents: CheckedContents | None = None
    left_out: int = 0
    """The number of problems that did not fit into the report."""
    spark_asked: bool = False
    complete: bool = True
    """Whether the child has reported."""
    endpoints: tuple[Endpoint, ...] = ()
    """What the pipeline reads and writes."""


@dataclass(frozen=True)
class CheckStep:
    """Tells the parent which step the child begins."""

    of_the_file: Callable[[], None]
    """Begin a step that runs code of the file, with the whole time limit."""
    of_millrace: Callable[[], None]
    """Begin a step of Millrace and Spark."""
    report: Callable[[CheckResult], None]
    """Report a result in case that the next steps do not end."""


Examine = Callable[[CheckStep], CheckResult]


def check_in_child(
    file: str, examine: Examine, limit_s: float, *, quiet: bool, spark_starts: Callable[[], None]
) -> CheckResult:
    """Run `examine` in a child and return its result; raise the MillraceError that it raises.

    `quiet` sends the output of the file to standard error. `spark_starts` is called when the child starts Spark.
    """
    shared = _SharedReport()
    path = file.partition("::")[0]
    with tempfile.TemporaryFile() as trace, _forked() as (child, alive):
        if child == 0:
            _run(shared, trace.fileno(), path, examine, limit_s, quiet=quiet)
        code = _wait(child, alive, shared, limit_s, spark_starts)
        trace.seek(0)
        dump = trace.read(_REPORT_BYTES).decode("utf-8", "replace")
    for stream, is_open in zip((sys.stderr if quiet else sys.stdout, sys.stderr), shared.state.open_lines, strict=True):
        if is_open and stream:
            stream.write("\n")  # else the file's output would be glued to ours
            stream.flush()
    report = shared.read()
    result = None if report is None else _read(report)
    if code == 0 and result:
        return result
    problem = _ended_early(path, code, dump, shared.ending_call(), limit_s)
    if result is None:
        return CheckResult([problem], complete=False)
    return replace(result, problems=[*result.problems, problem], complete=False)


# The parent's side


@contextmanager
def _forked() -> Iterator[tuple[int, int]]:
    """Fork; yield the child's id, which is 0 in the child, and a pipe that ends with the last process of the child.

    At the end the parent kills the child and what it started.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):  # closed, or None when there is none
            stream.flush()
    alive, held = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, of which the command line has none here
        pid = os.fork()
    if pid == 0:
        yield pid, alive
        _exit(1)
    os.close(held)
    try:
        yield pid, alive
    finally:
        os.close(alive)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # it may not have been the leader of a group yet
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _wait(
    child: int, alive: int, shared: _SharedReport, limit_s: float, spark_starts: Callable[[], None]
) -> int | None:
    """Return the child's exit code (minus the number of a signal), or None at the time-out."""
    step, deadline, at_end = 0, time.monotonic() + limit_s + _GRACE_S, False
    while time.monotonic() < deadline:
        if at_end:
            time.sleep(_POLL_INTERVAL_S / 10)
        else:
            at_end = bool(select.select([alive], [], [], _POLL_INTERVAL_S)[0])
        # Not waited for yet: the process group must not be another's when it is killed.
        if (code := _exit_code(child)) is not None:
            return code
        if shared.state.step != step:
            step = shared.state.step
            deadline = time.monotonic() + (_SPARK_TIMEOUT_S if step % 2 else limit_s) + _GRACE_S
            if step == 1:
                spark_starts()
    return None


def _exit_code(pid: int) -> int | None:
    if hasattr(os, "waitid"):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    ended_pid, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended_pid else None


def _read(report: bytes) -> CheckResult | None:
    """Return the report if it has the shape of one; raise the MillraceError that it contains."""
    try:
        fields = json.loads(report)
        if fields["failure"] is not None:
            raise _failure(fields["failure"])
        given = fields["contents"]
        counts = [int(given[name]) for name in ("line", "sources", "tables", "sinks")] if given else []
        contents = CheckedContents(str(_text(given["name"])), *counts) if given else None
        problems = [_problem(problem) for problem in fields["problems"]]
        ends = tuple(map(Endpoint.of, fields["endpoints"]))
        return CheckResult(problems, contents, int(fields["left_out"]), fields["spark_asked"] is True, endpoints=ends)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _problem(fields: dict[str, Any]) -> Problem:
    severity = "warning" if fields["severity"] == "warning" else "error"
    message, hint, why = (_text(fields[name]) for name in ("message", "hint", "why"))
    return Problem(str(_text(fields["condition"])), str(message), _place(fields), hint, why, severity)


def _failure(fields: dict[str, Any]) -> MillraceError:
    kind = getattr(errors, str(fields["type"]), None)
    if not (isinstance(kind, type) and issubclass(kind, MillraceError)):
        kind = errors.RunError
    return kind(
        str(_text(fields["message"])), hint=_text(fields["hint"]), why=_text(fields["why"]), place=_place(fields)
    )


def _place(fields: dict[str, Any]) -> SourceLocation | None:
    file, line = _text(fields["file"]), fields["line"]
    return None if file is None else SourceLocation(file, int(line) if line is not None else None)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError
    return printable(value[:_MAX_TEXT_CHARS])


def _ended_early(file: str, code: int | None, dump: str, ending: tuple[str, str, int], limit_s: float) -> Problem:
    """Return the problem of a child that ended without a report."""
    line, innermost = _line_of(dump, file)
    place = SourceLocation(file, line)
    if code is None or dump.startswith("Timeout"):
        message = f"the file was not read and checked within {format_duration(limit_s)}"
        less = "do not wait or compute there" if file.endswith(".py") else "make it smaller"
        hint = f"{less}, or allow more time with --timeout"
        return Problem("pipeline.timeout", message, place, hint, innermost and f"it was at {innermost}")
    call, ending_file, ending_line = ending
    if call:
        message = f"the file ends the process that reads it: os.{call}"
        return Problem("pipeline.ended", message, SourceLocation(ending_file or file, ending_line or None), _NO_ENDING)
    if code < 0:
        message = f"the process that read the file was ended by the signal {_signal_name(-code)}"
        why = "by the system, because memory ran out, or by another process" if code == -signal.SIGKILL else None
        why = f"it was at {innermost}" if innermost else why
        return Problem("pipeline.ended", message, place, _NO_ENDING, why)
    message = f"the process that read the file ended with exit code {code} and without a result"
    return Problem("pipeline.ended", message, place, _NO_ENDING, "code that the file runs has ended it")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _line_of(dump: str, file: str) -> tuple[int | None, str | None]:
    """Return the line of the file in faulthandler's dump, and where the process was, if it was elsewhere."""
    # The thread that reads the file is the oldest, and the last one listed.
    *_, section = dump.split("(most recent call first):")
    frames = re.findall(r'^  File "(.*)", line (\d+) in (.*)$', section, re.MULTILINE)
    own = [int(line) for name, line, _ in frames if name == _as_dumped(file)]
    name, line, function = frames[0] if frames else ("", "", "")
    elsewhere = bool(frames) and name != _as_dumped(file)
    return own[0] if own else None, f"{name}:{line} in {function}" if elsewhere else None


def _as_dumped(file: str) -> str:
    """Return a file's name as faulthandler writes it: in ASCII, and a long one cut."""
    text = "".join(char if " " <= char <= "~" else _escaped(ord(char)) for char in file[:500])
    return text + "..." if len(file) > 500 else text


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# Between the two


class _SharedState(ctypes.Structure):
    """What the parent knows about the child besides its report."""

    _fields_ = (
        ("step", ctypes.c_uint64),  # odd ones are Millrace's own work
        ("report_bytes", ctypes.c_uint64),
        ("ending_call", ctypes.c_char * 16),  # the call that is about to end the process
        ("ending_file", ctypes.c_char * _MAX_PATH_BYTES),  # where it stands; empty if unknown
        ("ending_line", ctypes.c_uint64),
        ("open_lines", ctypes.c_bool * 2),  # whether the last output to stdout, to stderr, has no line end
    )


class _SharedReport:
    """Memory that the parent and the child share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _REPORT_AT + _REPORT_BYTES)
        self.state: Any = _SharedState.from_buffer(self._memory)

    def begin(self, own: bool) -> None:
        """Begin the next step."""
        step = self.state.step + 1
        self.state.step = step if step % 2 == own else step + 1

    def write(self, report: bytes) -> None:
        """Store a report, which must fit."""
        self._memory[_REPORT_AT : _REPORT_AT + len(report)] = report
        self.state.report_bytes = len(report)

    def read(self) -> bytes | None:
        """Return the stored report."""
        size = self.state.report_bytes
        return self._memory[_REPORT_AT : _REPORT_AT + size] if 0 < size <= _REPORT_BYTES else None

    def set_ending_call(self, name: str, file: str = "", line: int = 0) -> None:
        """Store the call that is about to end the process, with its file and line; no name if none is."""
        self.state.ending_call, self.state.ending_line = name.encode(), line
        self.state.ending_file = os.fsencode(file)[:_MAX_PATH_BYTES]

    def ending_call(self) -> tuple[str, str, int]:
        """Return the call that ended the process, its file and its line, if there was one."""
        name, file = self.state.ending_call.decode("ascii", "replace"), os.fsdecode(self.state.ending_file)
        return (name, printable(file), min(self.state.ending_line, 10**9)) if name in _ENDING_CALLS else ("", "", 0)


# The child's side


def _run(shared: _SharedReport, trace: int, file: str, examine: Examine, limit_s: float, *, quiet: bool) -> NoReturn:
    """Examine, report and end, whatever happens."""
    pid, write = _getpid(), shared.write
    gc.freeze()  # garbage of the parent may belong to threads that do not exist here
    try:
        trace = _detach(trace, quiet=quiet)
        _note_endings(shared, file, pid)
        _note_open_lines(shared)

        def begin(own: bool) -> None:
            shared.begin(own)
            if own:
                free_memory()
                faulthandler.cancel_dump_traceback_later()
            else:
                faulthandler.dump_traceback_later(limit_s, exit=True, file=trace)

        free_memory = _limit_memory()
        faulthandler.dump_traceback_later(limit_s, exit=True, file=trace)
        step = CheckStep(partial(begin, False), partial(begin, True), lambda result: write(_as_report(result)))
        report = _reported(file, examine, step, free_memory)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            with suppress(BaseException):
                stream.flush()  # type: ignore[union-attr]
        if _getpid() == pid:  # a process that the file has forked also gets here
            write(report)
            _exit(0)
    except BaseException:
        _exit(1)
    _exit(0)


def _detach(trace: int, *, quiet: bool) -> int:
    """Leave the terminal and the signals to the parent; return the descriptor for faulthandler."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(OSError):
        if os.isatty(0):  # the terminal is the parent's
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if quiet:
        with suppress(OSError):
            os.dup2(2, 1)
    trace = fcntl.fcntl(trace, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    faulthandler.enable(trace, all_threads=False)
    for name in _ENDING_SIGNALS:
        faulthandler.register(getattr(signal, name), trace, all_threads=False, chain=True)
    return trace


def _note_endings(shared: _SharedReport, file: str, pid: int) -> None:
    """Let the calls that end this process note their line."""

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **named: Any) -> Any:
            kills_another = name in ("kill", "killpg") and arguments[:1] not in ((pid,), (-pid,), (0,), (-1,))
            if _getpid() != pid or kills_another:
                return call(*arguments, **named)
            shared.set_ending_call(name, *_own_line(sys._getframe(1), file))
            try:
                return call(*arguments, **named)
            finally:
                shared.set_ending_call("")  # it did not end the process

        return noted

    modules = [module for module in (os, sys.modules.get("posix")) if module]
    for name in _ENDING_CALLS:
        noted = noting(name, getattr(os, name))
        for module in modules:
            setattr(module, name, noted)


def _note_open_lines(shared: _SharedReport) -> None:
    """Let the standard streams note whether their last output ends a line."""

    def noting(number: int, write: Callable[[str], int]) -> Callable[[str], int]:
        def noted(text: str) -> int:
            if text:
                shared.state.open_lines[number] = not text.endswith("\n")
            return write(text)

        return noted

    for number, stream in enumerate((sys.stdout, sys.stderr)):
        with suppress(AttributeError):  # None when it is closed
            stream.write = noting(number, stream.write)  # type: ignore[method-assign]


def _own_line(frame: FrameType | None, file: str) -> tuple[str, int]:
    """Return the innermost line of the file, or of a file of functions that it names."""
    while frame and frame.f_code.co_filename != file and frame.f_globals.get("__name__") != FUNCTIONS_MODULE:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)


def _data_bytes() -> int:
    """Return the size of this process's data, which is a copy of the parent's."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[5]) * resource.getpagesize()
    return 0


def _limit_memory() -> Callable[[], None]:
    """Raise MemoryError in a file that takes too much memory; return what removes the limit."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _data_bytes() + max(_MIN_MEMORY_BYTES, min(half, _MAX_MEMORY_BYTES))
    if before[0] == resource.RLIM_INFINITY or before[0] > wanted:
        with suppress(ValueError, OSError):  # macOS knows no such limit
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, before[1]))

    def undo() -> None:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, before)

    return undo


def _reported(file: str, examine: Examine, step: CheckStep, free_memory: Callable[[], None]) -> bytes:
    try:
        return _as_report(examine(step))
    except MillraceError as error:
        fields = asdict(Problem(error.condition, error.message, error.place, error.hint, error.why))
        return _encoded({"failure": _flat(fields) | {"type": type(error).__name__}})
    except BaseException as error:
        free_memory()  # to report a MemoryError takes some
        failure = mistake(file, error)
        why = failure.why or "changes of the file to Python itself (sys.modules, builtins, …) may be the cause"
        return _as_report(CheckResult([Problem(failure.condition, failure.message, failure.place, failure.hint, why)]))


def _as_report(examined: CheckResult) -> bytes:
    """Return the report, with as many of the problems as fit."""
    kept: list[dict[str, Any]] = []
    endpoints = [asdict(end) for end in examined.endpoints]
    room = _REPORT_BYTES - _REPORT_AT - len(_encoded({"endpoints": endpoints}))
    for problem in examined.problems:
        fields = _flat(asdict(problem))
        room -= len(_encoded(fields)) + 2  # and the separator
        if room < 0:
            break
        kept.append(fields)
    left_out = examined.left_out + len(examined.problems) - len(kept)
    report = {"contents": examined.contents and asdict(examined.contents), "spark_asked": examined.spark_asked}
    return _encoded({"failure": None, "problems": kept, "left_out": left_out, "endpoints": endpoints, **report})


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    place = fields.pop("place") or {"file": None, "line": None}
    texts = {key: value[:_MAX_TEXT_CHARS] if isinstance(value, str) else value for key, value in fields.items()}
    return texts | place


def _encoded(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()
