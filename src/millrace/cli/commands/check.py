"""`millrace check`: every problem of a pipeline, before anything runs."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import setting_option
from millrace.cli.output import out, say, show_json, status_line
from millrace.errors import FileUnusable, InvalidDefinition, InvalidOption, Problem
from millrace.settings import ARCHIVE, BULK_READER, CHECK_TIMEOUT, RESTARTS, STATE_KEYS, Setting
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.cli.isolated_check import CheckedContents, CheckResult, CheckStep
    from millrace.pipeline.model import PipelineDef

_OF_RUNS: tuple[Setting[Any], ...] = (BULK_READER, ARCHIVE, STATE_KEYS, RESTARTS)


def check(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", show_default=False, help="A pipeline's .py, .yaml or .yml file.")
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Start Spark as well, and let it analyse the plans on empty streams.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of problems.")] = False,
    timeout: Annotated[str | None, setting_option(CHECK_TIMEOUT, "DURATION", "--timeout")] = None,
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
    limit_s = CHECK_TIMEOUT.value(timeout)
    try:
        found = _examined_apart(file, limit_s, deep=deep, as_json=as_json)
    except FileUnusable as error:
        if not as_json:
            raise
        show_json([_problem_fields(Problem(error.condition, error.message, error.place, error.hint, error.why))])
        raise typer.Exit(2) from None
    if as_json:
        show_json([_problem_fields(problem) for problem in found.problems])
    else:
        _show(file, found)
        if deep and found.complete and not found.spark_asked:
            say("Spark was not asked: fix these first")
    if found.left_out:
        say(f"and {format_count(found.left_out, 'more problem')}, which are not shown")
    if found.errors or found.left_out:  # which may be errors as well
        raise typer.Exit(2)


def _examined_apart(file: str, limit_s: float, *, deep: bool, as_json: bool) -> CheckResult:
    """Return what a child finds that reads the file: whatever its code does, this process is not touched by it."""
    from millrace.cli.isolated_check import CheckedContents, CheckResult, examined_apart
    from millrace.cli.signals import interruptible
    from millrace.connectors.base.registry import connector_names
    from millrace.pipeline.loading import require_file

    # Before the fork: it is no time of the file's, and the file may leave the child unable to import anything.
    connectors = connector_names()
    importlib.import_module("millrace.pipeline.checks")
    importlib.import_module("millrace.connectors.base.registry")
    require_file(file)
    _require_settings()

    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))) if deep else None

        def examine(step: CheckStep) -> CheckResult:
            pipeline, problems = _examined(file, connectors)
            if pipeline is None:
                return CheckResult(problems)
            contents = CheckedContents(len(pipeline.sources), len(pipeline.tables), len(pipeline.sinks))
            if folder is None or _errors(problems):
                return CheckResult(problems, contents)
            return CheckResult([*problems, *_deep(pipeline, folder, step)], contents, spark_asked=True)

        def spark_starts() -> None:
            opened.enter_context(status_line())("Spark analyses the plans")

        with interruptible():
            return examined_apart(file, examine, limit_s, quiet=as_json, spark_starts=spark_starts)


def load_sound(file: str) -> PipelineDef:
    """The pipeline of a file, after `check`: its errors are raised all at once, its warnings are said."""
    _require_settings()
    from millrace.connectors.base.registry import connector_names

    pipeline, problems = _examined(file, connector_names())
    _refuse(file, problems)
    if pipeline is None:
        raise InvalidDefinition(f"{file} is no pipeline")
    return pipeline


def require_sound(pipeline: PipelineDef) -> None:
    """The same for a pipeline that is loaded already."""
    _refuse(pipeline.place.file, _checked(pipeline))


def _refuse(file: str, problems: list[Problem]) -> None:
    if _errors(problems):
        raise InvalidDefinition.listing(file, _errors(problems))
    for problem in problems:
        for line in problem.lines():
            say(line)


def _require_settings() -> None:
    """Raise what a run would raise later, when topics have been made."""
    for setting in _OF_RUNS:
        setting.value()


def _examined(file: str, connectors: Collection[str]) -> tuple[PipelineDef | None, list[Problem]]:
    from millrace.pipeline.checks import in_order
    from millrace.pipeline.loading import read_file

    pipeline, problems = read_file(file, connectors)
    found = _checked(pipeline) if pipeline else []
    return pipeline, in_order([*problems, *found])


def _checked(pipeline: PipelineDef) -> list[Problem]:
    from millrace.connectors.base.registry import CONNECTORS
    from millrace.pipeline.checks import check as check_pipeline

    return check_pipeline(pipeline, CONNECTORS)


def _deep(pipeline: PipelineDef, folder: Path, step: CheckStep) -> list[Problem]:
    """What Spark says, which is started for this alone."""
    from millrace.engine.deep_check import deep_problems
    from millrace.engine.session.session import close_session, open_session

    step.of_millrace()
    beside = Path(pipeline.place.file).absolute().parent
    spark = open_session(pipeline.name, master="local[1]", settings={}, log=folder / "spark.log", module_folder=beside)
    try:
        return deep_problems(pipeline, spark, step.of_the_file)
    finally:
        step.of_millrace()
        close_session(spark)


def _errors(problems: list[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _show(file: str, found: CheckResult) -> None:
    console = out()
    for problem in found.problems:
        first, *rest = problem.lines()
        console.print(
            first, style="bold red" if problem.severity == "error" else "yellow", markup=False, soft_wrap=True
        )
        for line in rest:
            console.print(line, markup=False, soft_wrap=True)
    errors = len(found.errors)
    counted = [_count(errors, "error"), _count(len(found.problems) - errors, "warning")]
    summary = ", ".join(one for one in counted if one) or "no problems"
    console.print(f"{file}: {summary}{_contents(found.contents)}", markup=False, soft_wrap=True)


def _contents(contents: CheckedContents | None) -> str:
    if contents is None:
        return ""
    parts = (("source", contents.sources), ("table", contents.tables), ("sink", contents.sinks))
    return f" ({', '.join(_count(count, noun, always=True) for noun, count in parts)})"


def _count(number: int, noun: str, *, always: bool = False) -> str:
    return format_count(number, noun) if number or always else ""


def _problem_fields(problem: Problem) -> dict[str, str | int | None]:
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
    from millrace.connectors.base.registry import sink_forms, source_forms
    from millrace.pipeline.loading.json_schema import json_schema

    show_json(json_schema(source_forms(), sink_forms()))
