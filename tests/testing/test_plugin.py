"""`*.test.yaml` files are tests of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.testing.spark import use_session
from words import PIPELINE

TESTS = """\
tests:
  good: {given: {lines: [a b]}, expect: {words: [{word: a}, {word: b}]}}
  bad: {given: {lines: [a]}, expect: {words: [{word: c}]}}
  lost: {given: {lines: [a]}, expect: {wrds: []}}
"""
IN_PYTHON = """def test_something(millrace_test):
    test = millrace_test("words.yaml")
    test.give(lines=["a"])
    test.expect("words", [{"word": "a"}])

def test_nothing(millrace_test):
    millrace_test("words.yaml").give(lines=["a"])
"""


class Reports:
    """What a run of pytest within this process told."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.found[report.nodeid.partition("::")[2]] = (report.outcome, report.longreprtext)


def test_each_test_of_a_file_is_an_item(spark: SparkSession, tmp_path: Path) -> None:
    use_session(spark)
    (tmp_path / "words.yaml").write_text(PIPELINE)
    (tmp_path / "words.test.yaml").write_text(TESTS)
    (tmp_path / "test_words.py").write_text(IN_PYTHON)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    reports = Reports()
    options = [
        "-p",
        "millrace.testing.plugin",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:faulthandler",
        "-q",
        "--capture=no",
    ]
    pytest.main([str(tmp_path), "-c", str(tmp_path / "pytest.ini"), *options], plugins=[reports])
    assert {name: outcome for name, (outcome, _) in reports.found.items()} == {
        "good": "passed",
        "bad": "failed",
        "lost": "failed",
        "test_something": "passed",
        "test_nothing": "failed",
    }
    assert "words.test.yaml:3: words: rows 1 missing (-), 1 not expected (+)" in reports.found["bad"][1]
    assert "did you mean 'words'?" in reports.found["lost"][1]
    assert "expects nothing" in reports.found["test_nothing"][1]
