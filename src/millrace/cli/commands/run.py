"""`millrace run`: a pipeline's file becomes running queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands.cassandra import CassandraAddress, CassandraConfig, node
from millrace.cli.commands.kafka import broker
from millrace.cli.commands.replay.generations import tell_handovers
from millrace.cli.options import (
    Accept,
    DataFolder,
    KafkaAddress,
    KafkaConfig,
    Master,
    PipelineFile,
    ShipPackages,
    SparkSettings,
    State,
    chosen_cluster,
    spark_settings,
    state_folder,
)
from millrace.cli.output import out, say, without_controls
from millrace.cli.run_options import (
    LOCAL,
    AlertDead,
    AlertLag,
    AlertTo,
    AllTopics,
    Dashboard,
    Host,
    Open,
    Patience,
    Port,
    ReadOnly,
    Restarts,
    alerting,
    alerts_of,
    page_options,
    require_page,
    restart_policy,
    served_page,
    with_kafka,
)
from millrace.cli.services import prepare_spark
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption
from millrace.settings import STOP_TIMEOUT
from millrace.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage
    from millrace.dashboard.server import ServerOptions
    from millrace.engine.replay.generations import ChosenGeneration
    from millrace.engine.run import RunSettings
    from millrace.pipeline.model import PipelineDef
    from millrace.pipeline.plan import Plan
    from millrace.telemetry.query_status import RunStatus


def run(
    file: PipelineFile,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Stop so long after its queries have started, at the latest."),
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop when everything that is there now is done.")
    ] = False,
    state: State = None,
    master: Master = None,
    set_: SparkSettings = None,
    ship_packages: ShipPackages = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics/--no-create-topics", help="Make topics that are missing.")
    ] = True,
    restarts: Restarts = None,
    patience: Patience = None,
    alert: AlertTo = None,
    alert_lag: AlertLag = None,
    alert_dead: AlertDead = None,
    accept: Accept = None,
    generation: Annotated[
        int | None,
        typer.Option("--generation", min=1, show_default="the current one", help="Which generation; see replay."),
    ] = None,
    dashboard: Dashboard = True,
    port: Port = None,
    host: Host = LOCAL,
    read_only: ReadOnly = False,
    all_topics: AllTopics = False,
    open_: Open = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    cassandra: CassandraAddress = None,
    cassandra_config: CassandraConfig = None,
) -> None:
    """Run a pipeline until Ctrl-C, --for or --until-caught-up; the next run goes on where it stopped."""
    from millrace.cli.commands.check import load_sound
    from millrace.cli.live_view import live, of_page
    from millrace.connectors.base.api import RunContext
    from millrace.connectors.base.registry import CONNECTORS, uses_system
    from millrace.engine.run import RunSettings, jar_sets
    from millrace.engine.run import run as run_plan
    from millrace.pipeline.plan import make_plan, with_letters
    from millrace.telemetry.query_status import RunStatus

    seconds = None if for_ is None else parse_duration(for_)
    if seconds == 0:
        raise InvalidOption("--for 0s would end before anything begins", hint="--until-caught-up does what is there")
    supervision, wait = restart_policy(restarts), STOP_TIMEOUT.value(patience)
    alerts = alerts_of(alert, alert_lag, alert_dead)
    require_page(dashboard, port=port is not None, host=host != LOCAL, all_topics=all_topics, open=open_)
    chosen = chosen_generation(load_sound(file), state, generation)
    pipeline, folder = chosen.pipeline, chosen.state
    plan = with_letters(make_plan(pipeline, once=until_caught_up, panels=dashboard), CONNECTORS)
    spark = spark_settings(set_)
    run_status = RunStatus()
    prepare_spark(*jar_sets(pipeline, folder))
    options = page_options(port, host, read_only=read_only, all_topics=all_topics)
    page = _page(plan, run_status, chosen, master, spark, options) if dashboard else None
    with (
        until_stopped() as stop,
        served_page(page, open_=open_) as watching,
        cluster_for(pipeline, kafka, kafka_config, data) as cluster,
        with_kafka(watching, cluster if uses_system(pipeline, "kafka") else None),
        alerting(alerts, plan, run_status, watching, cluster if uses_system(pipeline, "kafka") else None),
        node(uses_system(pipeline, "cassandra"), cassandra, cassandra_config, _doing(watching)) as found,
    ):
        context = RunContext(
            folder,
            cluster,
            create_topics=create_topics,
            print_line=_print,
            notify=say,
            cassandra=found,
            offset_range=chosen.span,
            accept=accept or (),
        )
        settings = RunSettings(
            context,
            master,
            spark,
            seconds,
            restart_policy=supervision,
            stop_timeout_s=wait,
            ship_packages=ship_packages,
        )
        with live(run_status, of_page(watching.channels) if watching else None):
            run_plan(plan, _watched(settings, watching), run_status, stop)
    say(run_status.summary())


def _page(
    plan: Plan,
    run_status: RunStatus,
    chosen: ChosenGeneration,
    master: str | None,
    spark: dict[str, str],
    options: ServerOptions,
) -> RunPage:
    from millrace.dashboard.run_page import page_of_pipeline
    from millrace.engine.checkpoints.state_dir import nearby

    return page_of_pipeline(
        plan,
        run_status,
        options,
        state=nearby(chosen.state, plan.pipeline.name),
        generation=chosen.number,
        base=chosen.base,
        master=master,
        spark=spark,
    )


def _doing(page: RunPage | None) -> Callable[[str], None]:
    """Tells the page, if there is one, what is waited for."""
    return page.doing if page else lambda _: None


def _watched(settings: RunSettings, page: RunPage | None) -> RunSettings:
    """The settings, with the page told what happens."""
    if page is None:
        return settings
    page.doing("Spark is starting")

    def tell(text: str) -> None:
        page.doing(text)
        settings.context.notify(text)

    return replace(
        settings,
        context=replace(settings.context, notify=tell),
        channels=page.channels,
        on_session_open=page.spark_is,
        on_session_close=page.spark_ends,
        memory_sql=page.memory_sql,
    )


def _print(text: str) -> None:
    out().print(without_controls(text), markup=False, highlight=False, soft_wrap=True)


def chosen_generation(pipeline: PipelineDef, state: Path | None, number: int | None = None) -> ChosenGeneration:
    """What a run goes on with: the generation that is current, or one that was named."""
    from millrace.engine.replay.generations import FIRST, choose, load

    base = state_folder(pipeline, state, store=True)
    chosen = choose(pipeline, base, number)
    known = load(base)
    if known.switching is not None:
        say(f"a switch to generation {known.switching} was not finished: millrace replay FILE --switch does it again")
    if chosen.number != FIRST or number is not None:
        say(f"generation {chosen.number}, in {chosen.state}")
    for sink in chosen.without:
        kind, current = sink.connection.connector, f"generation {known.current}, which is the current one"
        say(f"the sink {kind} of {sink.table!r} is left out: it gets its rows from {current}")
    if chosen.number == known.current:
        tell_handovers(pipeline, base, known)
    return chosen


@contextmanager
def cluster_for(
    pipeline: PipelineDef, kafka: str | None, config: str | None, data: str | None
) -> Iterator[Callable[[], Cluster]]:
    """The cluster that is named or runs already; else, when the pipeline needs one, ours for as long as it runs."""
    from millrace.connectors.base.registry import uses_system

    if not uses_system(pipeline, "kafka"):
        yield lambda: chosen_cluster(kafka, config, data)
        return
    with broker(kafka, config, data) as cluster:
        yield lambda: cluster
