"""Files of tests are found and run, one after the other, on one Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.engine.session.jvm import environment_variables
from millrace.errors import FileUnusable, InputError, InvalidTest, MillraceError, SourceLocation
from millrace.testing import compare
from millrace.testing.spec import ExpectedRows, SpecCase, SpecFile, SpecStep
from millrace.testing.spec_file import ENDINGS
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.pipeline.model import PipelineDef
    from millrace.testing.pipeline_test import Trial

_LEFT_OUT = ("node_modules", "__pycache__", "site-packages")


@dataclass(frozen=True)
class CaseFinding:
    """What came of one thing that is expected; in words, if it is another, or if nobody expected it."""

    told: str | None
    place: SourceLocation | None
    expected: ExpectedRows | None = None
    came: Any = None

    def __str__(self) -> str:
        return f"{self.place}: {self.told}"


@dataclass(frozen=True)
class Result:
    """What came of one test on one pipeline."""

    sheet: SpecFile
    pipeline: str
    case: SpecCase
    seconds: float
    findings: list[CaseFinding] = field(default_factory=list)
    error: MillraceError | None = None

    @property
    def failures(self) -> list[CaseFinding]:
        """What is not as expected."""
        return [one for one in self.findings if one.told is not None]

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.failures and self.error is None

    @property
    def name(self) -> str:
        """The test, and which pipeline it was run on where there are several."""
        several = len(self.sheet.pipelines) > 1
        return f"{self.case.name} ({Path(self.pipeline).name})" if several else self.case.name


def find(paths: Iterable[str]) -> list[Path]:
    """The files of tests that paths mean: such a file, the pipeline beside one, or a folder with some in it."""
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        found.update(dict.fromkeys(_within(path) if path.is_dir() else [_of(path)]))
    return list(found)


def _within(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _LEFT_OUT)
        yield from (Path(parent) / name for name in sorted(names) if name.endswith(ENDINGS))


def _of(path: Path) -> Path:
    if not path.is_file():
        raise FileUnusable(f"there is no file {path}", hint="name a test, a pipeline with one beside it, or a folder")
    if path.name.endswith(ENDINGS):
        return path
    beside = [path.with_name(path.stem + ending) for ending in ENDINGS]
    tests = next((one for one in beside if one.is_file()), None)
    if tests is None:
        raise InvalidTest(f"{path} has no tests beside it", hint=f"write them to {beside[0]}")
    return tests


def run(sheet: SpecFile, wanted: str = "", *, chaos: bool = False) -> Iterator[Result]:
    """Run the tests of a file whose names have these words in them, each on every pipeline that the file is about."""
    from millrace.testing.spec_file import sound_pipeline

    with environment_variables(sheet.environment):
        for file in sheet.pipelines:
            pipeline = sound_pipeline(file)
            for case in sheet.cases:
                if wanted.lower() in case.name.lower():
                    yield run_case(sheet, file, pipeline, case, chaos=chaos)


def run_one(sheet: SpecFile, file: str, case: SpecCase, *, chaos: bool = False) -> Result:
    """One test, and the pipeline's file read for it."""
    from millrace.testing.spec_file import sound_pipeline

    with environment_variables(sheet.environment):
        return run_case(sheet, file, sound_pipeline(file), case, chaos=chaos)


def run_case(sheet: SpecFile, file: str, pipeline: PipelineDef, case: SpecCase, *, chaos: bool = False) -> Result:
    """One test on one pipeline."""
    from millrace.testing.spark import warm_session

    warm_session()  # the time of its start is no test's
    began = time.monotonic()
    findings: list[CaseFinding] = []
    error = None
    try:
        with _begun(sheet, pipeline, case, chaos) as trial:
            findings += _findings(trial, case)
    except MillraceError as found:
        found.place = found.place or case.place
        error = found
    return Result(sheet, file, case, time.monotonic() - began, findings, error)


@contextmanager
def _begun(sheet: SpecFile, pipeline: PipelineDef, case: SpecCase, chaos: bool) -> Iterator[Trial]:
    """A trial that has been given every step."""
    from millrace.testing.pipeline_test import Trial

    with closing(Trial(pipeline, sheet.file.parent, ticks=case.moves_watermarks, chaos=chaos)) as trial:
        for step in case.steps:
            try:
                if step.watermark is None:
                    trial.give(step.given)
                else:
                    trial.watermark(step.watermark)
            except MillraceError as error:
                error.place = error.place or step.place
                raise
        yield trial


def _findings(trial: Trial, case: SpecCase) -> Iterator[CaseFinding]:
    for number, step in enumerate(case.steps):
        yield from _of_step(trial, step, number, case.key)
    yield from _of_step(trial, case.whole, None, case.key)
    yield from (CaseFinding(told, case.steps[number].place) for number, told in trial.unexpected())
    yield from (CaseFinding(sentence, case.place) for sentence in trial.unstable())


def _of_step(
    trial: Trial, step: SpecStep, number: int | None, keys: Mapping[str, tuple[str, ...]]
) -> Iterator[CaseFinding]:
    for table, expected in step.rows.items():
        with _placed(expected):
            came = trial.rows(table, step=number, key=keys.get(table, ()))
            told = compare.difference(table, came, compare.expected_rows(expected.value, trial.folder))
            yield CaseFinding(told, expected.place, expected, compare.plain_rows(came))
    for table, expected in step.late.items():
        with _placed(expected):
            late = trial.late(table, step=number)
            told = (
                f"{table}: {format_count(late, 'row')} came too late, not {expected.value}"
                if late != expected.value
                else None
            )
            yield CaseFinding(told, expected.place, expected, late)
    for source, expected in step.dead.items():
        with _placed(expected):
            letters = trial.dead(source, step=number)
            told = compare.dead_difference(source, letters, expected.value, trial.folder)
            yield CaseFinding(
                told, expected.place, expected, compare.plain_letters(letters, expected.value, trial.folder)
            )


@contextmanager
def _placed(expected: ExpectedRows) -> Iterator[None]:
    """Mistakes of what is expected stand where it does."""
    try:
        yield
    except InputError as error:
        error.place = error.place or expected.place
        raise
