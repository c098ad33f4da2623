"""Find `*.test.yaml` files and run their tests, one after the other, on one Spark session.

- `find` turns paths into files of tests.
- `run`, `run_one` and `run_case` run tests and return a `Result` for each.
- A `CaseFinding` is the result of one expectation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.engine.session.jvm import environment_variables
from millrace.errors import FileUnusable, InputError, InvalidTest, MillraceError, SourceLocation
from millrace.pipeline.loading.folder import files_in
from millrace.testing import compare
from millrace.testing.spec import ExpectedRows, SpecCase, SpecFile, SpecStep
from millrace.testing.spec_file import ENDINGS, sound_pipeline

if TYPE_CHECKING:
    from millrace.pipeline.model import PipelineDef
    from millrace.testing.pipeline_test import PipelineTest


@dataclass(frozen=True)
class CaseFinding:
    """The result of one expectation; without one, something that the test did not expect."""

    difference: str | None
    """The difference in words; None if the expectation is met."""
    place: SourceLocation | None
    expected: ExpectedRows | None = None
    actual: Any = None

    def __str__(self) -> str:
        return f"{self.place}: {self.difference}"


@dataclass(frozen=True)
class Result:
    """The result of one test on one pipeline."""

    spec_file: SpecFile
    pipeline: str
    case: SpecCase
    seconds: float
    findings: list[CaseFinding] = field(default_factory=list)
    error: MillraceError | None = None

    @property
    def failures(self) -> list[CaseFinding]:
        """Return the findings that are no success."""
        return [finding for finding in self.findings if finding.difference is not None]

    @property
    def passed(self) -> bool:
        """Return whether the test passed."""
        return not self.failures and self.error is None

    @property
    def name(self) -> str:
        """Return the name of the test, with its pipeline if the file has several."""
        return self.spec_file.test_name(self.case, self.pipeline)


def find(paths: Iterable[str]) -> list[Path]:
    """Return the files of tests for paths: such a file, the pipeline beside one, or a folder."""
    paths = list(paths)
    if "" in paths:
        hint = "name a test, a pipeline with one beside it, or a folder"
        raise FileUnusable("an empty text names no file", hint=hint)
    files = (files_in(path, ENDINGS) if path.is_dir() else [_tests_of(path)] for path in map(Path, paths))
    return list(dict.fromkeys(chain.from_iterable(files)))


def _tests_of(path: Path) -> Path:
    if not path.is_file():
        raise FileUnusable(f"there is no file {path}", hint="name a test, a pipeline with one beside it, or a folder")
    if path.name.endswith(ENDINGS):
        return path
    beside = [path.with_name(path.stem + ending) for ending in ENDINGS]
    tests = next((file for file in beside if file.is_file()), None)
    if tests is None:
        raise InvalidTest(f"{path} has no tests beside it", hint=f"write them to {beside[0]}")
    return tests


def run(spec_file: SpecFile, wanted: str = "", *, chaos: bool = False) -> Iterator[Result]:
    """Run the tests of a file whose names contain `wanted`, on each of its pipelines."""
    with environment_variables(spec_file.environment):
        for file in spec_file.pipelines:
            pipeline = sound_pipeline(file)
            for case in spec_file.cases:
                if wanted.lower() in case.name.lower():
                    yield run_case(spec_file, file, pipeline, case, chaos=chaos)


def run_one(spec_file: SpecFile, file: str, case: SpecCase) -> Result:
    """Load a pipeline and run one test on it."""
    with environment_variables(spec_file.environment):
        return run_case(spec_file, file, sound_pipeline(file), case)


def run_case(spec_file: SpecFile, file: str, pipeline: PipelineDef, case: SpecCase, *, chaos: bool = False) -> Result:
    """Run one test on one pipeline."""
    from millrace.testing.pipeline_test import PipelineTest
    from millrace.testing.spark import warm_session

    warm_session()  # its start does not count as time of a test
    started = time.monotonic()
    findings: list[CaseFinding] = []
    error = None
    try:
        test = PipelineTest(pipeline, spec_file.file.parent, moves_watermarks=case.moves_watermarks, chaos=chaos)
        with closing(test):
            for step in case.steps:
                with _at_place(step.place, MillraceError):
                    if step.watermark is None:
                        test.give(step.given)
                    else:
                        test.watermark(step.watermark)
            findings += _findings(test, case)
    except MillraceError as raised:
        raised.place = raised.place or case.place
        error = raised
    return Result(spec_file, file, case, time.monotonic() - started, findings, error)


def _findings(test: PipelineTest, case: SpecCase) -> Iterator[CaseFinding]:
    for number, step in enumerate(case.steps):
        yield from _findings_of_step(test, step, number, case.key)
    yield from _findings_of_step(test, case.whole, None, case.key)
    yield from (CaseFinding(text, case.steps[number].place) for number, text in test.unexpected())
    yield from (CaseFinding(text, case.place) for text in test.unstable())


def _findings_of_step(
    test: PipelineTest, step: SpecStep, number: int | None, keys: Mapping[str, tuple[str, ...]]
) -> Iterator[CaseFinding]:
    for table, expected in step.rows.items():
        with _at_place(expected.place, InputError):
            rows = test.rows(table, step=number, key=keys.get(table, ()))
            text = compare.difference(table, rows, compare.expected_rows(expected.value, test.folder))
            yield CaseFinding(text, expected.place, expected, compare.plain_rows(rows))
    for table, expected in step.late.items():
        with _at_place(expected.place, InputError):
            late = test.late(table, step=number)
            text = None if late == expected.value else compare.late_difference(table, late, expected.value)
            yield CaseFinding(text, expected.place, expected, late)
    for source, expected in step.dead.items():
        with _at_place(expected.place, InputError):
            letters = test.dead(source, step=number)
            text = compare.dead_difference(source, letters, expected.value, test.folder)
            actual = compare.plain_letters(letters, expected.value, test.folder)
            yield CaseFinding(text, expected.place, expected, actual)


@contextmanager
def _at_place(place: SourceLocation | None, kind: type[MillraceError]) -> Iterator[None]:
    """Give errors of this kind the place of a step or an expectation if they have none."""
    try:
        yield
    except kind as error:
        error.place = error.place or place
        raise
