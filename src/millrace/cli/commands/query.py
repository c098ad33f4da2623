"""`millrace query`: SQL over the memory tables of a running pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.app import OUTPUT_PANEL, RUN_PANEL, STATE_PANEL
from millrace.cli.options import AsJson
from millrace.cli.output import print_line, show_json, show_table
from millrace.errors import InvalidOption
from millrace.settings import STATE

_OBJECT_STORE_SUFFIX = "[0-9a-f]" * 8
"""Follows the pipeline's name in the local folder of a run whose state is on an object store."""


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT over memory tables, in DuckDB's dialect.")],
    pipeline: str | None = RUN_PANEL.option("Which pipeline.", "NAME", show_default="the one that runs"),
    state: Annotated[
        Path | None, STATE_PANEL.option("State directory, if the run was started with one.", "DIR")
    ] = None,
    rows: int = OUTPUT_PANEL.option("Maximum number of rows.", "N", min=1, max=10_000, default=100),
    as_json: AsJson = False,
) -> None:
    """Query the memory sinks of a running pipeline."""
    from millrace.engine.memory_sql import ask_run

    answer = ask_run(state or _folder(pipeline), sql, rows)
    if as_json:
        show_json([dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]])
    else:
        show_table(answer["columns"], answer["rows"])
    if answer["more"]:
        print_line(f"there are more rows than these {len(answer['rows']):,}: --rows shows up to 10,000")


def _folder(pipeline: str | None) -> Path:
    root: Path = STATE.value() / "pipelines"
    if pipeline:
        from millrace.engine.replay.generations import load, state_of

        local = state_of(root / pipeline, load(root / pipeline).current)
        on_stores = sorted(path.parent for path in root.glob(f"{pipeline}-{_OBJECT_STORE_SUFFIX}/query.json"))
        return on_stores[0] if len(on_stores) == 1 and not (local / "query.json").exists() else local
    running = sorted(path.parent for path in root.glob("*/query.json"))
    if len(running) != 1:
        names = ", ".join(path.name for path in running)
        raise InvalidOption(
            f"{len(running)} pipelines run here" if running else "no pipeline runs here",
            hint=f"choose one with --pipeline: {names}" if running else "start one with millrace run FILE",
        )
    return running[0]
