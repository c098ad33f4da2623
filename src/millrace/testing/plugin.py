"""Pytest with pipelines: the fixture `millrace_test`, and `*.test.yaml` files as tests; one Spark for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millrace.errors import MillraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.testing.pipeline_test import Trial
    from millrace.testing.spec import SpecCase, SpecFile

_ENDINGS = (".test.yaml", ".test.yml")
_TRIALS = pytest.StashKey["list[Trial]"]()


@pytest.fixture(scope="session")
def millrace_spark() -> SparkSession:
    """The one Spark of all tests; a project that has its own overrides this."""
    from millrace.testing.spark import warm_session

    return warm_session()


@pytest.fixture
def millrace_test(millrace_spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Callable[..., Trial]]:
    """`millrace_test("trending.yaml")` is a trial of a pipeline; its path, and those of rows, begin beside the test."""
    from millrace.testing.pipeline_test import trial
    from millrace.testing.spark import lend_session

    lend_session(millrace_spark)
    folder = request.path.parent
    begun = request.node.stash[_TRIALS] = []
    with ExitStack() as ends:

        def begin(pipeline: Any, **options: Any) -> Trial:
            named = folder / pipeline if isinstance(pipeline, str | Path) else pipeline
            made = trial(named, folder, **options)
            ends.callback(made.close)
            begun.append(made)
            return made

        yield begin


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that has passed so far is not at its end: it may have asked for nothing, or left out dead letters."""
    yield
    for one in item.stash.get(_TRIALS, ()):
        one.conclude()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A file of tests beside a pipeline."""
    if file_path.name.endswith(_ENDINGS):
        return SpecPytestFile.from_parent(parent, path=file_path)
    return None


class SpecPytestFile(pytest.File):
    """A `*.test.yaml` file."""

    def collect(self) -> Iterable[SpecPytestItem]:
        """Each of its tests, on each of its pipelines."""
        from millrace.testing.spec_file import read_sheet

        try:
            sheet = read_sheet(self.path)
        except MillraceError as error:
            raise self.CollectError("\n".join(error.lines())) from None
        for file in sheet.pipelines:
            for case in sheet.cases:
                several = len(sheet.pipelines) > 1
                name = f"{case.name} ({Path(file).name})" if several else case.name
                yield SpecPytestItem.from_parent(self, name=name, sheet=sheet, file=file, case=case)


class SpecPytestItem(pytest.Item):
    """One test of such a file, on one pipeline."""

    def __init__(self, *, sheet: SpecFile, file: str, case: SpecCase, **more: Any) -> None:
        super().__init__(**more)
        self._sheet, self._file, self._case = sheet, file, case

    def runtest(self) -> None:
        """Run it; what is not as expected is told as a table."""
        from millrace.testing.runner import run_one

        result = run_one(self._sheet, self._file, self._case)
        if result.error:
            raise result.error
        if result.failures:
            raise _Failed("\n".join(str(failure) for failure in result.failures))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """No stack trace: the difference is all that matters."""
        if isinstance(excinfo.value, _Failed):
            return str(excinfo.value)
        if isinstance(excinfo.value, MillraceError):
            return "\n".join(excinfo.value.lines())
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test stands."""
        return self.path, (self._case.place.line or 1) - 1, self.name


class _Failed(Exception):
    """A test of a file that failed."""
