"""Fingerprints of Spark's plans side by side."""

from __future__ import annotations

import json
from dataclasses import replace

from millrace.pipeline.compatibility.state_schema import StateOperator, StateSchema, state_differences

COUNT = StateOperator("aggregate", (("lines.value", "string"),), (("count(1)", "bigint"),))
WORDS = StateSchema(("lines",), (COUNT,), (("value", "string"), ("count", "bigint")))
JOIN = StateOperator("join", (("a.id = b.id", "boolean"),), (("left id", "string"), ("right id", "string")), "inner")


def effects(before: StateSchema, *operators: StateOperator) -> list[tuple[str, str]]:
    return [(one.effect, one.part) for one in state_differences(before, replace(before, operators=operators))]


def test_it_survives_json() -> None:
    assert StateSchema.of(json.loads(json.dumps(WORDS.to_json()))) == WORDS


def test_the_same_is_no_difference() -> None:
    assert state_differences(WORDS, WORDS) == []


def test_types_that_differ_cannot_be_read() -> None:
    assert effects(WORDS, replace(COUNT, keys=(("lines.value", "int"),))) == [("breaks", "state")]
    assert effects(WORDS, replace(COUNT, keys=(*COUNT.keys, ("lines.topic", "string")))) == [("breaks", "state")]
    assert effects(WORDS, replace(COUNT, values=(("max(offset)", "double"),))) == [("breaks", "state")]


def test_a_meaning_that_differs_would_be_mixed() -> None:
    assert effects(WORDS, replace(COUNT, keys=(("lines.topic", "string"),))) == [("mixes", "state")]
    assert effects(WORDS, replace(COUNT, values=(("max(offset)", "bigint"),))) == [("mixes", "state")]


def test_operators_that_come_go_or_are_others() -> None:
    assert effects(WORDS) == [("breaks", "state")]
    assert effects(WORDS, COUNT, COUNT) == [("breaks", "state")]
    assert effects(WORDS, replace(COUNT, kind="deduplicate")) == [("breaks", "state")]


def test_joins() -> None:
    joined = replace(WORDS, operators=(JOIN,))
    assert effects(joined, replace(JOIN, detail="left outer")) == [("breaks", "state")]
    assert effects(joined, replace(JOIN, keys=(*JOIN.keys, ("a.x > b.x", "boolean")))) == [("mixes", "state")]
    assert effects(joined, replace(JOIN, values=(*JOIN.values, ("right at", "timestamp")))) == [("breaks", "state")]


def test_sources_are_told_apart_by_their_order() -> None:
    two = replace(WORDS, sources=("a", "b"))
    assert [one.effect for one in state_differences(two, replace(two, sources=("b", "a")))] == ["breaks"]


def test_columns_may_change() -> None:
    wider = replace(WORDS, columns=(("value", "string"), ("count", "int"), ("more", "date")))
    assert [one.effect for one in state_differences(WORDS, wider)] == ["new", "new"]
    assert [one.effect for one in state_differences(wider, WORDS)] == ["new", "new"]
