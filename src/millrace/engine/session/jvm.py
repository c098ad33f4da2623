"""Spark's JVM as a child process: what it is started with, where its output goes, how it ends.

Environment variables for a while.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace.engine.session.class_archive import class_archive_options
from millrace.engine.session.scratch import Scratch
from millrace.engine.session.spark_conf import is_local
from millrace.errors import FileUnusable, JavaUnusable, SparkFailed
from millrace.pipeline.secret import shown
from millrace.services.java import find_java
from millrace.services.process import quoted
from millrace.settings import VERBOSE


@contextmanager
def environment_variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """A time in which these are set; afterwards all is as it was."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


Line = Callable[[str], None]
"""Takes a line of text, without its end."""

_NOISE = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    r"|To adjust logging level use|(NOTE: )?Picked up \w*JAVA_\w*OPTIONS"
)
GRACE = 20.0
"""Seconds in which it must have ended."""
_GRACE_AT_EXIT = 2.0
"""The same for a JVM that nobody has closed when this process ends."""
_LOG4J = """\
# Written by Millrace at every start; an edit is lost.
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: {said}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


_REDACTION = "spark.redaction.regex"
_NAMED = r"(?i)((?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)=)(?:\"[^\"]*\"|[^\s,;&]+)"
_ADDRESS = r"(://[^/\s:@]*:)[^/\s@]+@"
"""What is not written to the log, whoever says it: what stands after `password=`, and the passwords of addresses."""


@dataclass(frozen=True)
class OutputRouting:
    """Where what the JVM and its Python workers print goes. None is the log; a number is a file descriptor."""

    out: Line | int | None = None
    err: Line | None = None
    """What Python functions print in workers arrives here too: Spark sends both of their streams this way."""


class Jvm:
    """A running JVM with a gateway for PySpark; Ctrl-C does not reach it, and it ends when this process does."""

    def __init__(
        self,
        settings: Mapping[str, str],
        log: Path | None,
        scratch: Scratch,
        voice: OutputRouting = OutputRouting(),  # noqa: B008 - frozen
        holds: Sequence[int] = (),
    ) -> None:
        """Start it. Its temporary files, and its log if `log` names none, are in `scratch`, which goes when it ends."""
        self.scratch = scratch
        self.log = (log or scratch.folder / "spark.log").absolute()
        self._log_stays = log is not None
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._closed = False
        self._pumps: list[threading.Thread] = []
        self.gateway: Any = None
        atexit.register(self._close_at_exit)
        try:
            self._start = _open_log(self.log)
            _quieten()
            try:
                self.gateway = self._launched(settings, voice, holds)
            except Exception as error:
                self._drain()
                raise self.failed("its JVM ended") from error
        except BaseException:
            self.close(0.0)
            raise

    def failed(self, why: str) -> SparkFailed:
        """The error of a start that did not succeed, with the end of the log."""
        with self.log.open("rb") as content:
            content.seek(self._start)
            said = content.read().decode("utf-8", "replace")
        where = f"the whole log is in {self.log}; " if self._log_stays else ""
        return SparkFailed(
            "Spark could not be started",
            why=f"{why}{quoted(said)}",
            hint=f"{where}look at --master, --set and at the memory that is free",
        )

    def close(self, patience: float = GRACE) -> None:
        """End it, wait and remove its temporary files; everything that it printed has been handed on then."""
        with self._starting:
            self._closed = True
        if self._process:
            if self._process.stdin:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self.gateway:
            with contextlib.suppress(Exception):  # not before: it would wait for threads that wait for the JVM
                self.gateway.shutdown()
        self._drain()
        self.scratch.remove()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """Close it if nobody has; a process that was forked from this one must not."""
        if self._pid == os.getpid():
            self.close(_GRACE_AT_EXIT if self.gateway else 0.0)

    def _launched(self, settings: Mapping[str, str], voice: OutputRouting, holds: Sequence[int]) -> Any:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False)
        chosen = _with_options(settings, self.log, self.scratch)
        # Everybody on this machine can read a command line.
        hidden = {key: value for key, value in chosen.items() if shown(key, value) != value}
        for key, value in chosen.items():
            if key not in hidden:
                conf.set(key, value)
        if hidden and (pattern := chosen.get(_REDACTION)):  # nor does Spark itself show what has a harmless name
            conf.set(_REDACTION, "|".join((pattern, *(rf"^\Q{key}\E$" for key in hidden))))
        with contextlib.ExitStack() as opened:
            log = opened.enter_context(self.log.open("ab")).fileno()
            streams = {"stdout": self._end_of(voice.out, log, opened), "stderr": self._end_of(voice.err, log, opened)}
            # A terminal sends Ctrl-C to a whole session: the JVM gets one of its own.
            child = {**streams, "start_new_session": True, "pass_fds": (*holds, self.scratch.held)}
            opened.enter_context(self._launcher_in_scratch(settings))
            gateway = launch_gateway(conf, child)
        for key, value in hidden.items():  # where Spark looks for what its command line said
            gateway.jvm.java.lang.System.setProperty(key, value)
        return gateway

    @contextlib.contextmanager
    def _launcher_in_scratch(self, settings: Mapping[str, str]) -> Iterator[None]:
        """A time in which PySpark's launcher makes its own files in the scratch folder, and has us start the JVM.

        It takes neither a folder nor variables for the child, and those of this process are also those of its threads.
        """
        from pyspark import java_gateway

        launcher: Any = java_gateway
        before = launcher.tempfile, launcher.Popen
        made = partial(tempfile.mkdtemp, dir=self.scratch.folder)
        launcher.tempfile = SimpleNamespace(mkdtemp=made, mkstemp=tempfile.mkstemp)
        launcher.Popen = partial(self._started, self.scratch.variables(settings))
        try:
            yield
        finally:
            launcher.tempfile, launcher.Popen = before

    def _started(self, variables: Mapping[str, str], command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._closed:  # this process ends, and the scratch folder is gone
                raise InterruptedError
            options["env"] |= variables
            self._process = subprocess.Popen(command, **options)
            return self._process

    def _end_of(self, to: Line | int | None, log: int, opened: contextlib.ExitStack) -> int:
        """The descriptor for a stream of the child: of a pipe whose lines are handed on, where somebody wants them."""
        if not callable(to):
            return log if to is None else to
        source, sink = os.pipe()
        opened.callback(os.close, sink)
        pump = threading.Thread(target=_pump, args=(source, to, self.log), name="spark-output", daemon=True)
        pump.start()
        self._pumps.append(pump)
        return sink

    def _drain(self) -> None:
        for pump in self._pumps:
            pump.join(GRACE)


@contextlib.contextmanager
def environment(master: str, more: Mapping[str, str]) -> Iterator[None]:
    """The variables that Spark reads at its start, for that time only; the user's own values stay."""
    wanted = {"JAVA_HOME": str(_java_home()), **more}
    if is_local(master):
        # Elsewhere the workers have their own Python, and an address that others can reach.
        wanted |= {
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        }
    with environment_variables(wanted):
        yield


