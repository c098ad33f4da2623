"""Actual rows are written in the place of expected ones, where that changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.testing.accept import AcceptResult, accept
from millrace.testing.runner import CaseFinding, Result
from millrace.testing.spec import SpecFile
from millrace.testing.spec_file import read_spec_file

Ran = Callable[..., tuple[AcceptResult, str]]


@pytest.fixture
def accepted(tmp_path: Path) -> Ran:
    """What becomes of a file of tests when each expectation is met by other rows, or by those of several pipelines."""

    def run(
        text: str, came: Any = None, *, others: Any = None, only: str = "", **files: str
    ) -> tuple[AcceptResult, str]:
        (tmp_path / "trending.yaml").touch()
        file = tmp_path / "trending.test.yaml"
        file.write_bytes(text.encode())
        for name, content in files.items():
            (tmp_path / f"{name}.json").write_text(content)
        spec_file = read_spec_file(file)
        pipelines = [came] if others is None else [came, others]
        results = [result for one in pipelines for result in ran(spec_file, one, only)]
        return accept(results, [spec_file]), file.read_bytes().decode()

    return run


def ran(spec_file: SpecFile, came: Any, only: str) -> list[Result]:
    results = []
    for case in spec_file.cases:
        parts = [part for step in (*case.steps, case.whole) for part in (step.rows, step.late, step.dead)]
        expected = [one for part in parts for one in part.values()]
        chosen = came.get(case.name) if isinstance(came, dict) else came
        findings = [CaseFinding(None if chosen is None else "unlike", one.place, one, chosen) for one in expected]
        if only in case.name:
            results.append(Result(spec_file, "", case, 0, findings))
    return results


ROWS = [{"tag": "rain", "count": 3, "at": "2026-05-04T12:00:00Z"}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("expect: {popular: []}", "expect: {popular: [{tag: rain, count: 3, at: '2026-05-04T12:00:00Z'}]}"),
        ("expect: {popular: [{count: 1}]} # why", "expect: {popular: [{count: 3}]} # why"),
        ("expect: {popular: [{count: 1}, {count: 2}]}", "expect: {popular: [{count: 3}]}"),
    ],
)
def test_in_a_line(accepted: Ran, before: str, after: str) -> None:
    frame = "tests:\n  one: # a comment\n    given: {posts: [a]}\n    %s\n\n# the end\n"
    assert accepted(frame % before, ROWS)[1] == frame % after


def test_numbers_beyond_what_json_can_say(accepted: Ran) -> None:
    frame = "tests:\n  one:\n    given: {posts: [a]}\n    expect: {popular: [{count: %s}]}\n"
    assert not accepted(frame % (10**22), [{"count": 1e22}, {"count": 3}])[0].refused


ODD = ["1e5", "1E+5", "0x1F", "007", "no", "null", "", "~", "NaN", "12:30", "a\x85b", "9" * 25]


@pytest.mark.parametrize("text", ODD)
def test_texts_that_look_like_something_else_stay_texts(accepted: Ran, tmp_path: Path, text: str) -> None:
    frame = "tests:\n  one:\n    given: {posts: [a]}\n    expect: {popular: [{tag: a}]}\n"
    assert not accepted(frame, [{"tag": text}])[0].refused
    (case,) = read_spec_file(tmp_path / "trending.test.yaml").cases
    assert case.steps[0].rows["popular"].value == [{"tag": text}]


def test_only_a_file_with_anchors_is_told_of_anchors(accepted: Ran) -> None:
    frame = "tests:\n  one:\n    given: {posts: [%s]}\n    expect: {popular: [{tag: a}]}\n"
    for given, anchors in (("a", False), ("&a a", True)):
        (refused,) = accepted(frame % given, [{"tag": float("inf")}])[0].refused
        assert ("anchor" in refused.message) is anchors


def test_a_link_stays_a_link_and_who_may_read_the_file_stays_too(accepted: Ran, tmp_path: Path) -> None:
    own = tmp_path / "elsewhere" / "own.test.yaml"
    own.parent.mkdir()
    own.touch(0o600)
    (tmp_path / "trending.test.yaml").symlink_to(own)
    accepted("tests:\n  one:\n    given: {posts: [a]}\n    expect: {popular: [{count: 1}]}\n", ROWS)
    assert (tmp_path / "trending.test.yaml").is_symlink()
    assert "count: 3" in own.read_text()
    assert own.stat().st_mode & 0o777 == 0o600


def test_one_file_by_two_names_can_expect_one_thing_only(tmp_path: Path) -> None:
    """Each name has a pipeline beside it, and they do not agree."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.yaml").touch()
    own = tmp_path / "a" / "p.test.yaml"
    own.write_text(before := "tests:\n  one:\n    given: {posts: [a]}\n    expect: {popular: [{count: 1}]}\n")
    (tmp_path / "b" / "p.test.yaml").symlink_to(own)
    spec_files = [read_spec_file(tmp_path / folder / "p.test.yaml") for folder in ("a", "b")]
    results = [
        result
        for spec_file, count in zip(spec_files, (3, 4), strict=True)
        for result in ran(spec_file, [{"count": count}], "")
    ]
    told = accept(results, spec_files)
    assert (len(told.refused), told.changed, own.read_text()) == (1, [], before)


