"""Generations of a pipeline's outputs on the terminal: list, compare, switch and drop them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millrace.cli.options import confirm
from millrace.cli.output import print_line, print_result, progress_line, show_json, show_table
from millrace.errors import InvalidReplay
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.engine.replay.compare import Comparison
    from millrace.engine.replay.generations import Generations
    from millrace.engine.replay.switch import SystemClients
    from millrace.engine.run import RunSettings
    from millrace.pipeline.model import PipelineDef


def show_switch(pipeline: PipelineDef, base: Path, clients: SystemClients, number: int | None) -> None:
    """Switch to a generation, or back to the previous one, and print where the aliases lead."""
    from millrace.engine.replay import switch

    if number is None:
        after = switch.rollback(base, pipeline.name, clients)
    else:
        after = switch.switch(base, pipeline.name, number, clients)
    for output in switch.alias_targets(after, after.current):
        print_result(f"{output.kind} {output.name} -> {output.own}")
    print_line(
        f"generation {after.current} is the current one now: millrace run resumes it; --rollback returns to "
        f"{after.before}"
    )
    print_handovers(pipeline, base, after)


def print_handovers(pipeline: PipelineDef, base: Path, generations: Generations) -> None:
    """Print what sinks without generations get twice, or never, because of the switch."""
    from millrace.engine.replay.handover import handovers

    before, current = generations.before, generations.current
    for handover in handovers(pipeline, base, before, current):
        name = f"the sink {handover.sink.connection.connector} of {handover.sink.table!r}"
        if offsets := ", ".join(handover.repeated):
            print_line(f"{name} gets offsets twice: generation {before} wrote them, and {current} will: {offsets}")
        if offsets := ", ".join(handover.missed):
            print_line(f"{name} misses offsets: {before} did not write them, and {current} is past them: {offsets}")
        if sources := ", ".join(handover.reread):
            print_line(f"{name} gets all of {sources} again: generation {current} reads it from the beginning")


def drop_generation(pipeline: PipelineDef, base: Path, clients: SystemClients, number: int, *, yes: bool) -> None:
    """Delete a generation, if the user agrees."""
    from millrace.engine.replay import switch
    from millrace.engine.replay.generations import load

    generations = load(base)
    generations.require(number, whole=False)
    outputs = switch.outputs_to_drop(generations, number)
    names = ", ".join(output.own for output in outputs if switch.is_deletable(output)) or "its state"
    if confirm(f"delete generation {number} permanently, with {names}?", yes):
        switch.drop(base, pipeline.name, number, clients)
        print_line(f"deleted generation {number}: {names}")
        for output in outputs:
            if not switch.is_deletable(output):
                print_line(f"{output.own} is not on this machine and is kept: delete it with the tools of its store")


def show_list(base: Path, *, as_json: bool) -> None:
    """List the generations of a pipeline."""
    from millrace.engine.replay.generations import listed

    generations = listed(base)
    if as_json:
        show_json(generations)
    elif not generations:
        print_line("there is one generation: the outputs that the file names")
    else:
        rows = [
            (each["number"], "*" if each["current"] else "", each["standing"], each["outputs"]) for each in generations
        ]
        show_table(("generation", "current", "how it was made", "outputs"), rows)


def show_comparison(pipeline: PipelineDef, base: Path, number: int, settings: RunSettings, *, as_json: bool) -> None:
    """Print what differs between the current generation and another; exit with code 1 if anything does."""
    from millrace.engine.replay.compare import compare_generations, coverage_differences
    from millrace.engine.replay.generations import load

    generations = load(base)
    generation = generations.require(number)
    if number == generations.current:
        raise InvalidReplay(f"generation {number} is the current one", hint="--generation N names another")
    numbers, left_out = (generations.current, number), generation.left_out if generation else ()
    differences = coverage_differences(pipeline, base, numbers, left_out)
    with _spark(pipeline, settings) as spark, progress_line() as update:
        compared = 0

        def on_records(count: int) -> None:
            nonlocal compared
            compared += count
            update(f"{format_count(compared, 'record')} compared")

        results = list(compare_generations(pipeline, numbers, left_out, settings.context, spark, on_records))
    if as_json:
        read = [{"query": at.query, "place": at.partition, "old": at.old, "new": at.new} for at in differences]
        outputs = list(map(asdict, results))
        show_json({"generations": numbers, "same_input": not differences, "input": read, "outputs": outputs})
    else:
        for result in results:
            _show(result, numbers)
        for reach in differences:
            print_line(
                f"query {reach.query!r} has read {reach.partition} up to {reach.old:,} in generation {numbers[0]} "
                f"and up to {reach.new:,} in {numbers[1]}: some differences do not come from the code"
            )
        if not differences:
            print_line("both have read the same records, according to their checkpoints")
    if not all(result.same for result in results):
        raise typer.Exit(1)


def _show(result: Comparison, numbers: tuple[int, int]) -> None:
    print_result(f"{result.name}: {'the same' if result.same else 'not the same'} ({result.how})")
    for number, (rows, keys) in zip(numbers, (result.old, result.new), strict=True):
        print_result(f"  generation {number}: {format_count(rows, 'row')}, {format_count(keys, 'key')}")
    if not result.same:
        only = f"only in {numbers[0]}: {result.only_old:,}, only in {numbers[1]}: {result.only_new:,}"
        print_result(f"  {only}, different: {result.differing:,}")
        sample = [(each.key, each.old, each.new) for each in result.sample]
        show_table(("key", f"generation {numbers[0]}", f"generation {numbers[1]}"), sample)


@contextmanager
def _spark(pipeline: PipelineDef, settings: RunSettings) -> Iterator[Any]:
    """Yield what returns a session, which is started at the first call."""
    from millrace.engine.session.session import close_session, open_session

    with ExitStack() as stack:

        @cache
        def session() -> Any:
            spark = open_session(pipeline.name, master=settings.master, settings=settings.spark_conf)
            stack.callback(close_session, spark)
            return spark

        yield session
