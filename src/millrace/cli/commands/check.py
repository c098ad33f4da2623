"""`millrace check`: report every problem of a pipeline before anything runs.

- `check` reads the file in a process of its own (see `isolated_check`) and prints or exports the problems.
- `load_sound` and `require_sound` are for commands that need a pipeline without errors.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.app import OUTPUT_PANEL, RUN_PANEL
from millrace.cli.output import print_line, print_result, show_json, status_line
from millrace.errors import InputError, InvalidDefinition, InvalidOption, Problem, SourceLocation
from millrace.settings import ARCHIVE, BULK_READER, CHECK_TIMEOUT, RESTARTS, STATE_KEYS, Setting
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.cli.isolated_check import CheckResult, CheckStep
    from millrace.pipeline.lineage import Link
    from millrace.pipeline.loading.folder import FolderContents
    from millrace.pipeline.model import PipelineDef

_RUN_SETTINGS: tuple[Setting[Any], ...] = (BULK_READER, ARCHIVE, STATE_KEYS, RESTARTS)


def check(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE|DIR",
            show_default=False,
            help="A pipeline's .py, .yaml or .yml file, or a folder: each pipeline in it, and what feeds what.",
        ),
    ] = None,
    deep: bool = RUN_PANEL.flag("Also start Spark, which analyses the queries on empty streams."),
    timeout: str | None = RUN_PANEL.setting(CHECK_TIMEOUT, "DURATION"),
    as_json: bool = OUTPUT_PANEL.flag("Print a JSON list of problems.", names="--json"),
    schema: bool = OUTPUT_PANEL.flag("Print the JSON Schema of pipeline files, for editors."),
) -> None:
    """Report every problem of a pipeline, with its line and how to fix it; exit code 2 if one is an error."""
    if schema:
        from millrace.connectors.base.registry import sink_forms, source_forms
        from millrace.pipeline.loading.json_schema import json_schema

        show_json(json_schema(source_forms(), sink_forms()))
        return
    if not file:
        raise InvalidOption("no file was named", hint="millrace check FILE")
    from millrace.pipeline.lineage import links, mismatches, shared_names
    from millrace.pipeline.loading.folder import FolderContents, pipelines_in

    limit_s = CHECK_TIMEOUT.value(timeout)
    _require_settings()
    try:
        contents = pipelines_in(file) if Path(file).is_dir() else FolderContents((file,))
        check_one = _check_isolated if contents.pipelines == (file,) else _check_of_folder
        results = {each: check_one(each, limit_s, deep=deep, as_json=as_json) for each in contents.pipelines}
    except InputError as error:
        if not as_json:
            raise
        show_json([_as_json(Problem(error.condition, error.message, error.place, error.hint, error.why))])
        raise typer.Exit(2) from None
    found = links(end for result in results.values() for end in result.endpoints)
    between = [*shared_names(_names(results)), *mismatches(found)]
    if as_json:
        problems = [problem for result in results.values() for problem in result.problems]
        show_json([_as_json(problem) for problem in [*dict.fromkeys(problems), *between]])
    else:
        for each, result in results.items():
            _show(each, result, deep=deep)
        _show_folder(contents, found, between)
    left_out = sum(result.left_out for result in results.values())
    if left_out:
        print_line(f"and {format_count(left_out, 'more problem')}, which are not shown")
    if left_out or any(_errors(result.problems) for result in results.values()):  # those left out may be errors as well
        raise typer.Exit(2)


def _check_of_folder(file: str, limit_s: float, *, deep: bool, as_json: bool) -> CheckResult:
    """Check a file; what would end the command is its problem, and the others are checked all the same."""
    from millrace.cli.isolated_check import CheckResult

    try:
        return _check_isolated(file, limit_s, deep=deep, as_json=as_json)
    except InputError as error:
        place = error.place or SourceLocation(file.partition("::")[0])
        return CheckResult([Problem(error.condition, error.message, place, error.hint, error.why)], complete=False)


def _names(results: Mapping[str, CheckResult]) -> Iterator[tuple[str, SourceLocation]]:
    """Yield the names of the pipelines that could be read, and where they stand."""
    for file, result in results.items():
        if result.contents:
            yield result.contents.name, SourceLocation(file.partition("::")[0], result.contents.line or None)


def _check_isolated(file: str, limit_s: float, *, deep: bool, as_json: bool) -> CheckResult:
    """Check the file in a child process, so that its code cannot affect this one."""
    from millrace.cli.isolated_check import CheckedContents, CheckResult, check_in_child
    from millrace.cli.signals import interruptible
    from millrace.connectors.base.registry import CONNECTORS, connector_names
    from millrace.pipeline.lineage import endpoints
    from millrace.pipeline.loading import require_file

    # Before the fork: the file's time limit does not include it, and the file may leave the child unable to import.
    connectors = connector_names()
    importlib.import_module("millrace.pipeline.checks")
    importlib.import_module("millrace.pipeline.lineage")
    importlib.import_module("millrace.connectors.base.registry")
    require_file(file)

    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))) if deep else None

        def examine(step: CheckStep) -> CheckResult:
            pipeline, problems = _problems_of_file(file, connectors)
            if pipeline is None:
                return CheckResult(problems)
            counts = len(pipeline.sources), len(pipeline.tables), len(pipeline.sinks)
            contents = CheckedContents(pipeline.name, pipeline.place.line or 0, *counts)
            if _errors(problems):
                return CheckResult(problems, contents)
            result = CheckResult(problems, contents, endpoints=tuple(endpoints(pipeline, CONNECTORS)))
            if folder is None:
                return result
            step.report(result)  # in case the deep check does not end
            return replace(result, problems=[*problems, *_deep(pipeline, folder, step)], spark_asked=True)

        def spark_starts() -> None:
            opened.enter_context(status_line())("Spark analyses the plans")

        with interruptible():
            return check_in_child(file, examine, limit_s, quiet=as_json, spark_starts=spark_starts)


def load_sound(file: str) -> PipelineDef:
    """Return the pipeline of a file; raise all its errors at once, and print its warnings."""
    _require_settings()
    from millrace.connectors.base.registry import connector_names

    pipeline, problems = _problems_of_file(file, connector_names())
    _raise_errors(file, problems)
    if pipeline is None:
        raise InvalidDefinition(f"{file} is no pipeline")
    return pipeline


def require_sound(pipeline: PipelineDef) -> None:
    """Raise all errors of a pipeline at once, and print its warnings."""
    _raise_errors(pipeline.place.file, _problems_of_pipeline(pipeline))


def _raise_errors(file: str, problems: list[Problem]) -> None:
    if _errors(problems):
        raise InvalidDefinition.listing(file, _errors(problems))
    for problem in problems:
        for line in problem.lines():
            print_line(line)


def _require_settings() -> None:
    """Raise now what a run would raise later, after it has created topics."""
    for setting in _RUN_SETTINGS:
        setting.value()


def _problems_of_file(file: str, connectors: Collection[str]) -> tuple[PipelineDef | None, list[Problem]]:
    from millrace.pipeline.checks import in_order
    from millrace.pipeline.loading import read_file

    pipeline, problems = read_file(file, connectors)
    return pipeline, in_order([*problems, *(_problems_of_pipeline(pipeline) if pipeline else [])])


def _problems_of_pipeline(pipeline: PipelineDef) -> list[Problem]:
    from millrace.connectors.base.registry import CONNECTORS
    from millrace.pipeline.checks import check as check_pipeline

    return check_pipeline(pipeline, CONNECTORS)


def _deep(pipeline: PipelineDef, folder: Path, step: CheckStep) -> list[Problem]:
    """Start Spark, and return the problems that it reports."""
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


def _show(file: str, result: CheckResult, *, deep: bool) -> None:
    _show_problems(result.problems)
    errors = len(_errors(result.problems))
    counts = {"error": errors, "warning": len(result.problems) - errors}
    summary = ", ".join(format_count(count, noun) for noun, count in counts.items() if count) or "no problems"
    if size := result.contents:
        parts = (("source", size.sources), ("table", size.tables), ("sink", size.sinks))
        summary += f" ({', '.join(format_count(count, noun) for noun, count in parts)})"
    print_result(f"{file}: {summary}")
    if deep and result.complete and not result.spark_asked:
        print_line("Spark was not asked: fix these first")


def _show_folder(contents: FolderContents, found: list[Link], between: list[Problem]) -> None:
    """Print what a folder adds: how its pipelines hang together, and which files are none."""
    from millrace.pipeline.lineage import texts

    for link in texts(found):
        print_result(link)
    _show_problems(between)
    for left_out in contents.left_out:
        print_line(str(left_out))


def _show_problems(problems: list[Problem]) -> None:
    for problem in problems:
        first, *rest = problem.lines()
        print_result(first, style="bold red" if problem.severity == "error" else "yellow")
        for line in rest:
            print_result(line)


def _as_json(problem: Problem) -> dict[str, str | int | None]:
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
