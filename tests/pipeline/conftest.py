"""Connectors that are only facts, so that pipelines are checked without any outside system."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from millrace.errors import InputError, Problem
from millrace.pipeline.checks import check, in_order
from millrace.pipeline.connector_facts import Connectors, Facts, OptionMistake
from millrace.pipeline.loading.yaml import read_yaml
from millrace.pipeline.model import Connection, PipelineDef
from millrace.pipeline.schema import parse_schema

NAMES = ("kafka", "files", "console", "rate")


def source(connection: Connection, static: bool) -> Facts:
    """What a connector says of a source."""
    options = dict(connection.options)
    if connection.connector not in NAMES:
        return Facts((OptionMistake("connector.unknown", f"there is no source named {connection.connector!r}"),))
    schema = None
    with suppress(InputError, TypeError, AttributeError):
        schema = parse_schema(options["schema"]) if "schema" in options else None
    live = connection.connector == "kafka"
    mistakes = tuple(OptionMistake("option.unknown", f"no {name!r}", name) for name in options if name == "odd")
    return Facts(mistakes, schema, realtime=None if live else "not live", continuous=None if live else "not live")


def sink(connection: Connection, table: str) -> Facts:
    """What a connector says of a sink."""
    del table
    if connection.connector == "files":
        return Facts(modes=("append",), realtime="files are written in batches", continuous="files are")
    if connection.connector not in NAMES:
        return Facts((OptionMistake("connector.unknown", f"there is no sink named {connection.connector!r}"),))
    return Facts()


CONNECTORS = Connectors(source, sink)

Read = Callable[..., tuple[PipelineDef | None, list[Problem]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What can be read of a YAML text, in a file of its own, and what is wrong with it."""

    def read(text: str | bytes, **environment: str) -> tuple[PipelineDef | None, list[Problem]]:
        path = tmp_path / "pipeline.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_yaml(path, NAMES, environment)

    return read


@pytest.fixture
def problems(read: Read) -> Callable[..., list[Problem]]:
    """All that is wrong with a YAML text, by reading it and by checking it."""

    def problems(text: str, **environment: str) -> list[Problem]:
        pipeline, found = read(text, **environment)
        return in_order([*found, *(check(pipeline, CONNECTORS) if pipeline else [])])

    return problems


@pytest.fixture
def told(problems: Callable[..., list[Problem]]) -> Callable[..., list[str]]:
    """The same as `condition:line`, warnings with a question mark."""

    def told(text: str, **environment: str) -> list[str]:
        return [
            f"{one.condition}{'?' if one.severity == 'warning' else ''}:{one.place.line if one.place else None}"
            for one in problems(text, **environment)
        ]

    return told
