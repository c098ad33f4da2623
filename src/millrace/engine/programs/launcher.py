"""Runs a plain PySpark program in this process (`millrace exec`).

- Its Spark starts with our connectors and settings, whichever call of the program starts it.
- Its queries and DStreams are reported to the run status.
- At the end they are stopped, and so are Spark and its JVM.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.core import context as pyspark_context
from pyspark.sql import SparkSession
from pyspark.streaming import StreamingContext

from millrace.engine.programs.dstream_monitor import NAME, DStreamMonitor, stop_context
from millrace.engine.session.jvm import Jvm, OutputRouting, environment
from millrace.engine.session.scratch import Scratch
from millrace.engine.session.session import keep_signal_handlers, silence_accumulators, with_connectors
from millrace.engine.session.spark_conf import AUTHENTICATED, LOCAL, in_one_jvm, merge_conf, speed_choices
from millrace.engine.supervision.monitor import QueryMonitor
from millrace.engine.supervision.stopping import stop_all
from millrace.settings import STATE
from millrace.telemetry.query_status import RunStatus

_POLL_INTERVAL_S = 0.1
_BATCH_TIMEOUT_S = 10.0
_STOP_TIMEOUT_S = 20.0


class ProgramLauncher:
    """While this is open, PySpark starts Spark with our settings, and its queries and DStreams are reported.

    The program's own settings win over `settings`, as they do with spark-submit, and those win over our choices.
    """

    def __init__(
        self,
        run_status: RunStatus,
        *,
        master: str | None,
        settings: Mapping[str, str],
        log: Path,
        output: OutputRouting,
    ):
        self._run_status, self._log, self._output = run_status, log, output
        self._settings = {**({"spark.master": master} if master else {}), **settings}
        self._opened = ExitStack()
        self._jvms: list[Jvm] = []
        self._dstream_monitors: list[DStreamMonitor] = []
        self._stop_timed_out = False
        self.before_launch: Callable[[], None] = lambda: None
        """Called before the program starts Spark for the first time."""
        self._stop = threading.Event()
        self._monitoring = threading.Thread(target=self._monitor_sessions, name="program-monitor", daemon=True)

    def __enter__(self) -> ProgramLauncher:
        # The one function with which PySpark starts a JVM. Variables for spark-submit could not redirect its output.
        self._replace(pyspark_context, "launch_gateway", self._launch)
        # PySpark's handler of Ctrl-C calls the JVM in the middle of another call, which fails with pages of text.
        start: Callable[..., None] = SparkContext._do_init
        self._replace(SparkContext, "_do_init", keep_signal_handlers()(_with_authentication(start)))
        self._replace(StreamingContext, "start", self._with_monitor(StreamingContext.start))
        self._replace(StreamingContext, "stop", self._with_notice(StreamingContext.stop))
        self._monitoring.start()
        return self

    def __exit__(self, *_: object) -> None:
        # In a thread of its own: this one may have been interrupted while it waited for an answer of the JVM.
        _run_in_thread(self._end, "ending")
        self._opened.close()

    @property
    def started(self) -> bool:
        """Whether the program has started Spark."""
        return bool(self._jvms)

    def stop_queries(self) -> None:
        """Stop the queries and DStreams, and wait for them for a limited time."""
        _run_in_thread(self._stop_queries, "stopping", _STOP_TIMEOUT_S)

    def _replace(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        self._opened.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, replacement)

    def _launch(self, conf: Any = None, popen_kwargs: Any = None) -> Any:
        del popen_kwargs
        if not self._jvms:
            self.before_launch()
        given = self._settings | ({} if conf is None else dict(conf.getAll()))
        master = given.get("spark.master", LOCAL)
        if "spark-sql-kafka" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
            given = with_connectors(given)
        self._opened.enter_context(environment(master, {}))
        merged = merge_conf(speed_choices(master=master), given)
        jvm = Jvm(merged, self._log, Scratch(STATE.value() / "exec"), self._output)
        self._jvms.append(jvm)
        return jvm.gateway

    def _with_monitor(self, start: Callable[[StreamingContext], None]) -> Callable[[StreamingContext], None]:
        """Return a start of a StreamingContext, also of one from a checkpoint, with a monitor of ours."""

        def start_with_monitor(context: StreamingContext) -> None:
            if str(context._jssc.getState().toString()) != "INITIALIZED":
                start(context)  # which raises
                return
            name = f"{NAME} {len(self._dstream_monitors) + 1}" if self._dstream_monitors else NAME
            monitor = DStreamMonitor(context, name, self._run_status)
            monitor.listen()
            recovers = monitor.recovers  # then its start creates the batches of the downtime, which may take long
            if not recovers:
                start(context)
            self._dstream_monitors.append(monitor)
            monitor.report()
            if recovers:
                start(context)

        return start_with_monitor

    def _with_notice(self, stop: Callable[..., None]) -> Callable[..., None]:
        """Return a stop of a StreamingContext of which its monitor learns before."""

        @wraps(stop)
        def stop_with_notice(context: StreamingContext, *arguments: Any, **named: Any) -> None:
            for monitor in self._dstream_monitors:
                monitor.stop_requested(context)
            stop(context, *arguments, **named)

        return stop_with_notice

    def _stop_queries(self) -> None:
        self._stop_timed_out = not stop_context(0.0 if self._stop_timed_out else _BATCH_TIMEOUT_S)
        spark = _open_session()
        if spark is not None:
            with suppress(Exception):  # the JVM may have died, which the monitors report
                stop_all(spark.streams.active, _BATCH_TIMEOUT_S)

    def _monitor_sessions(self) -> None:
        """Monitor each session that the program opens, until the end."""
        while not self._stop.wait(_POLL_INTERVAL_S):
            spark = _open_session()
            if spark is None:
                continue
            with QueryMonitor(spark, self._run_status) as monitor:
                while not monitor.has_ended and not self._stop.wait(_POLL_INTERVAL_S):
                    pass

    def _end(self) -> None:
        self.stop_queries()
        self._stop.set()
        self._monitoring.join()
        for monitor in self._dstream_monitors:
            if self._stop_timed_out:
                monitor.interrupted()
            monitor.close()
        context = SparkContext._active_spark_context  # programs with DStreams have one without a session
        spark = _open_session() or context
        if context is not None:
            silence_accumulators(context)
        if spark is not None:
            with suppress(Exception):
                spark.stop()
        for jvm in self._jvms:
            jvm.close()


def _run_in_thread(function: Callable[[], None], name: str, timeout_s: float | None = None) -> None:
    thread = threading.Thread(target=function, name=name, daemon=True)
    thread.start()
    thread.join(timeout_s)


def _open_session() -> SparkSession | None:
    """Return the session of this process, if one is open."""
    spark: SparkSession | None = SparkSession._instantiatedSession
    return spark if spark is not None and spark.sparkContext._jsc is not None else None


def _with_authentication(start: Callable[..., None]) -> Callable[..., None]:
    """Return a start of a SparkContext whose ports need a secret if it is on this machine, which is known only now.

    On a cluster the program must choose a secret itself.
    """

    @wraps(start)
    def start_with_authentication(context: SparkContext, master: str | None, *arguments: Any, **named: Any) -> None:
        # Spark reads its defaults from properties of the JVM; the program's own settings win over them.
        properties: Any = context._jvm.java.lang.System
        conf = next((argument for argument in (*arguments, *named.values()) if isinstance(argument, SparkConf)), None)
        chosen = master or (conf and conf.get("spark.master")) or properties.getProperty("spark.master")
        with ExitStack() as opened:
            if in_one_jvm(chosen or LOCAL) and properties.getProperty(AUTHENTICATED.key) is None:
                properties.setProperty(AUTHENTICATED.key, AUTHENTICATED.value)
                opened.callback(properties.clearProperty, AUTHENTICATED.key)  # the next context may be on a cluster
                if conf is not None:
                    conf.setIfMissing(AUTHENTICATED.key, AUTHENTICATED.value)
            start(context, master, *arguments, **named)

    return start_with_authentication
