"""`millrace test` as a user meets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.testing.spark import use_session
from words import PIPELINE

Run = Callable[..., Any]

TESTS = """\
tests:
  a line becomes its words: # as it should
    given: {lines: [a b]}
    expect:
      words:
        - {word: a}
        - {word: c}
"""


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path) -> Path:
    """A pipeline with a test that fails."""
    use_session(spark)
    (tmp_path / "words.yaml").write_text(PIPELINE)
    (tmp_path / "words.test.yaml").write_text(TESTS)
    return tmp_path


def test_a_difference_is_told_and_can_be_accepted(offline_run: Run, project: Path) -> None:
    told = offline_run("test", code=1).out
    assert "FAILED  words.test.yaml: a line becomes its words" in told
    assert "words.test.yaml:6: words: rows 1 as expected, 1 missing (-), 1 not expected (+)" in told
    assert "0 passed, 1 failed" in told
    offline_run("test", "words.yaml", "--accept")
    accepted = (project / "words.test.yaml").read_text()
    assert accepted == TESTS.replace("{word: c}", "{word: b}")
    assert "1 passed" in offline_run("test", "words.test.yaml", "--chaos").out


def test_a_folder_is_tested_although_a_file_of_it_cannot_be_read(offline_run: Run, project: Path) -> None:
    (project / "broken.test.yaml").write_text("tests: {a: }\n")
    (project / "broken.yaml").write_text(PIPELINE)
    (project / "untested.yaml").write_text(PIPELINE)
    (project / "latin.py").write_bytes(b"# \xfc")
    tested = offline_run("test", ".", code=2)
    assert "FAILED  words.test.yaml: a line becomes its words" in tested.out
    assert "0 passed, 1 failed" in tested.out
    assert "error[test.invalid]: broken.test.yaml has" in tested.err
    assert "untested.yaml: it has no tests" in tested.err
    assert "error[pipeline.invalid]" in tested.err
    assert "words.yaml: it has no tests" not in tested.err


def test_what_a_test_does_not_expect_fails_it_and_cannot_be_accepted(offline_run: Run, project: Path) -> None:
    (project / "words.yaml").write_text(PIPELINE.replace("format: text", "schema: value string"))
    (project / "words.test.yaml").write_text(
        "tests:\n"
        "  broken:\n    given: {lines: [{value: '\"a b\"'}, '{broken']}\n    expect: {words: []}\n"
        "  typo:\n    given:\n      lines:\n        - {valeu: a}\n    expect: {words: []}\n"
    )
    told = offline_run("test", "--accept", code=1).out
    assert "words.test.yaml:2: lines: " in told
    assert "words.test.yaml:8" in told
    assert "2 failed" in told


def test_a_file_of_rows_that_is_not_there_is_told_where_it_is_named(offline_run: Run, project: Path) -> None:
    (project / "words.test.yaml").write_text(
        "tests:\n"
        "  a:\n"
        "    given:\n"
        "      lines: {text: none.txt}\n"
        "    expect: {words: []}\n"
        "  b:\n"
        "    given: {lines: [a]}\n"
        "    expect:\n"
        "      words: {json: none.json}\n"
    )
    told = offline_run("test", code=1).out
    assert told.count("file.unusable") == 2
    assert "words.test.yaml:4\n" in told
    assert "words.test.yaml:9\n" in told


def test_what_is_no_test_is_an_error_of_the_user(offline_run: Run, project: Path, tmp_path: Path) -> None:
    assert "test.invalid" in offline_run("test", "--only", "nothing", code=2).err
    (project / "words.test.yaml").write_text("tests: {a: {gven: {}}}")
    assert "words.test.yaml:1: error[test.invalid]" in offline_run("test", code=2).err
    (project / "words.test.yaml").unlink()
    assert "test.invalid" in offline_run("test", code=2).err
    assert "test.invalid" in offline_run("test", "words.yaml", code=2).err
