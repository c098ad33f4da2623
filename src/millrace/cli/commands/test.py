"""`millrace test`: run the tests of pipelines, on one Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from millrace.cli.app import OUTPUT_PANEL, RUN_PANEL
from millrace.cli.output import print_line, print_result, show_error
from millrace.cli.services import prepare_spark
from millrace.errors import FileUnusable, InputError, InvalidTest
from millrace.pipeline.loading import load
from millrace.pipeline.loading.folder import pipelines_in
from millrace.units import format_duration

if TYPE_CHECKING:
    from millrace.testing.runner import Result
    from millrace.testing.spec import SpecFile

_Item = TypeVar("_Item")


def run_tests(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR]...",
            show_default="this folder",
            help="A pipeline with tests in NAME.test.yaml, such a file, or a folder with some.",
        ),
    ] = None,
    only: str = RUN_PANEL.option("Only tests whose names contain this.", "TEXT", default=""),
    chaos: bool = RUN_PANEL.flag("Kill every batch between its write and its commit, and run it again."),
    accept: bool = OUTPUT_PANEL.flag("Write the actual rows into the files as expected rows."),
) -> None:
    """Test pipelines: rows in, rows out, with control over event time; no Kafka is needed.

    Exit code 1 if a test fails, 2 if a file cannot be read as tests.
    """
    from millrace.testing import runner

    files = runner.find(paths or ["."])
    if not files:
        raise InvalidTest(
            "there are no tests here", hint="the tests of NAME.yaml are in NAME.test.yaml, in the same folder"
        )
    unusable: list[InputError] = []
    """Files of tests, or pipelines, that cannot be read; the others of a folder are tested all the same."""
    specs = [spec for file in files for spec in _usable(partial(_specs, file), unusable, files)]
    unusable += _show_untested(paths or ["."], specs)
    prepare_spark()
    results = []
    for spec in specs:
        for result in _usable(partial(runner.run, spec, only, chaos=chaos), unusable, files):
            _show(result)
            results.append(result)
    refused = _accept(results, specs) if accept else 0
    failed = sum(not result.passed for result in results)
    for error in unusable:
        show_error(error)
    if unusable and not results:
        raise typer.Exit(2)
    if not results:
        raise InvalidTest(f"no test has {only!r} in its name", hint="leave --only out")
    summary = f"{len(results) - failed} passed" + (f", {failed} failed" if failed else "")
    print_result(f"{summary} in {format_duration(sum(result.seconds for result in results))}")
    if unusable:
        raise typer.Exit(2)
    if refused or any(result.error or _fails_after(result, accept) for result in results):
        raise typer.Exit(1)


def _specs(file: Path) -> list[SpecFile]:
    from millrace.testing.spec_file import read_spec_file

    return [read_spec_file(file)]


def _usable(items: Callable[[], Iterable[_Item]], unusable: list[InputError], files: list[Path]) -> Iterator[_Item]:
    """Yield items until one cannot be read, which is noted; the only file of all is an error at once."""
    try:
        yield from items()
    except InputError as error:
        if len(files) == 1:
            raise
        unusable.append(error)


def _show_untested(paths: list[str], specs: list[SpecFile]) -> list[InputError]:
    """Print which pipelines of folders have no tests; return the errors of those that cannot be read."""
    unusable: list[InputError] = []
    tested = {Path(file).resolve() for spec in specs for file in spec.pipelines}
    for folder in filter(lambda path: Path(path).is_dir(), paths):
        with suppress(FileUnusable):  # there is no pipeline in it: its tests name those of other folders
            contents = pipelines_in(folder)
            for pipeline in contents.pipelines:
                if Path(pipeline.partition("::")[0]).resolve() in tested:
                    continue
                if pipeline in contents.unreadable:
                    unusable += _error_of(pipeline)
                else:
                    print_line(f"{pipeline}: it has no tests")
    return unusable


def _error_of(file: str) -> list[InputError]:
    """Return why a file that does not parse is no pipeline; none of its code runs."""
    try:
        load(file)
    except InputError as error:
        return [error]
    return []


def _accept(results: list[Result], specs: list[SpecFile]) -> int:
    """Write the actual rows; return how many expectations could not be written."""
    from millrace.testing.accept import accept

    accepted = accept(results, specs)
    for file in accepted.changed:
        print_line(f"{file}: the actual rows are expected now")
    for problem in accepted.refused:
        print_line("\n".join(problem.lines()))
    return len(accepted.refused)


def _fails_after(result: Result, accept: bool) -> bool:
    """Return whether a test still fails after its rows were accepted, if they were."""
    return any(not accept or failure.expected is None for failure in result.failures)


def _show(result: Result) -> None:
    mark, style = ("passed", "green") if result.passed else ("FAILED", "bold red")
    line = f"{mark}  {result.spec_file.file}: {result.name} ({format_duration(result.seconds)})"
    print_result(line, style=style)
    for failure in result.failures:
        text = str(failure).replace("\n", "\n  ")
        print_result(f"  {text}")
    for text in result.error.lines() if result.error else ():
        print_result(f"  {text}")
