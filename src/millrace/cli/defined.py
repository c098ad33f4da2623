"""Options of the commands that take a pipeline's file: which one, where it remembers, and what Spark is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.settings import STATE

if TYPE_CHECKING:
    from millrace.pipeline.model import Pipeline

PipelineFile = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline's .py or .yaml file.")]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", show_default=".millrace/pipelines/NAME", help="Where it remembers."),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", show_default="local[*]", help="The Spark master.")
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A Spark setting; may be given several times."),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="QUERY",
        help="Go on with the state of a query though it was computed otherwise; may be given several times.",
    ),
]


def state_folder(pipeline: Pipeline, state: Path | None) -> Path:
    """Where a pipeline remembers; its first generation, if it has several."""
    return state or STATE.value() / "pipelines" / pipeline.name
