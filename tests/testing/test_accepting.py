"""What came is written in the place of what was expected; all else in the file is kept."""

from __future__ import annotations

from millrace.errors import Place
from millrace.testing.accepting import rewritten
from millrace.testing.cases import Expected
from millrace.testing.running import Failure

TEXT = """\
tests:
  one: # a comment
    given: {posts: [a]}
    expect:
      popular:
        - {tag: rain, count: 1}
        - tag: tram
          count: 2
      # another
      flow: [{n: 1}]
    late: {popular: 1}

  two:
    steps:
      - given: {posts: [b]}
        expect: {popular: []}
"""


def failure(*path: str | int, expected: object, came: object) -> dict[tuple[str | int, ...], Failure]:
    return {path: Failure("", Expected(expected, Place("x"), path), came)}


def test_values_are_replaced_where_they_stand() -> None:
    rows = [{"tag": "rain", "count": 3, "at": "2026-05-04T12:00:00Z"}]
    failures = {
        **failure("tests", "one", "expect", "popular", expected=[{"tag": "x", "count": 1}], came=rows),
        **failure("tests", "one", "expect", "flow", expected=[{"n": 1}], came=[]),
        **failure("tests", "one", "late", "popular", expected=1, came=2),
        **failure("tests", "two", "steps", 0, "expect", "popular", expected=[], came=rows),
    }
    assert (
        rewritten(TEXT, failures)
        == """\
tests:
  one: # a comment
    given: {posts: [a]}
    expect:
      popular:
        - {tag: rain, count: 3}
      # another
      flow: []
    late: {popular: 2}

  two:
    steps:
      - given: {posts: [b]}
        expect: {popular: [{tag: rain, count: 3, at: '2026-05-04T12:00:00Z'}]}
"""
    )
