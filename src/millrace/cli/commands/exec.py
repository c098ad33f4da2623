"""`millrace exec SCRIPT.py`: run any PySpark program with connectors and settings, and show its queries."""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.app import OUTPUT_PANEL
from millrace.cli.options import DataFolder, SparkOptions
from millrace.cli.output import err, print_line
from millrace.cli.run_options import DashboardOptions, served_dashboard, with_kafka
from millrace.cli.services import prepare_spark
from millrace.errors import FileUnusable, MillraceError
from millrace.settings import KAFKA, KAFKA_CONFIG, KAFKA_DATA, STATE, VERBOSE

if TYPE_CHECKING:
    from millrace.engine.programs.launcher import ProgramLauncher
    from millrace.engine.session.jvm import OutputRouting

_JAVA_FRAME = re.compile(
    r"^\s+at [\w.$]+\(.*$|^\s+at [\w.$/<>]+.*\((?:.+\.(?:java|scala):\d+|Native Method|Unknown Source)\)$"
)
_MORE_JAVA_FRAMES = re.compile(r"^\s+\.\.\. \d+ (?:more|elided)$")

_EXIT_TIMEOUT_S = 2.0
"""How long a program may take to end by itself after its queries were stopped."""

# Everything after the script's name belongs to the script, even if it looks like an option of ours.
CONTEXT = {"allow_interspersed_args": False}


def exec_(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The program: a Python file.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]…", help="Passed to the program as they are.")
    ] = None,
    *,
    log: Annotated[
        Path | None, OUTPUT_PANEL.option("Spark's log.", "FILE", show_default=".millrace/exec/SCRIPT.log")
    ] = None,
    spark: SparkOptions,
    data: DataFolder = None,
    dashboard: DashboardOptions,
) -> None:
    """Run a PySpark program, unchanged, with the Kafka connector and good settings; show its queries live.

    The master and the settings that the program chooses itself take precedence.
    """
    from millrace.cli.live_view import dashboard_figures, live, status_figures
    from millrace.engine.programs.launcher import ProgramLauncher
    from millrace.telemetry.query_status import RunStatus

    settings, server_options = spark.settings(), dashboard.server_options()
    if not script.exists():
        raise FileUnusable(f"there is no file {script}", hint="name a Python program")
    if not os.access(script, os.R_OK):
        raise FileUnusable(f"{script} cannot be read", hint="check its permissions")
    prepare_spark()
    _export_kafka(data)
    run_status = RunStatus()
    figures = [status_figures(run_status)]
    log_file = log or STATE.value() / "exec" / f"{script.stem}.log"
    with ExitStack() as stack:

        def serve() -> None:
            from millrace.clients.kafka.cluster import Cluster
            from millrace.dashboard.run_page import page_of_program

            kafka, master = KAFKA.value(), spark.master
            # Of any other Kafka that the program uses, the dashboard shows what Spark knows.
            cluster = Cluster.at(kafka, KAFKA_CONFIG.value(), environment=True) if kafka else None
            page = page_of_program(script, run_status, server_options, master=master, spark=settings, kafka=kafka)
            stack.enter_context(served_dashboard(page, open_=dashboard.open_))
            stack.enter_context(with_kafka(page, (lambda: cluster) if cluster else None))
            figures.append(dashboard_figures(page.channels))

        def current_figures() -> Any:
            return figures[-1]()

        launcher = ProgramLauncher(run_status, master=spark.master, settings=settings, log=log_file, output=_routing())
        # A program that never starts Spark has no use for a dashboard.
        launcher.before_launch = serve if dashboard.dashboard else launcher.before_launch
        with live(run_status, current_figures), launcher, _StopSignals(launcher) as signals:
            _run(script, arguments or [], signals)


def _export_kafka(data: str | None) -> None:
    """Put the address of our own Kafka into the environment, if one runs here and no other was named."""
    from millrace.services import kafka as service

    folder = KAFKA_DATA.value(data)
    layout = None if os.environ.get(KAFKA.variable) else service.running(folder)
    if layout:
        os.environ[KAFKA.variable] = service.cluster_of(folder, layout).bootstrap


