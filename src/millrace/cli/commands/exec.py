"""`millrace exec SCRIPT.py`: any PySpark program, with connectors and settings in place and its queries in view."""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import setting_option, spark_settings
from millrace.cli.output import err, say
from millrace.cli.run_options import (
    LOCAL,
    AllTopics,
    Dashboard,
    Host,
    Open,
    Port,
    ReadOnly,
    page_options,
    require_page,
    served_page,
    with_kafka,
)
from millrace.cli.services import prepare_spark
from millrace.errors import FileUnusable, MillraceError
from millrace.settings import KAFKA, KAFKA_CONFIG, KAFKA_DATA, STATE, VERBOSE

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.engine.programs.launcher import ProgramLauncher
    from millrace.engine.session.jvm import OutputRouting

_JAVA = re.compile(
    r"^\s+at [\w.$]+\(.*$|^\s+at [\w.$/<>]+.*\((?:.+\.(?:java|scala):\d+|Native Method|Unknown Source)\)$"
)
_MORE = re.compile(r"^\s+\.\.\. \d+ (?:more|elided)$")

_MOMENT = 2.0

# Everything after the script's name belongs to the script, also what looks like an option of ours.
CONTEXT = {"allow_interspersed_args": False}


def exec_(
    script: Annotated[Path, typer.Argument(help="The program: a Python file.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]…", help="Handed to the program as they are.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Where Spark runs; the program's own choice wins.", show_default="local[*]"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A Spark setting; the program's own wins. May be repeated."),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="Spark's log.", show_default=".millrace/exec/SCRIPT.log"),
    ] = None,
    dashboard: Dashboard = True,
    port: Port = None,
    host: Host = LOCAL,
    read_only: ReadOnly = False,
    all_topics: AllTopics = False,
    open_: Open = False,
    data: Annotated[str | None, setting_option(KAFKA_DATA, "DIR", "--data")] = None,
) -> None:
    """Run a PySpark program, unchanged, with the Kafka connector and good settings in place; shows its queries live."""
    from millrace.cli.live_view import live, of_board, of_page
    from millrace.engine.programs.launcher import ProgramLauncher
    from millrace.telemetry.query_status import RunStatus

    settings = spark_settings(set_)
    require_page(dashboard, port=port is not None, host=host != LOCAL, all_topics=all_topics, open=open_)
    options = page_options(port, host, read_only=read_only, all_topics=all_topics)
    _require(script)
    prepare_spark()
    _name_kafka(data)
    run_status = RunStatus()
    figures = [of_board(run_status)]
    written = log or STATE.value() / "exec" / f"{script.stem}.log"
    with ExitStack() as opened:

        def serve() -> None:
            from millrace.dashboard.run_page import page_of_program

            kafka = KAFKA.value()
            page = page_of_program(script, run_status, options, master=master, spark=settings, kafka=kafka)
            opened.enter_context(served_page(page, open_=open_))
            opened.enter_context(with_kafka(page, _kafka()))
            figures.append(of_page(page.channels))

        def known() -> Sequence[Mapping[str, Any]]:
            return figures[-1]()

        guest = ProgramLauncher(run_status, master=master, settings=settings, log=written, output=_voice())
        # A program that never starts Spark has no use for a page.
        guest.before_launch = serve if dashboard else guest.before_launch
        with live(run_status, known), guest, _Asked(guest) as asked:
            _run(script, arguments or [], asked)


def _kafka() -> Callable[[], Cluster] | None:
    """The Kafka that the program was told of; it may use another one, of which the page then knows what Spark tells."""
    from millrace.clients.kafka.cluster import Cluster

    address = KAFKA.value()
    if not address:
        return None
    cluster = Cluster.at(address, KAFKA_CONFIG.value(), environment=True)
    return lambda: cluster


def _require(script: Path) -> None:
    if not script.exists():
        raise FileUnusable(f"there is no file {script}", hint="name a Python program")
    if not os.access(script, os.R_OK):
        raise FileUnusable(f"{script} cannot be read", hint="check its rights")


def _name_kafka(data: str | None) -> None:
    """Tell the program where our own Kafka is, when one runs here and no other was named."""
    from millrace.services import kafka as service

    folder = KAFKA_DATA.value(data)
    layout = None if os.environ.get(KAFKA.variable) else service.running(folder)
    if layout:
        os.environ[KAFKA.variable] = service.cluster_of(folder, layout).bootstrap


def _voice() -> OutputRouting:
    """What Spark prints is the program's output; on a terminal it goes above the live view, by way of us."""
    from millrace.engine.session.jvm import OutputRouting

    shared = sys.stdout.isatty() and err().is_terminal
    return OutputRouting(_above if shared else _stdout(), _above if err().is_terminal else _stderr)


def _above(line: str) -> None:
    err().out(line, highlight=False)


def _stdout() -> int:
    return sys.__stdout__.fileno() if sys.__stdout__ else 1


def _stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class _Asked:
    """Ctrl-C and SIGTERM: the queries are stopped first, then the program is interrupted; twice, and it is at once.

    A program mostly waits for the JVM to answer. Interrupted there, Py4J would be of no use for stopping queries.
    """

    def __init__(self, guest: ProgramLauncher) -> None:
        self.number: int | None = None
        self._guest = guest
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> _Asked:
        wanted = [one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in wanted}
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: object) -> None:
        first, self.number = self.number is None, self.number or number
        if first and self._guest.started:
            threading.Thread(target=self._stop, args=(number,), name="stopping", daemon=True).start()
            return
        from millrace.engine.session.jvm import silence_py4j

        silence_py4j()
        raise KeyboardInterrupt

    def _stop(self, number: int) -> None:
        self._guest.stop_queries()
        # Most programs wait for their queries, and end by themselves now.
        self._over.wait(_MOMENT)
        with self._lock:
            if not self._over.is_set():
                os.kill(os.getpid(), number)