def _quieten() -> None:
    """PySpark writes every refused query to standard error with Java's stack trace; whoever catches it tells it."""
    from pyspark.logger import PySparkLogger

    if not VERBOSE.value():
        hush_py4j()  # before the end is asked for: that comes in the middle of a call
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not VERBOSE.value()


def hush_py4j() -> None:
    """Py4J writes a traceback for each call that is cut off: for whoever asked for the end, none."""
    for logger in (logging.getLogger("py4j.clientserver"), logging.getLogger("py4j.java_gateway"), logging.getLogger()):
        logger.addFilter(_is_no_cut_call)


def _is_no_cut_call(record: logging.LogRecord) -> bool:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    said = record.getMessage()
    if "while executing the Python Proxy" in said:  # a batch of ours that called the JVM when that was gone
        return not (record.exc_info and isinstance(record.exc_info[1], Py4JNetworkError))
    return not re.search("while sending command|while shutting down connection", said)


def _with_options(settings: Mapping[str, str], log: Path, scratch: Scratch) -> dict[str, str]:
    """The settings, with options of Java: a quick start, a log that never grows without bound, temporary files."""
    described = log.with_name(log.name + ".log4j2.properties")
    said = f"%replace{{%replace{{%m%n%ex}}{{{_NAMED}}}{{$1***}}}}{{{_ADDRESS}}}{{$1***@}}".replace("\\", "\\\\")
    described.write_text(_LOG4J.format(log=log, said=said), "utf-8")
    key = "spark.driver.extraJavaOptions"
    own = settings.get(key, "")
    quick = "" if "-XX:ArchiveClassesAtExit" in own or "-XX:SharedArchiveFile" in own else class_archive_options()
    ours = [f"-Dlog4j2.configurationFile={described.as_uri()}", scratch.java_options(settings), quick]
    return {**settings, key: " ".join(filter(None, [*ours, own]))}


def _open_log(log: Path) -> int:
    """Make the log's folder and give the length of the log so far."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as content:
            return content.tell()
    except OSError as error:
        raise FileUnusable(f"the log {log} cannot be written", why=error.strerror, hint="choose another") from None


def _java_home() -> Path:
    java = find_java().path.resolve()
    home = java.parent.parent
    if not (home / "bin" / "java").exists():
        raise JavaUnusable(f"{java} is not in the bin folder of a Java", hint="set MILLRACE_JAVA to …/bin/java")
    return home


def _pump(source: int, to: Line, log: Path) -> None:
    with os.fdopen(source, "rb") as stream:
        for line in stream:
            if _NOISE.match(text := line.decode("utf-8", "replace").rstrip("\r\n")):
                with log.open("a", encoding="utf-8") as written:
                    written.write(f"{text}\n")
            else:
                to(text)
