"""docs/connectors.md tells every option of every source and sink."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from millrace.connectors.base.api import SINKS, SOURCES
from millrace.connectors.base.message_source import DecodedSource
from millrace.formats.base import FORMATS
from millrace.plugins import PluginRegistry

PAGE = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text("utf-8")
KINDS = [(room, name) for room in (SOURCES, SINKS) for name in room.names()]


@pytest.mark.parametrize(("room", "name"), KINDS)
def test_every_option_is_documented(room: PluginRegistry[object], name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    common = PAGE.partition("## Sources of messages")[2].partition("\n## ")[0]
    kind = room.load(name)
    assert section
    for option in dataclasses.fields(kind):  # type: ignore[arg-type]
        if option.init and not option.metadata.get("rest"):
            told = f"| `{option.name}`"
            assert told in section or (issubclass(kind, DecodedSource) and told in common), f"{name}: {option.name}"
            assert option.metadata["help"]


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_is_documented_with_its_options(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
    assert f"\n## {name}\n" in page or f"\n| `{name}` |" in page
    for option in dataclasses.fields(FORMATS.load(name)):  # type: ignore[arg-type]
        assert not option.init or f"`{option.name}`" in page, option.name
