"""The tables of docs/connectors.md: what each source and sink takes, and what it guarantees, from its class."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from millrace.connectors.base.api import SINKS, SOURCES
from millrace.connectors.base.message_source import DecodedSource
from millrace.errors import UnknownName
from millrace.plugins import PluginRegistry

_TABLE = "| option | what it says | default |\n| --- | --- | --- |\n"


def with_tables(page: str) -> str:
    """The page, with what is said of each connector made anew; what is written beside it stays."""
    page = _replaced(page, r"## Sources of messages\n", rows(dataclasses.fields(DecodedSource)), "sources of messages")
    for name in sorted({*SOURCES.names(), *SINKS.names()}):
        for room, word in ((SOURCES, "source"), (SINKS, "sink")):
            kind = _kind(room, name)
            if kind is not None:
                page = _with_part(page, name, word, kind)
    return page


def _with_part(page: str, name: str, word: str, kind: type[Any]) -> str:
    """One connector, as a source or as a sink."""
    start = page.find(f"\n## {name}\n")
    end = page.find("\n## ", start + 1) if start >= 0 else -1
    end = len(page) if end < 0 else end
    place = re.search(rf"^As a {word}: .*?\n\n", page[max(start, 0) : end], re.MULTILINE | re.DOTALL)
    if start < 0 or place is None:
        raise SystemExit(f"docs/connectors.md: write '## {name}' with a line 'As a {word}:' and an empty one after it")
    after = page[start + place.end() :]
    if after.startswith(_TABLE):
        after = after[after.find("\n\n") + 2 :]
    told = f"As a {word}: {' '.join(_about(kind))}\n\n"
    return page[: start + place.start()] + told + _TABLE + rows(own(kind)) + "\n" + after


def _about(kind: type[Any]) -> Iterator[str]:
    """What a connector is, in sentences."""
    yield " ".join((kind.__doc__ or "").strip().splitlines()[0].split())
    if hasattr(kind, "delivery_guarantee"):
        yield f"Modes: {', '.join(kind.modes)}."
        yield f"Guarantee: {_promise(kind)}."
    elif not kind.streams:
        yield "It needs `static: true`."
    elif issubclass(kind, DecodedSource):
        yield "It also takes the options of every source of messages."
    others = [word for word, can in (("realtime", kind.realtime), ("continuous", kind.continuous)) if can]
    if others:
        yield f"Triggers without batches: {', '.join(others)}."


def _promise(kind: type[Any]) -> str:
    """What a sink guarantees; where that depends on its options, with those that it has unless said."""
    if isinstance(kind.delivery_guarantee, str):
        return kind.delivery_guarantee
    needed = {one.name: "any" for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING and one.init}
    return str(kind(**{name: one for name, one in needed.items() if name != "more"}).delivery_guarantee)


def own(kind: type[Any]) -> list[dataclasses.Field[Any]]:
    """The options of a connector that not every source of messages has: what it is about, its own, others."""
    common = {one.name: one for one in dataclasses.fields(DecodedSource)} if issubclass(kind, DecodedSource) else {}
    found = [one for one in dataclasses.fields(kind) if one.name not in common or not _same(one, common[one.name])]
    mine = inspect.get_annotations(kind)
    return sorted(found, key=lambda one: (not one.metadata.get("argument"), one.name not in mine))


def _same(one: dataclasses.Field[Any], other: dataclasses.Field[Any]) -> bool:
    return one.default == other.default and one.metadata == other.metadata


def rows(options: Any) -> str:
    """The rows of a table of options."""
    return "".join(
        f"| `{one.name}`{' (first)' if one.metadata.get('argument') else ''} | {_help(one)} | {_default(one)} |\n"
        for one in options
        if one.init and not one.metadata.get("rest")
    )


def _help(option: dataclasses.Field[Any]) -> str:
    choices = option.metadata.get("choices")
    told = option.metadata.get("help", "").replace("|", "\\|")
    return f"{told} One of: {', '.join(f'`{one}`' for one in choices)}." if choices else told


def _default(option: dataclasses.Field[Any]) -> str:
    if option.default is dataclasses.MISSING:
        return "needed"
    if shown := option.metadata.get("shown_default"):
        return str(shown)
    if option.default in (None, (), ""):
        return ""
    return f"`{str(option.default).lower() if isinstance(option.default, bool) else option.default}`"


def _kind(room: PluginRegistry[Any], name: str) -> type[Any] | None:
    try:
        return room.load(name)
    except UnknownName:
        return None


def _replaced(page: str, heading: str, made: str, what: str) -> str:
    """A page with the first table after a heading made anew."""
    found = re.search(rf"(?<=\n){heading}.*?{re.escape(_TABLE)}(.*?)\n\n", page, re.DOTALL)
    if not found:
        raise SystemExit(f"docs/connectors.md: there is no table of {what}")
    return page[: found.start(1)] + made.rstrip("\n") + page[found.end(1) :]
