"""Opens and closes the Spark session of a run; no other module creates one.

- `open_session` starts Spark's JVM with our settings, and equips executors on other machines.
- `open_in_background` opens a session while other things start, and closes it at the end in any case.
- `close_session` stops Spark and its JVM, and removes its temporary files.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from millrace.engine.session import shipping
from millrace.engine.session.executors import RemoteExecutorSettings, equip_executors
from millrace.engine.session.jvm import END_TIMEOUT_S, Jvm, environment, silence_py4j
from millrace.engine.session.scratch import Scratch
from millrace.engine.session.spark_conf import is_local, merge_conf, spark_choices
from millrace.engine.session.worker_host import WorkerHost
from millrace.errors import InvalidOption, SparkFailed
from millrace.errors.spark_text import java_causes, root_cause
from millrace.services import jars

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_KAFKA = "spark-sql-kafka"
_FOREIGN_CONNECTION = "provided token to the AccumulatorServer is not correct"
_INVALID_VALUE = "[INVALID_CONF_VALUE"
"""In Spark's text about a setting whose value it cannot read."""
_S3 = "hadoop-aws"
_PYTHONPATHS = ("spark.executorEnv.PYTHONPATH", "spark.yarn.appMasterEnv.PYTHONPATH")
"""Of executors, and of a driver on YARN, which gets the same archives."""

_opened: list[Jvm] = []
"""The JVM that this process has started, if any: PySpark has at most one in a process."""
_hosts: list[WorkerHost] = []
"""The host of its Python processes, if it has one."""


def open_session(
    name: str,
    *,
    master: str | None,
    settings: Mapping[str, str],
    log: Path | None = None,
    realtime: bool = False,
    module_folder: Path | None = None,
    inherited_fds: Sequence[int] = (),
    preferred: Mapping[str, str] = MappingProxyType({}),
    jar_sets: Sequence[str] = (),
    remote_executors: RemoteExecutorSettings = RemoteExecutorSettings(),  # noqa: B008 - frozen
    forks_workers: bool = False,
) -> SparkSession:
    """Start Spark on this machine, or on `master`.

    The user's `settings` win over those of spark-submit, these over `preferred`, and these over our choices.

    - `log`: the log file. Spark's temporary files are beside it unless TMPDIR is set, and removed at the end. Without a
      `log` it is one of them.
    - `module_folder`: a folder whose modules can be imported in Spark's Python workers.
    - `inherited_fds`: descriptors that stay open in the JVM, such as those of locks on what it writes to.
    - `jar_sets`: jars that are needed besides those of the connectors.
    - `forks_workers`: Python processes of Spark are forked from one that has loaded what they need.
    """
    defaults = {**preferred, **submitted_conf()}
    master = settings.get("spark.master", master)
    chosen = spark_choices(master=master, realtime=realtime, given={**defaults, **settings})
    given = settings if is_submitted() else with_connectors(settings, jar_sets)
    conf = merge_conf(chosen, {"spark.app.name": name, **defaults, **given})
    if remote_executors.packages and not is_submitted():
        conf = with_packages(conf)
    variables = {}
    if module_folder is not None:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(module_folder), os.environ.get("PYTHONPATH")]))
    scratch = _new_scratch(log)
    if scratch and forks_workers and is_local(conf["spark.master"]) and _is_own_python():
        variables |= _host_workers(scratch)
    warnings.filterwarnings("ignore", module="pyspark")  # about versions of packages, which the user cannot change
    try:
        with environment(conf["spark.master"], variables), keep_signal_handlers():
            spark = _session(conf, log, scratch, inherited_fds)
    except BaseException:
        _end_hosts()
        if scratch and not _opened:
            scratch.remove()
        raise
    if is_local(conf["spark.master"]):
        return spark
    try:
        equip_executors(spark, remote_executors, _shipping_folder(log), module_folder, send=not is_submitted())
    except BaseException:
        close_session(spark)
        raise
    return spark


def _new_scratch(log: Path | None) -> Scratch | None:
    """Return a folder for the temporary files of a new JVM; None if there is one, ours or of the program around us."""
    from pyspark import SparkContext

    return Scratch(None if log is None else log.absolute().parent) if SparkContext._gateway is None else None


def _is_own_python() -> bool:
    """Return whether Spark's Python is this one: PYSPARK_PYTHON may name another, or one in another environment."""
    own, chosen = Path(sys.executable), shutil.which(os.environ.get("PYSPARK_PYTHON", sys.executable))
    return chosen is not None and Path(chosen).parent == own.parent and own.samefile(chosen)


def _host_workers(scratch: Scratch) -> dict[str, str]:
    """Start a host for Python processes and return the variables that lead to it; empty if there can be none."""
    try:
        host = WorkerHost(scratch.folder)
    except OSError as error:
        _log.debug("every Python process of Spark loads what it needs itself: %s", error)
        return {}
    _hosts.append(host)
    return host.variables


def scratch_folder() -> Path | None:
    """Return the folder for temporary files of the JVM that was started here; None if there is no such JVM."""
    return _opened[-1].scratch.folder if _opened else None