def test_rows_that_came_stay_as_they_are_with_their_comments(accepted: Ran) -> None:
    frame = """\
tests:
  one:
    given: {posts: [a]}
    expect:
      popular:
        # the first
        - {tag: rain,   count: 3.0} # as it was
%s
        # the last
        - tag: tram
          count: 2
      # another
"""
    came = [{"tag": "tram", "count": 2}, {"tag": "rain", "count": 3}, {"tag": "bread", "count": 4}]
    old = "        - {tag: sun, count: 7}\n        - tag: sea\n          count: 7"
    assert accepted(frame % old, came)[1] == frame % "        - {tag: bread, count: 4}"
    assert accepted((frame % old).replace("\n", "\r\n"), came)[1].count("\r\n") == frame.count("\n")


def test_a_list_becomes_empty_and_numbers_are_replaced(accepted: Ran) -> None:
    text = "tests:\n  one:\n    given: {posts: [a]}\n    expect:\n      popular:\n        - {n: 1}\n      # more\n"
    assert accepted(text, [])[1] == text.replace(":\n        - {n: 1}", ": []")
    text = "tests: {one: {given: {posts: [a]}, late: {popular: 1}}}"
    assert accepted(text, 2)[1] == text.replace("popular: 1", "popular: 2")


@pytest.mark.parametrize(
    "text",
    [
        "tests: {\n  one: {given: {posts: &rows [{n: 1}]}, expect: {posts: *rows}}}",
        "tests: {\n  one: {given: {posts: []}, expect: {posts: &rows [{n: 1}], t: *rows}}}",
        "tests:\n  one: &one {given: {posts: []}, expect: {posts: [{n: 1}]}}\n  two:\n    <<: *one\n    late: {t: 1}\n",
    ],
)
def test_what_an_anchor_shares_is_left_alone(accepted: Ran, text: str) -> None:
    told, after = accepted(text, {"one": [{"n": 2}]})
    assert after == text
    assert not told.changed
    assert {one.place.line for one in told.refused if one.place} == {2}


def test_an_anchor_elsewhere_does_no_harm(accepted: Ran) -> None:
    text = (
        "tests:\n  one: {given: &given {posts: [a]}, expect: {t: [{n: 1}]}}\n  two: {given: *given, expect: {t: []}}\n"
    )
    assert accepted(text, {"one": [{"n": 2}]})[1] == text.replace("n: 1", "n: 2")


def test_pipelines_that_disagree_are_told(accepted: Ran) -> None:
    text = "tests: {one: {given: {posts: [a]}, expect: {t: [{n: 1}]}}}"
    for others in ([{"n": 3}], None):
        told, after = accepted(text, [{"n": 2}], others={"one": others})
        assert (after, len(told.refused)) == (text, 1)
    both = [{"n": 2}, {"n": 3}]
    assert "n: 3" in accepted(text, both, others=both[::-1])[1]


FILE = "tests: {one: {given: {posts: [a]}, expect: {t: {json: rows.json}}}%s}"


def test_a_file_of_rows_keeps_its_form_and_its_columns(accepted: Ran, tmp_path: Path) -> None:
    came = [{"n": 2, "more": "x"}, {"n": 3, "more": "y"}]
    for before, after in (('{"n":1}\n', '{"n":2}\n{"n":3}\n'), ('[{"n": 1}]', '[\n  {"n":2},\n  {"n":3}\n]\n')):
        told, _ = accepted(FILE % "", came, rows=before)
        assert [one.name for one in told.changed] == ["rows.json"]
        assert (tmp_path / "rows.json").read_text() == after


@pytest.mark.parametrize(
    ("more", "only"),
    [
        (", two: {given: {posts: {json: ./rows.json}}, expect: {t: []}}", ""),
        (", two: {given: {posts: []}, expect: {t: {json: rows.json}}}", ""),
        (", two: {given: {posts: []}, expect: {t: {json: rows.json}}}", "one"),
    ],
)
def test_a_file_of_rows_that_others_use_is_left_alone(accepted: Ran, tmp_path: Path, more: str, only: str) -> None:
    came = {"one": [{"n": 2}], "two": [{"n": 3}]}
    told, _ = accepted(FILE % more, came, only=only, rows='{"n":1}\n')
    assert (tmp_path / "rows.json").read_text() == '{"n":1}\n'
    assert any("rows.json" in one.message for one in told.refused)


def test_a_file_of_another_form_and_one_of_tests_that_were_not_read_are_left_alone(
    accepted: Ran, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("n\n1\n")
    told, _ = accepted(FILE.replace("{json: rows.json}", "{csv: rows.csv}") % "", [{"n": 2}])
    assert (len(told.refused), (tmp_path / "rows.csv").read_text()) == (1, "n\n1\n")
    (tmp_path / "other.test.yaml").write_text(FILE % "")
    assert len(accepted(FILE % "", [{"n": 2}], rows='{"n":1}\n')[0].refused) == 1
