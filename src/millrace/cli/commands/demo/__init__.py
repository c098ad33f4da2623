"""`millrace demo`: start Kafka, feeds, a pipeline on Spark and its live dashboard."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.app import DASHBOARD_PANEL, RUN_PANEL
from millrace.cli.commands.demo.catalog import DEFAULT, DEMOS, FAST_START, SMALL_BATCHES, Demo, demo_of
from millrace.cli.options import KafkaOptions
from millrace.cli.output import err, print_line, print_result, print_summary, show_table
from millrace.cli.run_options import AllTopics, DashboardOptions, Port, served_dashboard, with_kafka
from millrace.cli.services import fetch_jars, prepare_spark
from millrace.cli.signals import interruptible, until_stopped
from millrace.errors import InvalidOption, NoCluster, StateMismatch
from millrace.settings import KAFKA_DATA, KAFKA_HEAP, STATE
from millrace.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.cli.commands.demo.startup_progress import StartupProgress
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage
    from millrace.pipeline.plan import Plan

_FIRST_QUERY_HEAD_START_S = 15.0
"""How long the other queries wait for the first one, so that its chart moves soon."""
_SECONDS_WITHOUT_TERMINAL = 60.0
"""A script or a test has to end without Ctrl-C."""


def demo(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which demo; --list lists them.")] = DEFAULT,
    *,
    list_: bool = RUN_PANEL.flag("List the demos."),
    show: bool = RUN_PANEL.flag("Print the demo's pipeline file."),
    for_: str | None = RUN_PANEL.option(
        "How long it runs after the start.", "DURATION", show_default="until Ctrl-C; 60s without a terminal"
    ),
    rate: str | None = RUN_PANEL.option("Records per second of the first feed.", "RATE", show_default="200/s"),
    open_: bool = DASHBOARD_PANEL.flag(
        "Open the dashboard in a browser, if there is a display.", names="--open/--no-open", default=True
    ),
    port: Port = None,
    all_topics: AllTopics = False,
    kafka: KafkaOptions,
) -> None:
    """Start Kafka, feeds, a pipeline and its live dashboard."""
    if list_:
        show_table(("demo", "what it shows"), [(each.name, each.about) for each in DEMOS.values()])
        return
    chosen = _with_rate(demo_of(name), None if rate is None else parse_rate(rate))
    if show:
        print_result(chosen.file.read_text("utf-8"), end="")
        return
    seconds = parse_duration(for_) if for_ else None if err().is_terminal else _SECONDS_WITHOUT_TERMINAL
    if seconds == 0:
        raise InvalidOption("--for 0s would end before anything begins", hint="leave it out, and stop with Ctrl-C")
    cluster = _existing_cluster(kafka)
    fetch_jars("kafka")
    prepare_spark()
    options = DashboardOptions(port=port, all_topics=all_topics, open_=open_)
    _run_demo(chosen, seconds, options, cluster, kafka.data)


def _existing_cluster(kafka: KafkaOptions) -> Cluster | None:
    """Return the cluster that is named or already runs, once it has answered; Spark would else be started in vain."""
    try:
        cluster = kafka.cluster()
    except NoCluster:
        return None
    with interruptible():
        cluster.connect()
    return cluster


def _run_demo(
    chosen: Demo, seconds: float | None, options: DashboardOptions, existing: Cluster | None, data: str | None
) -> None:
    """Serve the dashboard first, which shows the progress; then start Spark and Kafka, side by side."""
    from millrace.cli.commands.demo.feeds import running_feeds
    from millrace.cli.commands.demo.startup_progress import StartupProgress
    from millrace.connectors.base.api import RunContext
    from millrace.dashboard.run_page import page_of_pipeline
    from millrace.engine.run import RunSettings, run
    from millrace.pipeline.loading import load
    from millrace.pipeline.plan import make_plan
    from millrace.telemetry.query_status import RunStatus

    plan = make_plan(load(str(chosen.file)), panels=True)
    run_status, state = RunStatus(), emptied(STATE.value() / "demo" / chosen.name)
    page = page_of_pipeline(plan, run_status, options.server_options(), state=state, spark=SMALL_BATCHES)
    with until_stopped() as stop, served_dashboard(page, open_=options.open_ and has_display()):
        progress = StartupProgress(
            run_status, page.channels, f"watch it at {page.address}; Ctrl-C stops it", quiet=bool(chosen.typed)
        )
        with (
            progress.shown(),
            _spark(plan, state, progress) as spark,
            _kafka(existing, data, progress, page) as cluster,
            with_kafka(page, lambda: cluster),
            running_feeds(
                chosen, cluster, page.channels, lambda: len(run_status.queries()) == len(plan.queries), stop
            ) as written,
        ):
            page.doing("Spark is starting")
            settings = RunSettings(
                RunContext(state, lambda: cluster, notify=page.doing, session=spark.result()),
                duration_s=seconds,
                channels=page.channels,
                on_session_open=page.spark_is,
                on_session_close=page.spark_ends,
                memory_sql=page.memory_sql,
                head_start_s=0.0 if chosen.typed else _FIRST_QUERY_HEAD_START_S,
            )
            progress.expect("waiting for the first rows")
            if not stop.is_set():
                run(plan, settings, run_status, stop)
    print_summary(run_status)
    for topic, total in written.totals.items():
        print_line(f"{total:,} records are in topic {topic!r}; they are kept for the next time")
    _print_next_steps(chosen)


def _spark(plan: Plan, state: Path, progress: StartupProgress) -> AbstractContextManager[Future[SparkSession]]:
    """Open a session while Kafka starts."""
    from millrace.engine.session.session import open_in_background, open_session

    def open_spark() -> SparkSession:
        with progress.step("Spark is starting", "Spark is up"):
            return open_session(
                plan.pipeline.name,
                master=None,
                settings=SMALL_BATCHES,
                log=state / "spark.log",
                forks_workers=True,
            )

    return open_in_background(open_spark)


@contextmanager
def _kafka(existing: Cluster | None, data: str | None, progress: StartupProgress, page: RunPage) -> Iterator[Cluster]:
    """Yield the existing cluster, or one of ours while the block runs."""
    from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

    if existing is not None:
        yield existing
        return
    service = KafkaCluster(KAFKA_DATA.value(data), KafkaClusterOptions(heap=KAFKA_HEAP.value(), java=(FAST_START,)))
    try:
        page.doing("Kafka is starting")
        with interruptible(), progress.step("Kafka is starting", "Kafka is up"):
            cluster = service.start()
        yield cluster
    except KeyboardInterrupt:  # the second Ctrl-C: the broker is killed, and recovers its log at the next start
        service.kill_all()
        raise
    finally:
        service.stop()


def _with_rate(chosen: Demo, rate: float | None) -> Demo:
    if rate is None or not chosen.feeds:
        return chosen
    first, *others = chosen.feeds
    return replace(chosen, feeds=(replace(first, rate=rate), *others))


def emptied(folder: Path) -> Path:
    """Return the state folder of a demo after deleting what is in it: a demo starts from scratch each time.

    Scratch folders stay: the JVM of a demo that was killed may still be ending, and the start of Spark removes them.
    """
    from millrace.engine.session.scratch import is_scratch
    from millrace.locks import FolderLock

    lock = FolderLock(folder)
    try:
        if not lock.try_acquire():
            raise StateMismatch("this demo already runs, in the same folder", hint="look for its dashboard, or stop it")
        for path in folder.iterdir():
            if is_scratch(path):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()
    finally:
        lock.release()
    return folder


def has_display() -> bool:
    """Return whether a browser can be shown."""
    if os.environ.get("CI"):
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _print_next_steps(chosen: Demo) -> None:
    program = "millrace" if shutil.which("millrace") else os.path.relpath(sys.argv[0])
    file = chosen.file.name
    print_line(f"make it yours: {program} demo {chosen.name} --show > {file}, change it, and {program} run {file}")
    print_line(f"other demos: {program} demo --list")
