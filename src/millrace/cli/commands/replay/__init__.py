"""`millrace replay`: the retained log once more, through today's code, beside what runs; then compare and switch.

How far a replay is, on the terminal: a line that is renewed in place, or one every few seconds elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.commands.cassandra import CassandraAddress, CassandraConfig, node
from millrace.cli.commands.replay.generations import drop_generation as delete
from millrace.cli.commands.replay.generations import show_comparison, show_list, show_switch
from millrace.cli.commands.run import cluster_for
from millrace.cli.options import (
    AsJson,
    DataFolder,
    KafkaAddress,
    KafkaConfig,
    Master,
    PipelineFile,
    SparkSettings,
    State,
    Yes,
    spark_settings,
    state_folder,
)
from millrace.cli.output import err, say
from millrace.cli.run_options import Patience, Restarts, restart_policy
from millrace.cli.services import prepare_spark
from millrace.cli.signals import until_stopped
from millrace.errors import InvalidOption, InvalidReplay
from millrace.settings import STOP_TIMEOUT
from millrace.units import format_count, format_duration

if TYPE_CHECKING:
    from millrace.engine.replay.progress import ReplayProgress, ReplayStage
    from millrace.engine.replay.replay import ReplayRequest
    from millrace.engine.run import RunSettings
    from millrace.pipeline.model import PipelineDef

_BEGIN, _AFTER = "Replay", "What comes of it"


def replay(
    file: PipelineFile,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            rich_help_panel=_BEGIN,
            help="Where to begin: earliest, a time, '2h ago', or offsets as posts[0]@23,posts[1]@40.",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="PLACE", rich_help_panel=_BEGIN, show_default="what is there now", help="Where to end."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", rich_help_panel=_BEGIN, help="Go on with a replay that was stopped.")
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", rich_help_panel=_BEGIN, help="Leave one that was stopped, and begin another.")
    ] = False,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out",
            metavar="CONNECTOR",
            rich_help_panel=_BEGIN,
            help="Do without sinks that cannot have generations, as foreach; may be given several times.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", rich_help_panel=_AFTER, help="Counts and differing keys; exit code 1 if there are any."
        ),
    ] = False,
    switch: Annotated[
        bool, typer.Option("--switch", rich_help_panel=_AFTER, help="Let the new generation count from now on.")
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", rich_help_panel=_AFTER, help="Let the one count that did before.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", rich_help_panel=_AFTER, help="List the generations.")] = False,
    drop: Annotated[
        int | None,
        typer.Option("--drop", metavar="N", min=1, rich_help_panel=_AFTER, help="Delete a generation for good."),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(
            "--generation", min=1, rich_help_panel=_AFTER, show_default="the newest", help="Which one is meant."
        ),
    ] = None,
    state: State = None,
    master: Master = None,
    set_: SparkSettings = None,
    restarts: Restarts = None,
    patience: Patience = None,
    yes: Yes = False,
    as_json: AsJson = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    cassandra: CassandraAddress = None,
    cassandra_config: CassandraConfig = None,
) -> None:
    """Run today's code over the retained log, into a new generation of the outputs; compare it, and switch to it."""
    from millrace.cli.commands.check import load_sound
    from millrace.connectors.base.api import RunContext
    from millrace.connectors.base.registry import uses_system
    from millrace.engine.replay.replay import ReplayRequest, require_possible
    from millrace.engine.replay.switch import SystemClients
    from millrace.engine.run import RunSettings

    begins = from_ is not None or resume
    if from_ is None and (to or new or leave_out):
        raise InvalidOption("--to, --new and --leave-out belong to a replay", hint="say --from earliest as well")
    _require_one(
        {"--from": from_ is not None, "--resume": resume, "--compare": compare and not begins, "--switch": switch}
        | {"--rollback": rollback, "--list": list_, "--drop": drop is not None}
    )
    pipeline = load_sound(file)
    base = state_folder(pipeline, state)
    asked = None if from_ is None else ReplayRequest(from_, to or "latest", tuple(leave_out or ()), new)
    if asked is not None:
        require_possible(pipeline, asked)  # before a broker is started for it
    if list_:
        show_list(base, as_json=as_json)
        return
    with (
        until_stopped() as stop,
        cluster_for(pipeline, kafka, kafka_config, data) as cluster,
        node(uses_system(pipeline, "cassandra"), cassandra, cassandra_config, lambda _: None) as found,
    ):
        doors = SystemClients(cluster, found)
        if switch or rollback:
            show_switch(pipeline, base, doors, None if rollback else _meant(base, generation))
        elif drop is not None:
            delete(pipeline, base, doors, drop, yes=yes)
        else:
            settings = RunSettings(
                RunContext(base, cluster, notify=say, cassandra=found), master=master, spark_conf=spark_settings(set_)
            )
            settings = replace(
                settings, restart_policy=restart_policy(restarts), stop_timeout_s=STOP_TIMEOUT.value(patience)
            )
            prepare_spark()
            if begins:
                _replay(file, pipeline, base, asked, settings, stop)
            if compare:
                show_comparison(pipeline, base, _meant(base, generation), settings, as_json=as_json)


