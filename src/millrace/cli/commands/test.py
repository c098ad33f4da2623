"""`millrace test`: the tests beside pipelines, on one Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.output import out, say
from millrace.cli.services import prepare_spark
from millrace.errors import InvalidTest
from millrace.units import format_duration

if TYPE_CHECKING:
    from millrace.testing.runner import Result
    from millrace.testing.spec import SpecFile


def run_tests(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR]...",
            show_default="this folder",
            help="A pipeline with NAME.test.yaml beside it, such a file, or a folder with some in it.",
        ),
    ] = None,
    only: Annotated[str, typer.Option("--only", metavar="TEXT", help="Tests whose names have this in them.")] = "",
    accept: Annotated[
        bool, typer.Option("--accept", help="Write what came into the files, in the place of what was expected.")
    ] = False,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Cut off every batch between its write and its commit, and run it again.")
    ] = False,
) -> None:
    """Test pipelines: rows in, rows out, event time under control; no Kafka is needed.

    Exit code 1 when one fails, 2 when a file cannot be read as tests.
    """
    from millrace.testing import runner
    from millrace.testing.spec_file import read_spec_file

    files = runner.find(paths or ["."])
    if not files:
        raise InvalidTest("there are no tests here", hint="a pipeline's tests stand beside it, in NAME.test.yaml")
    spec_files = [read_spec_file(file) for file in files]
    prepare_spark()
    results = []
    for spec_file in spec_files:
        for result in runner.run(spec_file, only, chaos=chaos):
            _show(result)
            results.append(result)
    refused = _accept(results, spec_files) if accept else 0
    failed = sum(not result.passed for result in results)
    if not results:
        raise InvalidTest(f"no test has {only!r} in its name", hint="leave --only out")
    _sum_up(len(results), failed, sum(result.seconds for result in results))
    if refused or any(result.error or _stands(result, accept) for result in results):
        raise typer.Exit(1)


def _accept(results: list[Result], spec_files: list[SpecFile]) -> int:
    """Write what came; how many expectations could not be written."""
    from millrace.testing.accept import accept

    accepted = accept(results, spec_files)
    for file in accepted.changed:
        say(f"{file}: what came is what is expected now")
    for problem in accepted.refused:
        say("\n".join(problem.lines()))
    return len(accepted.refused)


def _stands(result: Result, accept: bool) -> bool:
    """Whether a test has failed in what cannot be accepted, if that was asked for."""
    return any(not accept or one.expected is None for one in result.failures)


def _show(result: Result) -> None:
    console = out()
    mark, style = ("passed", "green") if result.passed else ("FAILED", "bold red")
    line = f"{mark}  {result.spec_file.file}: {result.name} ({format_duration(result.seconds)})"
    console.print(line, style=style, markup=False, soft_wrap=True)
    for failure in result.failures:
        told = str(failure).replace("\n", "\n  ")
        console.print(f"  {told}", markup=False, soft_wrap=True)
    for told in result.error.lines() if result.error else ():
        console.print(f"  {told}", markup=False, soft_wrap=True)


def _sum_up(count: int, failed: int, seconds: float) -> None:
    told = f"{count - failed} passed" + (f", {failed} failed" if failed else "")
    out().print(f"{told} in {format_duration(seconds)}", markup=False)
