"""The one place that makes a SparkSession.

A Spark session that is opened while other things start, and closed at the end, however that comes.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from millrace.engine.session import shipping
from millrace.engine.session.executors import RemoteExecutorSettings, equip
from millrace.engine.session.jvm import GRACE, Jvm, OutputRouting, environment, hush_py4j
from millrace.engine.session.scratch import Scratch
from millrace.engine.session.spark_conf import is_local, settled_conf, spark_choices
from millrace.errors import InvalidOption, SparkFailed
from millrace.errors.spark_text import java_causes, root_cause
from millrace.services import jars

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_KAFKA = "spark-sql-kafka"
_STRANGER = "provided token to the AccumulatorServer is not correct"
_NOT_READ = "[INVALID_CONF_VALUE"
"""In what Spark says of a setting's value."""
_S3 = "hadoop-aws"
_PYTHONPATHS = ("spark.executorEnv.PYTHONPATH", "spark.yarn.appMasterEnv.PYTHONPATH")
"""Of executors, and of a driver on YARN, which is sent the same archives."""


_opened: list[Jvm] = []
"""The JVM that was started here, if one is: PySpark has at most one in a process."""


def open_session(
    name: str,
    *,
    master: str | None,
    settings: Mapping[str, str],
    log: Path | None = None,
    realtime: bool = False,
    beside: Path | None = None,
    voice: OutputRouting = OutputRouting(),  # noqa: B008 - frozen
    holds: Sequence[int] = (),
    preferred: Mapping[str, str] = MappingProxyType({}),
    jar_sets: Sequence[str] = (),
    travel: RemoteExecutorSettings = RemoteExecutorSettings(),  # noqa: B008 - frozen
) -> SparkSession:
    """Start Spark, here unless a master is named, with what we choose unless `settings` says otherwise.

    `preferred` is what the caller chooses. Where spark-submit has started us, what that was told wins over both.

    Spark's temporary files are beside the log unless TMPDIR is set, and are removed at the end. A session without a
    `log` has that among them.

    `beside` is a folder whose modules functions may import in Spark's Python workers; `holds` are descriptors that stay
    open in the JVM, as those of locks on what it writes to; `jar_sets` are needed besides the connectors.
    """
    told = submitted()
    chosen = spark_choices(
        master=settings.get("spark.master", master), realtime=realtime, given={**preferred, **told, **settings}
    )
    given = settings if is_submitted() else with_connectors(settings, jar_sets)
    picked = settled_conf(chosen, {"spark.app.name": name, **preferred, **told, **given})
    if travel.packages and not is_submitted():
        picked = with_packages(picked)
    variables = {} if beside is None else {"PYTHONPATH": _prepended(beside)}
    warnings.filterwarnings("ignore", module="pyspark")  # about versions of what is installed: not the user's matter
    with environment(picked["spark.master"], variables), signals_kept():
        spark = _session(picked, log, voice, holds)
    if is_local(picked["spark.master"]):
        return spark
    try:
        equip(spark, travel, _shipped(log), beside, send=not is_submitted())
    except BaseException:
        close_session(spark)
        raise
    return spark


def scratch_folder() -> Path | None:
    """Return the folder for temporary files of the JVM that was started here; None if there is no such JVM."""
    return _opened[-1].scratch.folder if _opened else None


def close_session(spark: SparkSession, patience: float = GRACE, *, hurried: bool = False) -> None:
    """Stop Spark and end its JVM, killed when it takes too long or nobody waits; then its log is complete."""
    if hurried:
        hush_py4j()
        hush_accumulators(spark.sparkContext)
        _end_jvm(0.0)
        return
    hush_accumulators(spark.sparkContext)
    try:
        spark.stop()
    except Exception:  # noqa: S110 - its JVM is gone; whoever works with the session has been told
        pass
    finally:
        _end_jvm(patience)


def hush_accumulators(context: SparkContext) -> None:
    """Their server writes a traceback when the JVM is gone in the middle of an update."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _leave_strangers_out(context: SparkContext) -> None:
    """Their server also writes a traceback for each who comes to its port and is not the JVM."""
    server = context._accumulatorServer
    tell: Callable[..., None] = server.handle_error

    def handle_error(*request: object) -> None:
        error = sys.exception()
        if isinstance(error, OSError | EOFError | UnicodeDecodeError) or _STRANGER in str(error):
            _log.debug("somebody who is not Spark's JVM came to the port of accumulators", exc_info=True)
        else:
            tell(*request)  # an accumulator of the user's that fails

    server.handle_error = handle_error


def is_submitted() -> bool:
    """Whether spark-submit has started this process: there is a JVM, and executors are sent what it was given."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted() -> dict[str, str]:
    """What spark-submit was told, by `millrace submit` or by its own files; nothing where it has not started us."""
    if not is_submitted():
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # with the JVM that has started us, and ends when we do
    return dict(SparkConf(loadDefaults=True).getAll())


