"""`millrace query`: SQL over the tables that a running pipeline keeps in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.options import AsJson
from millrace.cli.output import say, show_json, show_table
from millrace.errors import InvalidOption
from millrace.settings import STATE

_OF_A_STORE = "[0-9a-f]" * 8
"""What the folder here of a run with its state on a store is called besides its pipeline's name."""


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A SELECT over the names of memory tables, in DuckDB's dialect.")
    ],
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", show_default="the one that runs", help="Which pipeline.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", metavar="DIR", help="Its state folder, if it was started with one.")
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, max=10_000, help="At most N rows.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Ask a running pipeline for rows of its memory sinks."""
    from millrace.engine.memory_sql import ask_run

    answered = ask_run(state or _folder(pipeline), sql, rows)
    if as_json:
        show_json([dict(zip(answered["columns"], row, strict=True)) for row in answered["rows"]])
    else:
        show_table(answered["columns"], answered["rows"])
    if answered["more"]:
        say(f"there are more rows than these {len(answered['rows']):,}: --rows shows up to 10,000")


def _folder(pipeline: str | None) -> Path:
    root: Path = STATE.value() / "pipelines"
    if pipeline:
        from millrace.engine.replay.generations import load, state_of

        named = state_of(root / pipeline, load(root / pipeline).current)
        on_stores = sorted(path.parent for path in root.glob(f"{pipeline}-{_OF_A_STORE}/query.json"))
        return on_stores[0] if len(on_stores) == 1 and not (named / "query.json").exists() else named
    running = sorted(path.parent for path in root.glob("*/query.json"))
    if len(running) != 1:
        names = ", ".join(path.name for path in running)
        raise InvalidOption(
            f"{len(running)} pipelines run here" if running else "no pipeline runs here",
            hint=f"choose one with --pipeline: {names}" if running else "start one with millrace run FILE",
        )
    return running[0]
