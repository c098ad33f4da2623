"""The JSON Schema takes what the loader takes, and marks what it does not."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from millrace.connectors.base.registry import sink_forms, source_forms
from millrace.pipeline.loading.json_schema import json_schema

from .test_yaml import TRENDING

SCHEMA = json_schema(source_forms(), sink_forms())


def mistakes(text: str) -> list[str]:
    return [one.message for one in Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text))]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        TRENDING,
        "name: p\nsources: {a: {kafka: [a, b], format: text, start: {a: {0: 3}}}}\nsinks: [{from: a, console: }]",
        "name: p\nsources: {a: {kafka: a, max_per_batch: '${N}'}}\nsinks: [{from: a, console: {}}]\nx-more: {a: 1}",
        "name: p\ntrigger: 5s\nsources: {a: {files: f, static: true, header: true}}\nsinks: [{from: a, files: out}]",
        "name: p\nsources: {a: {rate: , watermark: [at, 1s]}}\ntables: \nsinks: [{from: a, kafka: t, trigger: once}]",
        (
            "name: p\nsources: {a: {rate: }}\nsinks: [{from: a, console: }]\npanels:\n  - {from: a, table: }\n"
            "  - {from: a, table: {columns: [b], key: c, limit: 5}}\n"
            "  - {from: a, number: {value: b, unit: 7, title: T}}"
        ),
    ],
)
def test_what_is_right(text: str) -> None:
    assert mistakes(text) == []


@pytest.mark.parametrize(
    "change",
    [
        ("name: trending", "naem: trending"),
        ("mode: update", "mode: upsert"),
        ("sources:", "suorces:"),
        ("[at, 10 seconds]", "at"),
        ("top:", "tpo:"),
        ("label: tag", "lable: tag"),
        (", value: count}}", "}}"),
        (", value: count}}", ", value: count, limit: 0}}"),
        ("kafka: posts", "kakfa: posts"),
        ("from: popular, kafka", "kafka"),
        ("key: tag", "keyy: tag"),
    ],
)
def test_what_is_wrong(change: tuple[str, str]) -> None:
    assert mistakes(TRENDING.replace(*change))


def test_included_files() -> None:
    shared = "include: [a.yaml]\nsources: {a: {rate: }}"
    assert mistakes(shared) == []
    assert mistakes(shared + "\ntables: {b: SELECT 1}")
    pipeline = "name: p\ninclude: ../sources.yaml\nsinks: [{from: a, console: }]"
    assert mistakes(pipeline) == []
    assert mistakes(pipeline.replace("../sources.yaml", "{a: b}"))
    assert mistakes(pipeline.replace("include", "includes"))


def test_every_option_has_its_help() -> None:
    forms: list[dict[str, Any]] = SCHEMA["properties"]["sinks"]["items"]["anyOf"]
    kafka = next(form for form in forms if form["title"] == "kafka")
    assert all(one.get("description") for one in kafka["properties"].values())
