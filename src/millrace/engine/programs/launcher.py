"""A plain PySpark program as a guest in this process: its Spark starts with our connectors and settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millrace.engine.programs.dstream_monitor import NAME, DStreamMonitor, stop_context
from millrace.engine.session.jvm import Jvm, OutputRouting, environment
from millrace.engine.session.scratch import Scratch
from millrace.engine.session.session import hush_accumulators, signals_kept, with_connectors
from millrace.engine.session.spark_conf import AUTHENTICATED, LOCAL, in_one_jvm, settled_conf, speed_choices
from millrace.engine.supervision.monitor import QueryMonitor
from millrace.engine.supervision.stopping import stop_all
from millrace.settings import STATE
from millrace.telemetry.query_status import RunStatus

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.streaming import StreamingContext

_LOOK = 0.1
_BATCH_PATIENCE = 10.0
_PATIENCE = 20.0


class ProgramLauncher:
    """While this is open, Spark is started our way whoever starts it; its queries and DStreams are on the run status.

    What the program sets itself wins over `settings`, as it does with spark-submit, and those win over our choices.
    """

    def __init__(
        self, run_status: RunStatus, *, master: str | None, settings: Mapping[str, str], log: Path, voice: OutputRouting
    ):
        self._run_status = run_status
        self._master = master
        self._settings = dict(settings)
        self._log = log
        self._voice = voice
        self._opened = ExitStack()
        self._jvms: list[Jvm] = []
        self._batches: list[DStreamMonitor] = []
        self._late = False
        """Whether a stop was given its time, and batches were still in hand."""
        self.launching: Callable[[], None] = lambda: None
        """Called when the program is about to start Spark for the first time."""
        self._stop = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="guest", daemon=True)

    def __enter__(self) -> ProgramLauncher:
        from pyspark.core import context
        from pyspark.streaming import StreamingContext

        # The one place where PySpark starts a JVM. Variables for spark-submit could not send its output elsewhere.
        self._instead(context, "launch_gateway", self._launch)
        # PySpark's handler of Ctrl-C calls the JVM in the middle of another call, which fails with pages of text.
        start: Callable[..., None] = context.SparkContext._do_init
        self._instead(context.SparkContext, "_do_init", signals_kept()(_authenticated(start)))
        self._instead(StreamingContext, "start", self._listened(StreamingContext.start))
        self._instead(StreamingContext, "stop", self._told_of(StreamingContext.stop))
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In a thread of its own: this one may have been interrupted while it waited for an answer of the JVM's.
        ending = threading.Thread(target=self._end, name="ending", daemon=True)
        ending.start()
        ending.join()
        self._opened.close()

    @property
    def started(self) -> bool:
        """Whether the program has started Spark."""
        return bool(self._jvms)

    def stop_queries(self) -> None:
        """Stop what runs, and wait for it, though not without end."""
        stopping = threading.Thread(target=self._stop_queries, name="stopping", daemon=True)
        stopping.start()
        stopping.join(_PATIENCE)

    def _instead(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        self._opened.callback(setattr, owner, name, getattr(owner, name))
        setattr(owner, name, ours)

    def _launch(self, conf: Any = None, popen_kwargs: Any = None) -> Any:
        del popen_kwargs
        if not self._jvms:
            self.launching()
        own = {} if conf is None else dict(conf.getAll())
        given = {**({"spark.master": self._master} if self._master else {}), **self._settings, **own}
        master = given.get("spark.master", LOCAL)
        if "spark-sql-kafka" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
            given = with_connectors(given)
        self._opened.enter_context(environment(master, {}))
        jvm = Jvm(
            settled_conf(speed_choices(master=master), given), self._log, Scratch(STATE.value() / "exec"), self._voice
        )
        self._jvms.append(jvm)
        return jvm.gateway

    def _listened(self, start: Callable[[StreamingContext], None]) -> Callable[[StreamingContext], None]:
        """How a StreamingContext is started: with a listener of ours, also one that comes from a checkpoint."""

        def listened(context: StreamingContext) -> None:
            if str(context._jssc.getState().toString()) != "INITIALIZED":
                start(context)  # which says what is wrong
                return
            name = f"{NAME} {len(self._batches) + 1}" if self._batches else NAME
            batches = DStreamMonitor(context, name, self._run_status)
            batches.listen()
            if batches.recovers:  # its start makes the batches of the time that it was away, which may take long
                self._began(batches)
                start(context)
            else:
                start(context)
                self._began(batches)

        return listened

    def _began(self, batches: DStreamMonitor) -> None:
        self._batches.append(batches)
        batches.begin()

    def _told_of(self, stop: Callable[..., None]) -> Callable[..., None]:
        """How a StreamingContext is stopped, whoever does it: those that watch it know before."""

        @wraps(stop)
        def told_of(context: StreamingContext, *arguments: Any, **named: Any) -> None:
            for batches in self._batches:
                batches.asked(context)
            stop(context, *arguments, **named)

        return told_of

    def _stop_queries(self) -> None:
        self._late = not stop_context(0.0 if self._late else _BATCH_PATIENCE)
        spark = _session()
        if spark is not None:
            with suppress(Exception):  # the JVM may have died, which has been told
                stop_all(spark.streams.active, _BATCH_PATIENCE)

    def _watch(self) -> None:
        """Watch each session that appears, until the end."""
        while not self._stop.wait(_LOOK):
            spark = _session()
            if spark is None:
                continue
            watch = QueryMonitor(spark, self._run_status).start()
            while not watch.has_ended and not self._stop.wait(_LOOK):
                pass
            watch.close()

    def _end(self) -> None:
        self.stop_queries()
        self._stop.set()
        self._watching.join()
        for batches in self._batches:
            if self._late:
                batches.cut_off()
            batches.close()
        spark, context = _session() or _context(), _context()
        if context is not None:
            hush_accumulators(context)
        if spark is not None:
            with suppress(Exception):
                spark.stop()
        for jvm in self._jvms:
            jvm.close()


def _session() -> SparkSession | None:
    """The session that somebody in this process has made, if it is still open."""
    from pyspark.sql import SparkSession

    spark: SparkSession | None = SparkSession._instantiatedSession
    return spark if spark is not None and spark.sparkContext._jsc is not None else None


def _context() -> SparkContext | None:
    """The same without a session, as programs with DStreams have it."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _authenticated(start: Callable[..., None]) -> Callable[..., None]:
    """How a SparkContext is started: its ports want a secret if it is on this machine, which is known only now.

    On a cluster the program must choose a secret itself.
    """
    from pyspark import SparkConf

    @wraps(start)
    def authenticated(context: SparkContext, master: str | None, *arguments: Any, **named: Any) -> None:
        # Spark reads its defaults from properties of the JVM; what the program sets wins over them.
        properties: Any = context._jvm.java.lang.System
        conf = next((one for one in (*arguments, *named.values()) if isinstance(one, SparkConf)), None)
        chosen = master or (conf and conf.get("spark.master")) or properties.getProperty("spark.master")
        if not in_one_jvm(chosen or LOCAL) or properties.getProperty(AUTHENTICATED.key) is not None:
            start(context, master, *arguments, **named)
            return
        properties.setProperty(AUTHENTICATED.key, AUTHENTICATED.value)
        if conf is not None:
            conf.setIfMissing(AUTHENTICATED.key, AUTHENTICATED.value)
        try:
            start(context, master, *arguments, **named)
        finally:
            properties.clearProperty(AUTHENTICATED.key)  # the next context may be on a cluster

    return authenticated
