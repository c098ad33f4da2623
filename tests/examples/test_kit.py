"""The examples' own tests, which `millrace test examples` runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.testing.runner import find, run
from millrace.testing.spark import use_session
from millrace.testing.spec_file import read_spec_file

from .conftest import EXAMPLES

FILES = find([str(EXAMPLES)])


def test_most_examples_have_tests() -> None:
    assert len(FILES) >= 10


@pytest.mark.parametrize("form", ["yaml", pytest.param("py", marks=pytest.mark.chaos)])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_what_an_example_says_is_so(
    spark: SparkSession, file: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    use_session(spark)
    spec_file = read_spec_file(file)
    results = list(
        run(replace(spec_file, pipelines=tuple(path for path in spec_file.pipelines if path.endswith(form))))
    )
    assert results
    assert [(one.name, one.failures, one.error and one.error.lines()) for one in results if not one.passed] == []
