"""Bytes become a tree within bounds, or a problem with its line."""

from __future__ import annotations

import pytest

from millrace.errors import Problem
from millrace.pipeline.loading import yaml_document

from ..conftest import Read


def found(problems: list[Problem]) -> list[tuple[str, int | None]]:
    return [(one.condition, one.place.line if one.place else None) for one in problems]


@pytest.mark.parametrize("data", [b"\xff\xfen\x00a\x00", b"name: \xe9t\xe9", b"\x80"])
def test_what_is_not_utf8_is_told(read: Read, data: bytes) -> None:
    assert found(read(data)[1]) == [("file.not-utf8", 1)]


def test_a_byte_order_mark_is_left_out(read: Read) -> None:
    model, problems = read(b"\xef\xbb\xbfname: a\n")
    assert (model and model.name, problems) == ("a", [])


def test_files_are_bounded(read: Read) -> None:
    assert found(read("#" * (yaml_document.LARGEST + 1))[1]) == [("file.too-large", None)]
    assert found(read("[" * 900_000)[1]) == [("file.too-nested", 1)]
    assert found(read("a: " + "{a: " * 5000)[1]) == [("file.too-nested", 1)]
    assert found(read("\n".join(" " * level + "a:" for level in range(900)))[1]) == [("file.too-nested", 31)]
    assert found(read("[" + "1," * (yaml_document.MOST + 1) + "]")[1]) == [("file.too-large", 1)]


def test_aliases_of_aliases_do_not_unfold_without_end(read: Read) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert found(read("\n".join(levels))[1]) == [("file.too-large", 5)]


def test_aliases_and_merges_say_things_once(read: Read) -> None:
    model, problems = read(
        "name: a\n"
        "x-common: &common {schema: a int, start: latest}\n"
        "sources:\n"
        "  one: {<<: *common, kafka: one}\n"
        "  two: {<<: [*common, {on_bad: fail}], kafka: two, start: earliest}\n"
    )
    assert problems == []
    assert model is not None
    assert dict(model.sources[0].connection.options) == {"schema": "a int", "start": "latest"}
    assert dict(model.sources[1].connection.options) == {"on_bad": "fail", "schema": "a int", "start": "earliest"}
