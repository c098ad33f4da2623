"""`millrace replay`: process the retained log again with the current code, then compare and switch.

- A replay writes to a new generation of the outputs, next to what runs.
- `--compare`, `--switch`, `--rollback`, `--list` and `--drop` work on generations (see `generations`).
- Progress is a line that is updated in place on a terminal, or one every few seconds elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.app import HelpPanel
from millrace.cli.commands.cassandra import CassandraConnectionOptions, node
from millrace.cli.commands.replay.generations import drop_generation, show_comparison, show_list, show_switch
from millrace.cli.commands.run import cluster_for
from millrace.cli.live_view import PRINT_INTERVAL_S, repeating
from millrace.cli.options import AsJson, KafkaOptions, PipelineFile, SparkOptions, State, Yes, state_folder
from millrace.cli.output import err, print_line, print_summary
from millrace.cli.run_options import RecoveryOptions
from millrace.cli.services import prepare_spark
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption, InvalidReplay
from millrace.units import format_count, format_duration

if TYPE_CHECKING:
    from millrace.engine.replay.progress import ReplayProgress, ReplayStage
    from millrace.engine.replay.replay import ReplayRequest
    from millrace.engine.run import RunSettings
    from millrace.pipeline.model import PipelineDef

_REPLAY_PANEL, _GENERATIONS_PANEL = HelpPanel("Replay"), HelpPanel("Generations")
_UPDATE_INTERVAL_S = 0.5


def replay(
    file: PipelineFile,
    *,
    from_: str | None = _REPLAY_PANEL.option(
        "Where to start: earliest, a time, '2h ago', or offsets as posts[0]@23,posts[1]@40.", "POSITION"
    ),
    to: str | None = _REPLAY_PANEL.option("Where to end.", "POSITION", show_default="the newest record"),
    resume: bool = _REPLAY_PANEL.flag("Resume a replay that was stopped."),
    new: bool = _REPLAY_PANEL.flag("Abandon a replay that was stopped, and start another."),
    leave_out: Annotated[
        list[str] | None,
        _REPLAY_PANEL.option(
            "Leave out sinks that cannot have generations, as foreach; may be given several times.", "CONNECTOR"
        ),
    ] = None,
    compare: bool = _GENERATIONS_PANEL.flag("Show counts and keys that differ; exit code 1 if there are any."),
    switch: bool = _GENERATIONS_PANEL.flag("Make the new generation the current one."),
    rollback: bool = _GENERATIONS_PANEL.flag("Make the previous generation the current one."),
    list_: bool = _GENERATIONS_PANEL.flag("List the generations."),
    drop: int | None = _GENERATIONS_PANEL.option("Delete a generation permanently.", "N", min=1),
    generation: int | None = _GENERATIONS_PANEL.option(
        "Which generation to compare or switch to.", "N", min=1, show_default="the newest"
    ),
    state: State = None,
    recovery: RecoveryOptions,
    spark: SparkOptions,
    kafka: KafkaOptions,
    cassandra: CassandraConnectionOptions,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Process the retained log again with the current code, into a new generation of the outputs."""
    from millrace.cli.commands.check import load_sound
    from millrace.connectors.base.api import RunContext
    from millrace.connectors.base.registry import uses_system
    from millrace.engine.replay.replay import ReplayRequest, require_possible
    from millrace.engine.replay.switch import SystemClients
    from millrace.engine.run import RunSettings

    replays = from_ is not None or resume
    if from_ is None and (to or new or leave_out):
        raise InvalidOption("--to, --new and --leave-out need --from", hint="add --from earliest")
    _require_one(
        {"--from": from_ is not None, "--resume": resume, "--compare": compare and not replays, "--switch": switch}
        | {"--rollback": rollback, "--list": list_, "--drop": drop is not None}
    )
    pipeline = load_sound(file)
    base = state_folder(pipeline, state)
    request = None if from_ is None else ReplayRequest(from_, to or "latest", tuple(leave_out or ()), new)
    if request is not None:
        require_possible(pipeline, request)  # before a broker is started for it
    if list_:
        show_list(base, as_json=as_json)
        return
    with (
        until_stopped() as stop,
        cluster_for(pipeline, kafka) as cluster,
        node(uses_system(pipeline, "cassandra"), cassandra, lambda _: None) as cassandra_client,
    ):
        clients = SystemClients(cluster, cassandra_client)
        if switch or rollback:
            show_switch(pipeline, base, clients, None if rollback else _chosen_number(base, generation))
        elif drop is not None:
            drop_generation(pipeline, base, clients, drop, yes=yes)
        else:
            settings = RunSettings(
                RunContext(base, cluster, notify=print_line, cassandra=cassandra_client),
                master=spark.master,
                spark_conf=spark.settings(),
                restart_policy=recovery.policy(),
                stop_timeout_s=recovery.stop_timeout_s(),
            )
            prepare_spark()
            if replays:
                _replay(file, pipeline, base, request, settings, stop)
            if compare:
                show_comparison(pipeline, base, _chosen_number(base, generation), settings, as_json=as_json)