def with_connectors(settings: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """The settings, and our jars for Kafka and Avro beside the user's own; those of the user's for the same win."""
    named = f"{settings.get('spark.jars', '')} {settings.get('spark.jars.packages', '')}"
    own = {"spark": _KAFKA, "s3": _S3}
    sets = [name for name in ("spark", *more) if own.get(name, name) not in named]
    ours = [jars.ensure(name).classpath().replace(":", ",") for name in sets]
    every = ",".join(filter(None, [*ours, settings.get("spark.jars")]))
    return {**settings, "spark.jars": every} if every else dict(settings)


def with_packages(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with the packages of this Python sent along; what the user sends goes too."""
    sent = f"{shipping.packages_zip()}#{shipping.UNPACKED}"
    every = ",".join(filter(None, [settings.get("spark.archives"), sent]))
    paths = {key: os.pathsep.join(filter(None, [settings.get(key), shipping.UNPACKED])) for key in _PYTHONPATHS}
    return {**settings, "spark.archives": every, **paths}


def _session(settings: Mapping[str, str], log: Path | None, voice: OutputRouting, holds: Sequence[int]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._gateway is None:  # else this process has a JVM, of ours or of the program that we are in
        scratch = Scratch(None if log is None else log.absolute().parent)
        jvm = Jvm(settings, log, scratch, voice, holds)
        SparkContext._ensure_initialized(gateway=jvm.gateway)
        _opened.append(jvm)
    conf = SparkConf(loadDefaults=is_submitted())
    for key, value in settings.items():
        conf.set(key, value)
    try:
        context = SparkContext(conf=conf)
        _leave_strangers_out(context)
        spark = SparkSession(context)
        try:
            spark.conf.get("spark.sql.session.timeZone")  # it reads all now: else a wrong one fails the first query
        except Exception:
            spark.stop()
            raise
        return spark
    except Exception as error:
        if any(_NOT_READ in cause.message for cause in java_causes(error)):
            unreadable = InvalidOption(root_cause(error), hint="look at what --set gives")
            _end_jvm()
            raise unreadable from error
        if not _opened:
            raise SparkFailed("Spark could not be started", why=root_cause(error)) from error
        failure = _opened[-1].failed(root_cause(error))
        _end_jvm()
        raise failure from error


def _end_jvm(patience: float = GRACE) -> None:
    from pyspark import SparkContext

    while _opened:
        SparkContext._gateway = SparkContext._jvm = None  # so that the next session starts a JVM of its own
        _opened.pop().close(patience)


def _shipped(log: Path | None) -> Path:
    """Where what executors are sent lies, for as long as the session lives."""
    if log is not None:
        return log.absolute().parent / "shipped"
    return scratch_folder() or Path(tempfile.mkdtemp(prefix="millrace-shipped-"))


def _prepended(folder: Path) -> str:
    before = os.environ.get("PYTHONPATH")
    return f"{folder}{os.pathsep}{before}" if before else str(folder)


@contextmanager
def signals_kept() -> Iterator[None]:
    """PySpark takes Ctrl-C for itself, to cancel jobs; here somebody else may have plans for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def opened_aside(open_session: Callable[[], SparkSession]) -> Iterator[Future[SparkSession]]:
    """The session to be. Whoever interrupts is not held up: what is cut off now is run again at the next start."""
    opening: Future[SparkSession] = Future()
    # A daemon: a JVM that is still starting when we are interrupted ends with this process, which need not wait for it.
    threading.Thread(target=_settle, args=(opening, open_session), name="session", daemon=True).start()
    hurried = False
    try:
        yield opening
    except KeyboardInterrupt:
        hurried = True
        raise
    finally:
        if (opening.done() or not hurried) and opening.exception() is None:
            close_session(opening.result(), hurried=hurried)


def _settle(opening: Future[SparkSession], open_session: Callable[[], SparkSession]) -> None:
    try:
        opening.set_result(open_session())
    except BaseException as error:
        opening.set_exception(error)