def _require_one(given: dict[str, bool]) -> None:
    named = [name for name, is_given in given.items() if is_given]
    if len(named) == 1:
        return
    hint = "one of " + ", ".join(given)
    raise InvalidOption(
        f"{' and '.join(named)} are two things" if named else "what shall be done with the pipeline?", hint=hint
    )


def _meant(base: Path, number: int | None) -> int:
    """The generation that was named, or the newest; never by itself one that is older than what counts."""
    from millrace.engine.replay.generations import load

    known = load(base)
    if number is not None:
        known.require(number)
        return number
    if known.switching is not None:
        return known.switching
    found = [one.number for one in known.made if one.number > known.current and one.number not in known.dropping]
    if not found:
        raise InvalidReplay(
            f"there is no generation after {known.current}, which is the current one",
            hint="millrace replay FILE --from earliest makes one; --generation N means an older one",
        )
    return found[-1]


def _replay(
    file: str, pipeline: PipelineDef, base: Path, asked: ReplayRequest | None, settings: RunSettings, stop: Event
) -> None:
    from millrace.engine.replay import replay as engine
    from millrace.telemetry.query_status import RunStatus

    made = (
        engine.unfinished_generation(pipeline, base)
        if asked is None
        else engine.begin_replay(pipeline, base, asked, settings)
    )
    for topic, number, first in engine.truncated_partitions(made):
        say(f"{topic}[{number}] begins at offset {first}: what was before is gone, and will not be in the generation")
    say(f"generation {made.number}: {', '.join(one.own for one in made.outputs)}")
    run_status = RunStatus()
    with showing_progress() as know:
        done = engine.run_replay(pipeline, base, made, settings, run_status, stop, know)
    say(run_status.summary())
    if not done:
        say(f"generation {made.number} was stopped before its end; millrace replay {file} --resume goes on with it")
        raise typer.Exit(1)
    say(f"generation {made.number} is finished; --compare shows what differs, --switch lets it count")


PRINT_EVERY = 5.0
"""Seconds between two plain lines."""
_OFTEN = 0.5


class ReplayDisplay:
    """What is shown of a replay; nothing before there is a distance."""

    def __init__(self) -> None:
        self.distance: ReplayProgress | None = None

    def line(self) -> str:
        """How far it is, in one line."""
        return "Spark is starting" if self.distance is None else stage_text(self.distance.stage())


def stage_text(stage: ReplayStage) -> str:
    """A stage in words."""
    if not stage.total:
        return format_count(stage.rows, "row")
    share = 100 * stage.done / stage.total
    words = [f"{stage.done:,} of {stage.total:,} records ({share:.0f} %)"]
    words += [f"{stage.rate:,.0f}/s"] if stage.rate else []
    words += [f"{format_duration(stage.seconds_left)} left"] if stage.seconds_left and stage.done < stage.total else []
    return ", ".join(words)


@contextmanager
def showing_progress() -> Iterator[Callable[[ReplayProgress], None]]:
    """A time in which the way of a replay is shown, once it is known."""
    console, stop, what = err(), threading.Event(), ReplayDisplay()

    def know(distance: ReplayProgress) -> None:
        what.distance = distance

    if console.is_terminal:
        with console.status("") as status:
            thread = _repeating(stop, _OFTEN, lambda: status.update(what.line()))
            yield from _until(stop, thread, know)
    else:
        tell = _when_new(what)
        yield from _until(stop, _repeating(stop, PRINT_EVERY, tell), know)
        tell()  # how far it has come in the end


def _until(
    stop: threading.Event, thread: threading.Thread, know: Callable[[ReplayProgress], None]
) -> Iterator[Callable[[ReplayProgress], None]]:
    try:
        yield know
    finally:
        stop.set()
        thread.join()


def _when_new(what: ReplayDisplay) -> Callable[[], None]:
    last = ""

    def tell() -> None:
        nonlocal last
        if what.distance is not None and what.line() != last:
            last = what.line()
            say(last)

    return tell


def _repeating(stop: threading.Event, seconds: float, act: Callable[[], None]) -> threading.Thread:
    def repeat() -> None:
        while not stop.wait(seconds):
            act()

    thread = threading.Thread(target=repeat, name="replaying", daemon=True)
    thread.start()
    return thread
