"""The pages of the two things that run: a pipeline, and a program that is not ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from millrace.connectors.systems import patterns_read, topics_read, uses
from millrace.dashboard.described import described, masked, undescribed
from millrace.dashboard.server import Options
from millrace.dashboard.watching import About, Watching
from millrace.engine.generations import FIRST, listed
from millrace.errors import StateMismatch
from millrace.pipeline.plan import Plan
from millrace.telemetry.board import Board
from millrace.telemetry.outline import outline_of


def page_of_pipeline(
    plan: Plan,
    board: Board,
    options: Options,
    *,
    state: Path,
    generation: int = FIRST,
    base: Path | None = None,
    master: str | None = None,
    spark: Mapping[str, str] | None = None,
    kafka: str | None = None,
) -> Watching:
    """The page of a pipeline that is about to run; `base` is the state folder of its first generation."""

    @cache
    def lasting() -> Mapping[str, Any]:
        return described(plan, master=master, spark=spark or {}, kafka=kafka, generation=generation)

    def describe() -> Mapping[str, Any]:
        # A replay or a switch beside the run changes which there are.
        try:
            found = listed(base or state)
        except StateMismatch:  # the note of them is another version's; the rest of the page is not its matter
            found = []
        return {**lasting(), "generations": masked("generations", found)}

    about = About(
        describe,
        outline_of(plan, topics_read(plan.pipeline)),
        plan.pipeline.name,
        state,
        {source: query.name for query in plan.queries for source in query.buries},
        uses(plan.pipeline, "kafka"),
        patterns_read(plan.pipeline),
    )
    return Watching(board, about, options)


def page_of_program(
    script: Path,
    board: Board,
    options: Options,
    *,
    master: str | None = None,
    spark: Mapping[str, str] | None = None,
    kafka: str | None = None,
) -> Watching:
    """The page of a PySpark program: its queries appear when it starts them."""

    @cache
    def describe() -> Mapping[str, Any]:
        return undescribed(script.name, str(script), master=master, spark=spark or {}, kafka=kafka)

    return Watching(board, About(describe, uses_kafka=kafka is not None), options)
