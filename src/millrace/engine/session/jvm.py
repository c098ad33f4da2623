"""Spark's JVM as a child process.

- `Jvm` starts it with a log, a scratch folder and a gateway for PySpark, and ends it.
- `OutputRouting` says where the output of the JVM and its Python workers goes.
- `environment` and `environment_variables` set variables for a limited time.
- `silence_py4j` keeps tracebacks of interrupted calls off standard error.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
from millrace.services.process import quote_output
from millrace.settings import VERBOSE


@contextmanager
def environment_variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, and restore the previous values at the end."""
    before = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)


LineHandler = Callable[[str], None]
"""Takes a line of text, without its end."""

_NOISE = re.compile(
    r"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    r"|To adjust logging level use|(NOTE: )?Picked up \w*JAVA_\w*OPTIONS"
)
END_TIMEOUT_S = 20.0
_EXIT_TIMEOUT_S = 2.0
"""For a JVM that is still open when this process exits."""
_LOG4J = """\
# Written by Millrace at every start; an edit is lost.
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: {message}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""
_REDACTION = "spark.redaction.regex"
_NAMED_VALUE = r"(?i)((?:password|passwd|passphrase|pwd|secret|token|api[_-]?key)=)(?:\"[^\"]*\"|[^\s,;&]+)"
_URL_LOGIN = r"(://[^/\s:@]*:)[^/\s@]+@"
"""What is masked in the log: values after `password=` and the like, and passwords in URLs."""


@dataclass(frozen=True)
class OutputRouting:
    """Where the output of the JVM and its Python workers goes: None is the log, a number is a file descriptor."""

    out: LineHandler | int | None = None
    err: LineHandler | None = None
    """Also gets what Python functions print in workers: Spark sends both of their streams here."""


class Jvm:
    """A running JVM with a gateway for PySpark; Ctrl-C does not reach it, and it ends with this process."""

    def __init__(
        self,
        settings: Mapping[str, str],
        log: Path | None,
        scratch: Scratch,
        output: OutputRouting = OutputRouting(),  # noqa: B008 - frozen
        inherited_fds: Sequence[int] = (),
    ) -> None:
        """Start it. Its temporary files, and its log if `log` is None, are in `scratch`, which is removed later."""
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
            self._log_start = _open_log(self.log)
            _silence_refused_queries()
            try:
                self.gateway = self._launch(settings, output, inherited_fds)
            except Exception as error:
                self._drain()
                raise self.start_failure("its JVM ended") from error
        except BaseException:
            self.close(0.0)
            raise

    def start_failure(self, why: str) -> SparkFailed:
        """Return the error of a failed start, with the end of the log."""
        with self.log.open("rb") as content:
            content.seek(self._log_start)
            text = content.read().decode("utf-8", "replace")
        where = f"the whole log is in {self.log}; " if self._log_stays else ""
        hint = f"{where}check --master, --set and the free memory"
        return SparkFailed("Spark could not be started", why=f"{why}{quote_output(text)}", hint=hint)

    def close(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """End it, pass on the rest of its output and remove its temporary files."""
        with self._starting:
            self._closed = True
        if self._process:
            if self._process.stdin:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self.gateway:
            with suppress(Exception):  # not earlier: it would wait for threads that wait for the JVM
                self.gateway.shutdown()
        self._drain()
        self.scratch.remove()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """Close it if it is open; a process that was forked from this one must not."""
        if self._pid == os.getpid():
            self.close(_EXIT_TIMEOUT_S if self.gateway else 0.0)

    def _launch(self, settings: Mapping[str, str], output: OutputRouting, inherited_fds: Sequence[int]) -> Any:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        settings = _with_java_options(settings, self.log, self.scratch)
        # Every account of this machine can read a command line.
        secrets = {key: value for key, value in settings.items() if shown(key, value) != value}
        conf = SparkConf(loadDefaults=False).setAll([item for item in settings.items() if item[0] not in secrets])
        if secrets and (pattern := settings.get(_REDACTION)):  # Spark masks them too, whatever their names are
            conf.set(_REDACTION, "|".join((pattern, *(rf"^\Q{key}\E$" for key in secrets))))
        with ExitStack() as opened:
            log = opened.enter_context(self.log.open("ab")).fileno()
            streams = {"stdout": self._stream(output.out, log, opened), "stderr": self._stream(output.err, log, opened)}
            # A terminal sends Ctrl-C to a whole session: the JVM gets one of its own.
            child = {**streams, "start_new_session": True, "pass_fds": (*inherited_fds, self.scratch.lock_fd)}
            opened.enter_context(self._launcher_in_scratch(settings))
            gateway = launch_gateway(conf, child)
        for key, value in secrets.items():  # Spark reads its settings from these properties
            gateway.jvm.java.lang.System.setProperty(key, value)
        return gateway

    @contextmanager
    def _launcher_in_scratch(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Let PySpark's launcher create its files in the scratch folder and start the JVM through `_started`.

        It takes neither a folder nor variables for the child; to set those of this process would affect its threads.
        """
        from pyspark import java_gateway

        launcher: Any = java_gateway
        before = launcher.tempfile, launcher.Popen
        mkdtemp = partial(tempfile.mkdtemp, dir=self.scratch.folder)
        launcher.tempfile = SimpleNamespace(mkdtemp=mkdtemp, mkstemp=tempfile.mkstemp)
        launcher.Popen = partial(self._started, self.scratch.variables(settings))
        try:
            yield
        finally:
            launcher.tempfile, launcher.Popen = before

    def _started(self, variables: Mapping[str, str], command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._closed:  # this process is exiting, and the scratch folder is removed
                raise InterruptedError
            options["env"] |= variables
            self._process = subprocess.Popen(command, **options)
            return self._process

    def _stream(self, target: LineHandler | int | None, log: int, opened: ExitStack) -> int:
        """Return the descriptor for a stream of the child: of a pipe, if its lines go to a handler."""
        if not callable(target):
            return log if target is None else target
        source, sink = os.pipe()
        opened.callback(os.close, sink)
        pump = threading.Thread(target=_pump, args=(source, target, self.log), name="spark-output", daemon=True)
        pump.start()
        self._pumps.append(pump)
        return sink

    def _drain(self) -> None:
        for pump in self._pumps:
            pump.join(END_TIMEOUT_S)


@contextmanager
def environment(master: str, extra: Mapping[str, str]) -> Iterator[None]:
    """Set the variables that Spark reads at its start; the user's own values win."""
    variables = {"JAVA_HOME": str(_java_home())}
    if is_local(master):
        # On a cluster the workers have their own Python, and an address that others can reach.
        variables |= {
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
        }
    variables |= extra
    with environment_variables(variables):
        yield


def _silence_refused_queries() -> None:
    """Keep PySpark from writing refused queries with Java's stack trace to standard error: they raise errors."""
    from pyspark.logger import PySparkLogger

    if not VERBOSE.value():
        silence_py4j()  # now: a stop comes in the middle of a call
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not VERBOSE.value()


def silence_py4j() -> None:
    """Keep Py4J from writing a traceback for each call that the end of the JVM interrupts."""
    for logger in (logging.getLogger("py4j.clientserver"), logging.getLogger("py4j.java_gateway"), logging.getLogger()):
        logger.addFilter(_is_not_interrupted_call)


def _is_not_interrupted_call(record: logging.LogRecord) -> bool:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    message = record.getMessage()
    if "while executing the Python Proxy" in message:  # a batch that called the JVM after its end
        return not (record.exc_info and isinstance(record.exc_info[1], Py4JNetworkError))
    return not re.search("while sending command|while shutting down connection", message)


def _with_java_options(settings: Mapping[str, str], log: Path, scratch: Scratch) -> dict[str, str]:
    """Return the settings with options of Java for the class archive, a log of limited size and temporary files."""
    log4j = log.with_name(log.name + ".log4j2.properties")
    message = f"%replace{{%replace{{%m%n%ex}}{{{_NAMED_VALUE}}}{{$1***}}}}{{{_URL_LOGIN}}}{{$1***@}}"
    log4j.write_text(_LOG4J.format(log=log, message=message.replace("\\", "\\\\")), "utf-8")
    key = "spark.driver.extraJavaOptions"
    given = settings.get(key, "")
    own_archive = "-XX:ArchiveClassesAtExit" in given or "-XX:SharedArchiveFile" in given
    archive = "" if own_archive else class_archive_options()
    ours = [f"-Dlog4j2.configurationFile={log4j.as_uri()}", scratch.java_options(settings), archive]
    return {**settings, key: " ".join(filter(None, [*ours, given]))}


def _open_log(log: Path) -> int:
    """Create the log's folder and return the size of the log."""
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


def _pump(source: int, handler: LineHandler, log: Path) -> None:
    with os.fdopen(source, "rb") as stream:
        for line in stream:
            if _NOISE.match(text := line.decode("utf-8", "replace").rstrip("\r\n")):
                with log.open("a", encoding="utf-8") as written:
                    written.write(f"{text}\n")
            else:
                handler(text)
