"""`millrace check`: every problem of a pipeline, before anything runs."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from millrace.cli.output import out, say, show_json, status_line
from millrace.errors import FileUnusable, InvalidDefinition, InvalidOption, Problem
from millrace.settings import ARCHIVE, BULK, RESTARTS, STATE_KEYS, TRUST, Setting
from millrace.units import so_many

if TYPE_CHECKING:
    from millrace.pipeline.model import Pipeline

_OF_RUNS: tuple[Setting[Any], ...] = (BULK, TRUST, ARCHIVE, STATE_KEYS, RESTARTS)


def check(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", show_default=False, help="A pipeline's .py, .yaml or .yml file.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Start Spark as well, and let it analyse the plans on empty streams.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of problems.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the YAML form, for editors, and nothing else.")
    ] = False,
) -> None:
    """Tell every problem of a pipeline at once, with its place and what to do; exit code 2 when one is an error."""
    if schema:
        _show_schema()
        return
    if file is None:
        raise InvalidOption("no file was named", hint="millrace check FILE")
    try:
        with _output_beside() if as_json else nullcontext():
            pipeline, problems = _examined(file)
    except FileUnusable as error:
        if not as_json:
            raise
        pipeline, problems = None, [Problem(error.condition, error.message, error.place, error.hint, error.why)]
    analysed = deep and pipeline is not None and not _errors(problems)
    if analysed and pipeline is not None:
        with _output_beside() if as_json else nullcontext():
            problems = [*problems, *_deep(pipeline)]
    if as_json:
        show_json([_plain(problem) for problem in problems])
    else:
        _show(file, pipeline, problems)
        if deep and not analysed:
            say("Spark was not asked: mend these first")
    if _errors(problems):
        raise typer.Exit(2)


def _output_beside() -> redirect_stdout[TextIO]:
    """What a pipeline's file prints while it is read goes to standard error: nothing may stand around the JSON."""
    return redirect_stdout(sys.stderr)


def load_sound(file: str) -> Pipeline:
    """The pipeline of a file, after `check`: its errors are raised all at once, its warnings are said."""
    pipeline, problems = _examined(file)
    _refuse(file, problems)
    if pipeline is None:
        raise InvalidDefinition(f"{file} is no pipeline")
    return pipeline


def require_sound(pipeline: Pipeline) -> None:
    """The same for a pipeline that is loaded already."""
    _refuse(pipeline.place.file, _checked(pipeline))


def _refuse(file: str, problems: list[Problem]) -> None:
    if _errors(problems):
        raise InvalidDefinition.listing(file, _errors(problems))
    for problem in problems:
        for line in problem.lines():
            say(line)


def _examined(file: str) -> tuple[Pipeline | None, list[Problem]]:
    from millrace.connectors.forms import connector_names
    from millrace.pipeline.check import in_order
    from millrace.pipeline.load import read

    for setting in _OF_RUNS:
        setting.value()  # whatever a run would stumble over later, when topics have been made
    pipeline, problems = read(file, connector_names())
    found = _checked(pipeline) if pipeline else []
    return pipeline, in_order([*problems, *found])


def _checked(pipeline: Pipeline) -> list[Problem]:
    from millrace.connectors.options import CONNECTORS
    from millrace.pipeline.check import check as check_pipeline

    return check_pipeline(pipeline, CONNECTORS)


def _deep(pipeline: Pipeline) -> list[Problem]:
    """What Spark says, which is started for this alone."""
    from pathlib import Path

    from millrace.engine import deep
    from millrace.engine.session import close_session, open_session

    with status_line() as waiting:
        waiting("Spark analyses the plans")
        beside = Path(pipeline.place.file).absolute().parent
        spark = open_session(pipeline.name, master="local[1]", settings={}, beside=beside)
        try:
            return deep.problems(pipeline, spark)
        finally:
            close_session(spark)


def _errors(problems: list[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _show(file: str, pipeline: Pipeline | None, problems: list[Problem]) -> None:
    console = out()
    for problem in problems:
        first, *rest = problem.lines()
        console.print(
            first, style="bold red" if problem.severity == "error" else "yellow", markup=False, soft_wrap=True
        )
        for line in rest:
            console.print(line, markup=False, soft_wrap=True)
    errors = len(_errors(problems))
    counted = [_count(errors, "error"), _count(len(problems) - errors, "warning")]
    summary = ", ".join(one for one in counted if one) or "no problems"
    console.print(f"{file}: {summary}{_contents(pipeline)}", markup=False, soft_wrap=True)


def _contents(pipeline: Pipeline | None) -> str:
    if pipeline is None:
        return ""
    parts = (("source", pipeline.sources), ("table", pipeline.tables), ("sink", pipeline.sinks))
    return f" ({', '.join(_count(len(found), noun, always=True) for noun, found in parts)})"


def _count(number: int, noun: str, *, always: bool = False) -> str:
    return so_many(number, noun) if number or always else ""


def _plain(problem: Problem) -> dict[str, str | int | None]:
    place = problem.place
    return {
        "file": place.file if place else None,
        "line": place.line if place else None,
        "condition": problem.condition,
        "severity": problem.severity,
        "message": problem.message,
        "why": problem.why,
        "hint": problem.hint,
    }


def _show_schema() -> None:
    from millrace.connectors.forms import sink_forms, source_forms
    from millrace.pipeline.jsonschema import json_schema

    show_json(json_schema(source_forms(), sink_forms()))