def close_session(spark: SparkSession, timeout_s: float = END_TIMEOUT_S, *, at_once: bool = False) -> None:
    """Stop Spark and its JVM, which is killed after the timeout, or `at_once`; its log is complete then."""
    silence_accumulators(spark.sparkContext)
    if at_once:
        silence_py4j()
        _end_jvm(0.0)
        return
    try:
        with suppress(Exception):  # its JVM is gone, which the queries have reported
            spark.stop()
    finally:
        _end_jvm(timeout_s)


def silence_accumulators(context: SparkContext) -> None:
    """Keep the server of accumulators from writing a traceback if the JVM ends during an update."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _silence_foreign_connections(context: SparkContext) -> None:
    """Keep the server of accumulators from writing a traceback for connections that are not the JVM's."""
    server = context._accumulatorServer
    write_traceback: Callable[..., None] = server.handle_error

    def handle_error(*request: object) -> None:
        error = sys.exception()
        if isinstance(error, OSError | EOFError | UnicodeDecodeError) or _FOREIGN_CONNECTION in str(error):
            _log.debug("a connection to the port of accumulators was not the JVM's", exc_info=True)
        else:
            write_traceback(*request)  # an accumulator of the user that fails

    server.handle_error = handle_error


def is_submitted() -> bool:
    """Return whether spark-submit has started this process: then there is a JVM, and spark-submit ships the files."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_conf() -> dict[str, str]:
    """Return the settings that spark-submit got; empty if it has not started this process."""
    if not is_submitted():
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # with the JVM that has started us
    return dict(SparkConf(loadDefaults=True).getAll())


def with_connectors(settings: Mapping[str, str], jar_sets: Sequence[str] = ()) -> dict[str, str]:
    """Return the settings with the jars of our connectors, except those for which the user names jars."""
    named = f"{settings.get('spark.jars', '')} {settings.get('spark.jars.packages', '')}"
    packages = {"spark": _KAFKA, "s3": _S3}
    needed = [name for name in ("spark", *jar_sets) if packages.get(name, name) not in named]
    paths = [jars.ensure(name).classpath().replace(":", ",") for name in needed]
    all_jars = ",".join(filter(None, [*paths, settings.get("spark.jars")]))
    return {**settings, "spark.jars": all_jars} if all_jars else dict(settings)


def with_packages(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with an archive of this Python's packages for the executors."""
    archive = f"{shipping.packages_zip()}#{shipping.UNPACKED}"
    archives = ",".join(filter(None, [settings.get("spark.archives"), archive]))
    paths = {key: os.pathsep.join(filter(None, [settings.get(key), shipping.UNPACKED])) for key in _PYTHONPATHS}
    return {**settings, "spark.archives": archives, **paths}


def _session(
    settings: Mapping[str, str], log: Path | None, scratch: Scratch | None, inherited_fds: Sequence[int]
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if scratch:
        jvm = Jvm(settings, log, scratch, inherited_fds=inherited_fds)
        SparkContext._ensure_initialized(gateway=jvm.gateway)
        _opened.append(jvm)
    try:
        context = SparkContext(conf=SparkConf(loadDefaults=is_submitted()).setAll(list(settings.items())))
        _silence_foreign_connections(context)
        spark = SparkSession(context)
        try:
            spark.conf.get("spark.sql.session.timeZone")  # reads all settings: else a wrong one fails the first query
        except Exception:
            spark.stop()
            raise
        return spark
    except Exception as error:
        if any(_INVALID_VALUE in cause.message for cause in java_causes(error)):
            invalid = InvalidOption(root_cause(error), hint="check the values of --set")
            _end_jvm()
            raise invalid from error
        if not _opened:
            raise SparkFailed("Spark could not be started", why=root_cause(error)) from error
        failure = _opened[-1].start_failure(root_cause(error))
        _end_jvm()
        raise failure from error


def _end_jvm(timeout_s: float = END_TIMEOUT_S) -> None:
    from pyspark import SparkContext

    while _opened:
        SparkContext._gateway = SparkContext._jvm = None  # so that the next session starts a JVM of its own
        _opened.pop().close(timeout_s)
    _end_hosts()


def _end_hosts() -> None:
    while _hosts:
        _hosts.pop().close()


def _shipping_folder(log: Path | None) -> Path:
    """Return the folder for the files that executors fetch while the session lives."""
    if log is not None:
        return log.absolute().parent / "shipped"
    return scratch_folder() or Path(tempfile.mkdtemp(prefix="millrace-shipped-"))


@contextmanager
def keep_signal_handlers() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which PySpark replaces by one that cancels jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def open_in_background(open_session: Callable[[], SparkSession]) -> Iterator[Future[SparkSession]]:
    """Open a session in a thread and close it at the end; after Ctrl-C, kill its JVM instead of waiting."""
    opening: Future[SparkSession] = Future()

    def open_into_future() -> None:
        try:
            opening.set_result(open_session())
        except BaseException as error:
            opening.set_exception(error)

    # A daemon: a JVM that is still starting ends with this process, which does not wait for it after Ctrl-C.
    threading.Thread(target=open_into_future, name="session", daemon=True).start()
    interrupted = False
    try:
        yield opening
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if (opening.done() or not interrupted) and opening.exception() is None:
            close_session(opening.result(), at_once=interrupted)
