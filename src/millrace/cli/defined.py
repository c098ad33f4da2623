"""Options of the commands that take a pipeline's file: which one, where it remembers, and what Spark is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.errors import InvalidOption
from millrace.settings import STATE
from millrace.stores import StorePath, state_path

if TYPE_CHECKING:
    from millrace.pipeline.model import Pipeline

PipelineFile = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's .py or .yaml file.")]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="DIR", parser=state_path, show_default=".millrace/pipelines/NAME", help="Where it remembers."
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", show_default="local[*]", help="The Spark master.")
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A Spark setting; may be given several times."),
]
ShipPackages = Annotated[
    bool, typer.Option("--ship-packages", help="Send this Python's packages to executors that do not have them.")
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="QUERY",
        help="Go on with the state of a query though it was computed otherwise; may be given several times.",
    ),
]


def state_folder(pipeline: Pipeline, state: Path | None, *, store: bool = False) -> Path:
    """Where a pipeline remembers; its first generation, if it has several. Only a run reaches one on a store."""
    if isinstance(state, StorePath) and not store:
        raise InvalidOption(
            f"this command does not reach a state folder on a store: {state}",
            why="only a run has the keys and the way to it",
            hint="millrace run and submit take it; this command wants a folder that this machine sees",
        )
    return state or STATE.value() / "pipelines" / pipeline.name
