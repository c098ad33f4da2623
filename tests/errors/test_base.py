"""An error says what, where, why and what to do."""

from __future__ import annotations

import dataclasses
import inspect

from millrace import errors
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
    assert did_you_mean("posts", iter(["posts"])) == "there are no others"


def test_a_place_without_a_line() -> None:
    assert str(SourceLocation("a.yaml")) == "a.yaml"


def test_every_public_name_is_an_error_or_belongs_to_errors() -> None:
    # Names of pytest, which rewrites the modules of plugins, begin with @.
    public = {name: value for name, value in vars(errors).items() if name[0] not in "_@"}
    assert {"MillraceError", "InvalidSql", "SinkFailed", "TopicGone", "Problem", "did_you_mean"} <= public.keys()
    for name, value in public.items():
        if inspect.ismodule(value):
            assert value.__name__ == f"millrace.errors.{name}"
            continue
        is_error = inspect.isclass(value) and issubclass(value, errors.MillraceError)
        assert is_error or inspect.isfunction(value) or dataclasses.is_dataclass(value), name
        assert value.__module__.startswith("millrace.errors."), name