_DROPPED = "pyspark.streaming.kafka"
"""Where programs of the RDD era import KafkaUtils from."""
_HOLLOW = "pyspark.streaming.kinesis"
"""Where they import KinesisUtils from: it is still there, and calls what is not."""


def _run(script: Path, arguments: list[str], asked: _Asked) -> None:
    """Run the program as Python would; its exit code is ours."""
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.absolute().parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except KeyboardInterrupt:
        pass
    except MillraceError:
        raise
    except Exception as error:
        if asked.number is None:
            from millrace.engine.programs.dstream_errors import explain_dstream_error

            if told := explain_dstream_error(error):
                raise told from error
            err().out("".join(_trace(error, script)).rstrip("\n"), highlight=False)
            if hint := _import_instead(error):
                say(hint)
            raise SystemExit(1) from None
    if asked.number is not None:
        raise SystemExit(128 + asked.number)


def _import_instead(error: Exception) -> str | None:
    """What a program of the RDD era should import, where that is why it failed."""
    if isinstance(error, ModuleNotFoundError) and error.name == _DROPPED:
        return "PySpark has dropped KafkaUtils; it is here: from millrace.dstreams import KafkaUtils"
    if isinstance(error, TypeError) and "JavaPackage" in str(error) and _HOLLOW in sys.modules:
        return "Spark 4 has no receiver for Kinesis; there is one here: from millrace.dstreams import KinesisUtils"
    return None


def _trace(error: Exception, script: Path) -> Iterator[str]:
    """The program's own traceback: nothing of ours above it and, unless all is asked for, nothing of Java's in it."""
    told = traceback.TracebackException.from_exception(error)
    own = [number for number, frame in enumerate(told.stack) if frame.filename == str(script)]
    if own:
        del told.stack[: own[0]]
    elif isinstance(error, SyntaxError):
        told.stack.clear()
    for text in told.format():
        for line in text.splitlines():
            if VERBOSE.value() or not (_JAVA.match(line) or _MORE.match(line)):
                yield f"{line}\n"