def _require_one(options: dict[str, bool]) -> None:
    given = [name for name, is_given in options.items() if is_given]
    if len(given) == 1:
        return
    hint = "give one of " + ", ".join(options)
    raise InvalidOption(
        f"{' and '.join(given)} exclude each other" if given else "nothing to do with the pipeline was given", hint=hint
    )


def _chosen_number(base: Path, number: int | None) -> int:
    """Return the generation that was named, else the newest; without a name, never one before the current one."""
    from millrace.engine.replay.generations import load

    generations = load(base)
    if number is not None:
        generations.require(number)
        return number
    if generations.switching is not None:
        return generations.switching
    current, dropping = generations.current, generations.dropping
    numbers = [generation.number for generation in generations.made]
    newer = [number for number in numbers if number > current and number not in dropping]
    if not newer:
        raise InvalidReplay(
            f"there is no generation after {current}, which is the current one",
            hint="millrace replay FILE --from earliest creates one; --generation N names an older one",
        )
    return newer[-1]


def _replay(
    file: str, pipeline: PipelineDef, base: Path, request: ReplayRequest | None, settings: RunSettings, stop: Event
) -> None:
    from millrace.engine.replay import replay as engine
    from millrace.telemetry.query_status import RunStatus

    if request:
        generation = engine.begin_replay(pipeline, base, request, settings)
    else:
        generation = engine.unfinished_generation(pipeline, base)
    for topic, number, first in engine.truncated_partitions(generation):
        print_line(f"{topic}[{number}] starts at offset {first}: older records no longer exist and are not replayed")
    print_line(f"generation {generation.number}: {', '.join(output.own for output in generation.outputs)}")
    run_status = RunStatus()
    with showing_progress() as show:
        done = engine.run_replay(pipeline, base, generation, settings, run_status, stop, show)
    print_summary(run_status)
    if not done:
        print_line(
            f"generation {generation.number} was stopped before its end; millrace replay {file} --resume resumes it"
        )
        raise typer.Exit(1)
    print_line(
        f"generation {generation.number} is complete; --compare shows what differs, --switch makes it the current one"
    )


def stage_text(stage: ReplayStage) -> str:
    """Return how far a replay is, in one line."""
    if not stage.total:
        return format_count(stage.rows, "row")
    share = 100 * stage.done / stage.total
    words = [f"{stage.done:,} of {stage.total:,} records ({share:.0f} %)"]
    words += [f"{stage.rate:,.0f}/s"] if stage.rate else []
    words += [f"{format_duration(stage.seconds_left)} left"] if stage.seconds_left and stage.done < stage.total else []
    return ", ".join(words)


@contextmanager
def showing_progress() -> Iterator[Callable[[ReplayProgress], None]]:
    """Show the progress of a replay while the block runs; yield what takes it."""
    progress: list[ReplayProgress] = []
    printed = ""

    def line() -> str:
        return stage_text(progress[-1].stage()) if progress else "Spark is starting"

    def print_changed() -> None:
        nonlocal printed
        if progress and line() != printed:
            printed = line()
            print_line(printed)

    if err().is_terminal:
        with err().status("") as status, repeating(lambda: status.update(line()), _UPDATE_INTERVAL_S, "replay"):
            yield progress.append
    else:
        with repeating(print_changed, PRINT_INTERVAL_S, "replay"):
            yield progress.append
