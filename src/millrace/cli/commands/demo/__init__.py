"""`millrace demo`: Kafka, feeds, a pipeline on Spark and its live page, in one go."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands.demo.catalog import DEMOS, FIRST, LIGHT, QUICK, Demo, demo_of
from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, chosen_cluster
from millrace.cli.output import err, fetching, out, say, show_table
from millrace.cli.run_options import AllTopics, Port, page_options, served_page, with_kafka
from millrace.cli.services import prepare_spark
from millrace.cli.signals import interruptible, until_stopped
from millrace.errors import InvalidOption, NoCluster, StateMismatch
from millrace.settings import KAFKA_DATA, KAFKA_HEAP, STATE
from millrace.units import parse_duration, parse_rate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.cli.commands.demo.startup_progress import StartupProgress
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage
    from millrace.dashboard.server import ServerOptions
    from millrace.engine.run import RunSettings
    from millrace.pipeline.plan import Plan

_HEAD_START = 15.0
"""Seconds that the other queries leave to the first one, so that its chart moves soon."""
_UNWATCHED = 60.0
"""Seconds that it runs where no terminal is: a script or a test must come to an end without Ctrl-C."""


def demo(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which one; --list tells them all.")] = FIRST,
    list_: Annotated[bool, typer.Option("--list", help="List the demos.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the demo's pipeline file, to copy it.")] = False,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            show_default="until Ctrl-C; 60s without a terminal",
            help="How long it runs, once everything has started.",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", show_default="200/s", help="Posts (or the like) a second.")
    ] = None,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser, where there is a display.")
    ] = True,
    port: Port = None,
    all_topics: AllTopics = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
) -> None:
    """Start Kafka, feeds, a pipeline and its live page, and watch."""
    if list_:
        show_table(("demo", "what one sees"), [(one.name, one.about) for one in DEMOS.values()])
        return
    chosen = _paced(demo_of(name), None if rate is None else parse_rate(rate))
    if show:
        out().print(chosen.file.read_text("utf-8"), markup=False, soft_wrap=True, end="")
        return
    seconds = parse_duration(for_) if for_ else None if err().is_terminal else _UNWATCHED
    if seconds == 0:
        raise InvalidOption("--for 0s would end before anything begins", hint="leave it out, and end it with Ctrl-C")
    cluster = _named_cluster(kafka, kafka_config, data)
    with interruptible(), fetching() as progress:
        from millrace.services import jars

        jars.ensure("kafka", progress)
    prepare_spark()
    _play(chosen, seconds, page_options(port, all_topics=all_topics), open_=open_, named=cluster, data=data)


def _named_cluster(kafka: str | None, config: str | None, data: str | None) -> Cluster | None:
    """The cluster that is named or runs already, once it has answered: else Spark would be started for nothing."""
    try:
        cluster = chosen_cluster(kafka, config, data)
    except NoCluster:
        return None
    with interruptible():
        cluster.connect()
    return cluster


def _play(
    chosen: Demo, seconds: float | None, options: ServerOptions, *, open_: bool, named: Cluster | None, data: str | None
) -> None:
    """The page comes first, since it shows what is awaited; Spark and Kafka, which take long, start side by side."""
    from millrace.cli.commands.demo.feeds import pouring
    from millrace.cli.commands.demo.startup_progress import StartupProgress
    from millrace.dashboard.run_page import page_of_pipeline
    from millrace.engine.run import run
    from millrace.pipeline.loading import load
    from millrace.pipeline.plan import make_plan
    from millrace.telemetry.query_status import RunStatus

    plan = make_plan(load(str(chosen.file)), panels=True)
    run_status, state = RunStatus(), emptied(STATE.value() / "demo" / chosen.name)
    page = page_of_pipeline(plan, run_status, options, state=state, spark=LIGHT)
    with until_stopped() as stop, served_page(page, open_=open_ and has_display()):
        way = StartupProgress(
            run_status, page.channels, f"watch it at {page.address}; Ctrl-C ends it", quiet=bool(chosen.typed)
        )
        with (
            way.shown(),
            _spark(plan, state, way) as opening,
            _kafka(named, data, way, page) as cluster,
            with_kafka(page, lambda: cluster),
            pouring(
                chosen, cluster, page.channels, lambda: len(run_status.queries()) == len(plan.queries), stop
            ) as poured,
        ):
            page.doing("Spark is starting")
            settings = _settings(page, state, cluster, opening.result(), seconds)
            settings = replace(settings, head_start_s=0.0 if chosen.typed else _HEAD_START)
            way.expect("waiting for the first rows")
            if not stop.is_set():
                run(plan, settings, run_status, stop)
    say(run_status.summary())
    for topic, total in poured.totals.items():
        say(f"{total:,} records are in topic {topic!r}; they stay for next time")
    _say_how_to_go_on(chosen)


def _settings(page: RunPage, state: Path, cluster: Cluster, spark: SparkSession, seconds: float | None) -> RunSettings:
    from millrace.connectors.base.api import RunContext
    from millrace.engine.run import RunSettings

    return RunSettings(
        RunContext(state, lambda: cluster, notify=page.doing, session=spark),
        duration_s=seconds,
        channels=page.channels,
        on_session_open=page.spark_is,
        on_session_close=page.spark_ends,
        memory_sql=page.memory_sql,
    )


@contextmanager
def _spark(plan: Plan, state: Path, way: StartupProgress) -> Iterator[Future[SparkSession]]:
    """A session that is opened while Kafka starts."""
    from millrace.engine.session.session import open_in_background, open_session

    def opened() -> SparkSession:
        with way.step("Spark is starting", "Spark is up"):
            return open_session(plan.pipeline.name, master=None, settings=LIGHT, log=state / "spark.log")

    with open_in_background(opened) as opening:
        yield opening


@contextmanager
def _kafka(named: Cluster | None, data: str | None, way: StartupProgress, page: RunPage) -> Iterator[Cluster]:
    """The cluster that is there, or one of ours meanwhile."""
    from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

    if named is not None:
        yield named
        return
    service = KafkaCluster(KAFKA_DATA.value(data), KafkaClusterOptions(heap=KAFKA_HEAP.value(), java=(QUICK,)))
    try:
        page.doing("Kafka is starting")
        with interruptible(), way.step("Kafka is starting", "Kafka is up"):
            cluster = service.start()
        yield cluster
    except KeyboardInterrupt:  # asked for a second time: the broker is killed, and mends its log at the next start
        service.kill_all()
        raise
    finally:
        service.stop()


def _paced(chosen: Demo, rate: float | None) -> Demo:
    if rate is None or not chosen.feeds:
        return chosen
    first, *others = chosen.feeds
    return replace(chosen, feeds=(replace(first, rate=rate), *others))


def emptied(folder: Path) -> Path:
    """The folder of a demo's run, with nothing in it: a demo begins from scratch each time, whatever there was.

    Scratch folders stay: the JVM of a demo that was killed may still be ending, and the start of Spark removes them.
    """
    from millrace.engine.session.scratch import is_scratch
    from millrace.locks import FolderLock

    lock = FolderLock(folder)
    try:
        if not lock.try_acquire():
            raise StateMismatch("this demo runs already, in the same folder", hint="look for its page, or stop it")
        for one in folder.iterdir():
            if is_scratch(one):
                continue
            if one.is_dir():
                shutil.rmtree(one)
            elif one.name != "lock":
                one.unlink()
    finally:
        lock.release()
    return folder


def has_display() -> bool:
    """Whether somebody would see a browser."""
    if os.environ.get("CI"):
        return False
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _say_how_to_go_on(chosen: Demo) -> None:
    me = "millrace" if shutil.which("millrace") else os.path.relpath(sys.argv[0])
    file = chosen.file.name
    say(f"make it yours: {me} demo {chosen.name} --show > {file}, change it, and {me} run {file}")
    say(f"other demos: {me} demo --list")
