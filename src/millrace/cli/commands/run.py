"""`millrace run`: start the queries of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.cli.app import RUN_PANEL
from millrace.cli.commands.cassandra import CassandraConnectionOptions, node
from millrace.cli.commands.replay.generations import print_handovers
from millrace.cli.options import (
    AcceptOptions,
    KafkaOptions,
    PipelineFile,
    ShipPackages,
    SparkOptions,
    State,
    state_folder,
)
from millrace.cli.output import print_line, print_result, print_summary, without_controls
from millrace.cli.run_options import (
    AlertOptions,
    DashboardOptions,
    RecoveryOptions,
    alerting,
    served_dashboard,
    with_kafka,
)
from millrace.cli.services import found_or_own, prepare_spark
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption
from millrace.settings import KAFKA_DATA
from millrace.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage
    from millrace.engine.replay.generations import ChosenGeneration
    from millrace.engine.run import RunSettings
    from millrace.pipeline.model import PipelineDef


def run(
    file: PipelineFile,
    *,
    for_: str | None = RUN_PANEL.option("Stop at the latest this long after the queries started.", "DURATION"),
    until_caught_up: bool = RUN_PANEL.flag("Process the data that exists now, then stop."),
    flush: bool = RUN_PANEL.flag(
        "With --until-caught-up: then write the windows that are still open; the queries do not resume after that."
    ),
    create_topics: bool = RUN_PANEL.flag(
        "Create missing topics.", names="--create-topics/--no-create-topics", default=True
    ),
    generation: int | None = RUN_PANEL.option(
        "Which generation to run; see millrace replay --help.", "N", min=1, show_default="the current one"
    ),
    state: State = None,
    recovery: RecoveryOptions,
    accept: AcceptOptions,
    spark: SparkOptions,
    ship_packages: ShipPackages = False,
    kafka: KafkaOptions,
    cassandra: CassandraConnectionOptions,
    dashboard: DashboardOptions,
    alert: AlertOptions,
) -> None:
    """Run a pipeline until Ctrl-C, --for or --until-caught-up; the next run resumes where it stopped."""
    from millrace.cli.commands.check import load_sound
    from millrace.cli.live_view import dashboard_figures, live
    from millrace.connectors.base.api import RunContext
    from millrace.connectors.base.registry import CONNECTORS, uses_system
    from millrace.dashboard.run_page import page_of_pipeline
    from millrace.engine.checkpoints.state_dir import nearby
    from millrace.engine.run import RunSettings, jar_sets
    from millrace.engine.run import run as run_plan
    from millrace.pipeline.plan import make_plan, with_letters
    from millrace.telemetry.query_status import RunStatus

    seconds = None if for_ is None else parse_duration(for_)
    if seconds == 0:
        raise InvalidOption(
            "--for 0s would end before anything begins", hint="--until-caught-up processes the data that exists"
        )
    if flush and not until_caught_up:
        raise InvalidOption(
            "--flush ends event time, so nothing may come after it", hint="add --until-caught-up, or leave it out"
        )
    policy, stop_timeout_s, alerts = recovery.policy(), recovery.stop_timeout_s(), alert.settings()
    server_options = dashboard.server_options()
    chosen = chosen_generation(load_sound(file), state, generation)
    pipeline, folder = chosen.pipeline, chosen.state
    plan = with_letters(make_plan(pipeline, once=until_caught_up, panels=dashboard.dashboard), CONNECTORS)
    spark_settings = spark.settings()
    run_status = RunStatus()
    prepare_spark(*jar_sets(pipeline, folder))
    page = None
    if dashboard.dashboard:
        page = page_of_pipeline(
            plan,
            run_status,
            server_options,
            state=nearby(folder, pipeline.name),
            generation=chosen.number,
            base=chosen.base,
            master=spark.master,
            spark=spark_settings,
        )
    with (
        until_stopped() as stop,
        served_dashboard(page, open_=dashboard.open_),
        cluster_for(pipeline, kafka) as cluster,
        with_kafka(page, cluster if uses_system(pipeline, "kafka") else None),
        alerting(alerts, plan, run_status, page, cluster if uses_system(pipeline, "kafka") else None),
        node(uses_system(pipeline, "cassandra"), cassandra, page.doing if page else lambda _: None) as cassandra_client,
    ):
        context = RunContext(
            folder,
            cluster,
            create_topics=create_topics,
            print_line=lambda text: print_result(without_controls(text)),
            notify=print_line,
            cassandra=cassandra_client,
            offset_range=chosen.span,
            accept=accept.queries(),
        )
        settings = RunSettings(
            context,
            spark.master,
            spark_settings,
            seconds,
            restart_policy=policy,
            stop_timeout_s=stop_timeout_s,
            ship_packages=ship_packages,
            flush=flush,
        )
        with live(run_status, dashboard_figures(page.channels) if page else None):
            run_plan(plan, _with_dashboard(settings, page), run_status, stop)
    print_summary(run_status)


def _with_dashboard(settings: RunSettings, page: RunPage | None) -> RunSettings:
    """Return the settings with the dashboard, if there is one, as a listener."""
    if page is None:
        return settings
    page.doing("Spark is starting")

    def notify(text: str) -> None:
        page.doing(text)
        settings.context.notify(text)

    return replace(
        settings,
        context=replace(settings.context, notify=notify),
        channels=page.channels,
        on_session_open=page.spark_is,
        on_session_close=page.spark_ends,
        memory_sql=page.memory_sql,
    )


def chosen_generation(pipeline: PipelineDef, state: Path | None, number: int | None = None) -> ChosenGeneration:
    """Return the generation that a run resumes: the one that was named, else the current one."""
    from millrace.engine.replay.generations import FIRST, choose, load

    base = state_folder(pipeline, state, store=True)
    chosen = choose(pipeline, base, number)
    generations = load(base)
    if generations.switching is not None:
        print_line(
            f"the switch to generation {generations.switching} was not finished: repeat millrace replay FILE --switch"
        )
    if chosen.number != FIRST or number is not None:
        print_line(f"generation {chosen.number}, in {chosen.state}")
    for sink in chosen.without:
        print_line(
            f"the sink {sink.connection.connector} of {sink.table!r} is left out: generation {generations.current}, "
            "the current one, writes to it"
        )
    if chosen.number == generations.current:
        print_handovers(pipeline, base, generations)
    return chosen


@contextmanager
def cluster_for(pipeline: PipelineDef, kafka: KafkaOptions) -> Iterator[Callable[[], Cluster]]:
    """Yield the cluster that is named or already runs; else, if the pipeline needs one, ours while the block runs."""
    from millrace.connectors.base.registry import uses_system
    from millrace.services.kafka import KafkaCluster

    if not uses_system(pipeline, "kafka"):
        yield kafka.cluster
        return
    with found_or_own(kafka.cluster, KafkaCluster(KAFKA_DATA.value(kafka.data))) as cluster:
        yield lambda: cluster