def _routing() -> OutputRouting:
    """Return where Spark's output goes: it is the program's, and on a terminal it is printed above the live view."""
    from millrace.engine.session.jvm import OutputRouting

    shared = sys.stdout.isatty() and err().is_terminal
    stdout = sys.__stdout__.fileno() if sys.__stdout__ else 1
    return OutputRouting(_print_above if shared else stdout, _print_above if err().is_terminal else _print_to_stderr)


def _print_above(line: str) -> None:
    err().out(line, highlight=False)


def _print_to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class _StopSignals:
    """Ctrl-C and SIGTERM: stop the queries first, then interrupt the program; a second signal interrupts at once.

    A program mostly waits for an answer of the JVM. If it were interrupted there, Py4J could not stop queries any more.
    """

    def __init__(self, launcher: ProgramLauncher) -> None:
        self.number: int | None = None
        self._launcher = launcher
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> _StopSignals:
        handled = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: object) -> None:
        first, self.number = self.number is None, self.number or number
        if first and self._launcher.started:
            threading.Thread(target=self._stop, args=(number,), name="stopping", daemon=True).start()
            return
        from millrace.engine.session.jvm import silence_py4j

        silence_py4j()
        raise KeyboardInterrupt

    def _stop(self, number: int) -> None:
        self._launcher.stop_queries()
        # Most programs wait for their queries, and end by themselves now.
        self._ended.wait(_EXIT_TIMEOUT_S)
        with self._lock:
            if not self._ended.is_set():
                os.kill(os.getpid(), number)


_KAFKA_UTILS_MODULE = "pyspark.streaming.kafka"
"""Programs for DStreams import KafkaUtils from this module, which PySpark no longer has."""
_KINESIS_UTILS_MODULE = "pyspark.streaming.kinesis"
"""They import KinesisUtils from this module, which calls Java classes that Spark no longer has."""


def _run(script: Path, arguments: list[str], signals: _StopSignals) -> None:
    """Run the program as Python would; exit with its exit code."""
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.absolute().parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except KeyboardInterrupt:
        pass
    except MillraceError:
        raise
    except Exception as error:
        if signals.number is None:
            from millrace.engine.programs.dstream_monitor import explain_dstream_error

            if explained := explain_dstream_error(error):
                raise explained from error
            err().out("".join(_trace(error, script)).rstrip("\n"), highlight=False)
            if hint := _import_instead(error):
                print_line(hint)
            raise SystemExit(1) from None
    if signals.number is not None:
        raise SystemExit(128 + signals.number)


def _import_instead(error: Exception) -> str | None:
    """Return what a program for DStreams should import, if that is why it failed."""
    if isinstance(error, ModuleNotFoundError) and error.name == _KAFKA_UTILS_MODULE:
        return "PySpark has dropped KafkaUtils; import it from here: from millrace.dstreams import KafkaUtils"
    if isinstance(error, TypeError) and "JavaPackage" in str(error) and _KINESIS_UTILS_MODULE in sys.modules:
        return "Spark 4 has no receiver for Kinesis; import it from here: from millrace.dstreams import KinesisUtils"
    return None


def _trace(error: Exception, script: Path) -> Iterator[str]:
    """Return the program's traceback without our frames and, unless --verbose is given, without those of Java."""
    shown = traceback.TracebackException.from_exception(error)
    own = [number for number, frame in enumerate(shown.stack) if frame.filename == str(script)]
    if own:
        del shown.stack[: own[0]]
    elif isinstance(error, SyntaxError):
        shown.stack.clear()
    for text in shown.format():
        for line in text.splitlines():
            if VERBOSE.value() or not (_JAVA_FRAME.match(line) or _MORE_JAVA_FRAMES.match(line)):
                yield f"{line}\n"
