"""What comes after a replay: its generation compared, switched to, listed, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millrace.cli.options import confirm
from millrace.cli.output import out, progress_line, say, show_json, show_table
from millrace.errors import InvalidReplay
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.engine.replay.compare import Comparison
    from millrace.engine.replay.generations import Generations
    from millrace.engine.replay.switch import SystemClients
    from millrace.engine.run import RunSettings
    from millrace.pipeline.model import PipelineDef


def show_switch(pipeline: PipelineDef, base: Path, doors: SystemClients, number: int | None) -> None:
    """Switch, or go back, and say where the aliases lead."""
    from millrace.engine.replay import switch

    if number is None:
        after = switch.rollback(base, pipeline.name, doors)
    else:
        after = switch.switch(base, pipeline.name, number, doors)
    for output in switch.alias_targets(after, after.current):
        out().print(f"{output.kind} {output.name} -> {output.own}", markup=False, soft_wrap=True)
    say(f"generation {after.current} counts from now on; millrace run goes on with it, --rollback takes {after.before}")
    tell_handovers(pipeline, base, after)


def tell_handovers(pipeline: PipelineDef, base: Path, known: Generations) -> None:
    """Say what sinks that have one generation only get twice, or never, because another one counts."""
    from millrace.engine.replay.handover import handovers

    for one in handovers(pipeline, base, known.before, known.current):
        name = f"the sink {one.sink.connection.connector} of {one.sink.table!r}"
        if one.repeated:
            told = ", ".join(one.repeated)
            say(f"{name} gets offsets twice: generation {known.before} gave them, and {known.current} will: {told}")
        if one.missed:
            told = ", ".join(one.missed)
            say(f"{name} misses offsets: {known.before} did not give them, and {known.current} is past them: {told}")
        if one.reread:
            told = ", ".join(one.reread)
            say(f"{name} gets all once more that {told} has: generation {known.current} reads it from the beginning")


def drop_generation(pipeline: PipelineDef, base: Path, doors: SystemClients, number: int, *, yes: bool) -> None:
    """Delete a generation, if the user agrees."""
    from millrace.engine.replay import switch
    from millrace.engine.replay.generations import load

    known = load(base)
    known.require(number, whole=False)
    outputs = switch.outputs_to_drop(known, number)
    named = ", ".join(one.own for one in outputs if switch.is_deletable(one))
    if confirm(f"delete generation {number} for good, with {named or 'its state'}?", yes):
        switch.drop(base, pipeline.name, number, doors)
        say(f"deleted generation {number}: {named or 'its state'}")
        for output in outputs:
            if not switch.is_deletable(output):
                say(f"{output.own} is not on this machine and stays: delete it with the tools of its store")


def show_list(base: Path, *, as_json: bool) -> None:
    """The generations of a pipeline."""
    from millrace.engine.replay.generations import listed

    found = listed(base)
    if as_json:
        show_json(found)
    elif not found:
        say("there is one generation: what the file names")
    else:
        rows = [(one["number"], "*" if one["current"] else "", one["standing"], one["outputs"]) for one in found]
        show_table(("generation", "current", "how it was made", "outputs"), rows)


def show_comparison(pipeline: PipelineDef, base: Path, number: int, settings: RunSettings, *, as_json: bool) -> None:
    """What differs between the current generation and another; exit code 1 if anything does."""
    from millrace.engine.replay.compare import compare_generations, coverage_differences
    from millrace.engine.replay.generations import load

    known = load(base)
    made = known.require(number)
    if number == known.current:
        raise InvalidReplay(f"generation {number} is the current one", hint="--generation N names another")
    numbers, left_out = (known.current, number), made.left_out if made else ()
    reach = coverage_differences(pipeline, base, numbers, left_out)
    with _spark(pipeline, settings) as spark, progress_line() as renew:
        seen = 0

        def told(count: int) -> None:
            nonlocal seen
            seen += count
            renew(f"{format_count(seen, 'record')} compared")

        found = list(compare_generations(pipeline, numbers, left_out, settings.context, spark, told))
    if as_json:
        show_json(
            {"generations": numbers, "same_input": not reach, "input": reach, "outputs": list(map(asdict, found))}
        )
    else:
        for one in found:
            _show(one, numbers)
        for each in reach:
            say(
                f"query {each.query!r} has read {each.partition} up to {each.old:,} in generation {numbers[0]} "
                f"and up to {each.new:,} in {numbers[1]}: some differences do not come from the code"
            )
        if not reach:
            say("both have read the same records, as far as their checkpoints tell")
    if not all(one.same for one in found):
        raise typer.Exit(1)


def _show(one: Comparison, numbers: tuple[int, int]) -> None:
    out().print(f"{one.name}: {'the same' if one.same else 'not the same'} ({one.how})", markup=False, soft_wrap=True)
    for number, (rows, keys) in zip(numbers, (one.old, one.new), strict=True):
        out().print(
            f"  generation {number}: {format_count(rows, 'row')}, {format_count(keys, 'key')}",
            markup=False,
            soft_wrap=True,
        )
    if not one.same:
        words = f"only in {numbers[0]}: {one.only_old:,}, only in {numbers[1]}: {one.only_new:,}"
        out().print(f"  {words}, otherwise: {one.differing:,}", markup=False, soft_wrap=True)
        shown = [(each.key, each.old, each.new) for each in one.sample]
        show_table(("key", f"generation {numbers[0]}", f"generation {numbers[1]}"), shown)


@contextmanager
def _spark(pipeline: PipelineDef, settings: RunSettings) -> Iterator[Any]:
    """A session that is started when somebody asks for it."""
    from millrace.engine.session.session import close_session, open_session

    opened: list[Any] = []

    def session() -> Any:
        if not opened:
            opened.append(open_session(pipeline.name, master=settings.master, settings=settings.spark_conf))
        return opened[0]

    try:
        yield session
    finally:
        for one in opened:
            close_session(one)
