"""An error says what, where, why and what to do."""

from __future__ import annotations

from millrace.errors import InvalidOption, SourceLocation, UnknownName, did_you_mean


def test_lines() -> None:
    error = InvalidOption("no", why="because", hint="do this", place=SourceLocation("a.yaml", 3))
    assert error.lines() == [
        "error[option.invalid]: no",
        "  at:  a.yaml:3",
        "  why: because",
        "  try: do this",
    ]
    assert InvalidOption("no").lines() == ["error[option.invalid]: no"]


def test_the_nearest_name_is_suggested() -> None:
    assert "posts" in str(UnknownName.among("feed", "postz", ["posts", "ads"]).hint)
    assert did_you_mean("zzz", ["posts", "ads"]) == "there are: ads, posts"
    assert did_you_mean("posts", ["posts", "ads"]) == "there are: ads"
    assert did_you_mean("zzz", []) == "there are none yet"


def test_a_place_without_a_line() -> None:
    assert str(SourceLocation("a.yaml")) == "a.yaml"
