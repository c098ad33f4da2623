"""The pytest plugin: the fixture `millrace_test`, and `*.test.yaml` files as tests, all on one Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millrace.errors import MillraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.testing.pipeline_test import PipelineTest
    from millrace.testing.spec import SpecCase, SpecFile

_ENDINGS = (".test.yaml", ".test.yml")  # not imported from spec_file: it would slow down the start of pytest
_TESTS = pytest.StashKey["list[PipelineTest]"]()


@pytest.fixture(scope="session")
def millrace_spark() -> SparkSession:
    """Return the Spark session of all tests; a project with its own session overrides this."""
    from millrace.testing.spark import warm_session

    return warm_session()


@pytest.fixture
def millrace_test(
    millrace_spark: SparkSession, request: pytest.FixtureRequest
) -> Iterator[Callable[..., PipelineTest]]:
    """Return a function that starts a PipelineTest; paths of pipelines and rows are relative to the test's folder."""
    from millrace.testing.pipeline_test import PipelineTest
    from millrace.testing.spark import use_session

    use_session(millrace_spark)
    folder = request.path.parent
    tests = request.node.stash[_TESTS] = []
    with ExitStack() as exits:

        def start(pipeline: Any, **options: Any) -> PipelineTest:
            test = PipelineTest(folder / pipeline if isinstance(pipeline, str | Path) else pipeline, folder, **options)
            exits.callback(test.close)
            tests.append(test)
            return test

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that expects nothing, or that did not ask for its dead letters."""
    yield
    for test in item.stash.get(_TESTS, ()):
        test.conclude()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a `*.test.yaml` file."""
    if file_path.name.endswith(_ENDINGS):
        return SpecPytestFile.from_parent(parent, path=file_path)
    return None


class SpecPytestFile(pytest.File):
    """A `*.test.yaml` file."""

    def collect(self) -> Iterable[SpecPytestItem]:
        """Yield each of its tests for each of its pipelines."""
        from millrace.testing.spec_file import read_spec_file

        try:
            spec_file = read_spec_file(self.path)
        except MillraceError as error:
            raise self.CollectError("\n".join(error.lines())) from None
        for file in spec_file.pipelines:
            for case in spec_file.cases:
                name = spec_file.test_name(case, file)
                yield SpecPytestItem.from_parent(self, name=name, spec_file=spec_file, file=file, case=case)


class SpecPytestItem(pytest.Item):
    """One test of such a file, on one pipeline."""

    def __init__(self, *, spec_file: SpecFile, file: str, case: SpecCase, **more: Any) -> None:
        super().__init__(**more)
        self._spec_file, self._file, self._case = spec_file, file, case

    def runtest(self) -> None:
        """Run the test; differences are reported as a table."""
        from millrace.testing.runner import run_one

        result = run_one(self._spec_file, self._file, self._case)
        if result.error:
            raise result.error
        if result.failures:
            raise _Failed("\n".join(str(failure) for failure in result.failures))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the difference without a stack trace."""
        if isinstance(excinfo.value, _Failed):
            return str(excinfo.value)
        if isinstance(excinfo.value, MillraceError):
            return "\n".join(excinfo.value.lines())
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the test."""
        return self.path, (self._case.place.line or 1) - 1, self.name


class _Failed(Exception):
    """A test of a file that failed."""
