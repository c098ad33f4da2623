"""What `help(mr.kafka)` shows: the options of a connector as a source and as a sink."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from millrace.connectors.stream import READERS, WRITERS
from millrace.errors import UnknownName
from millrace.plugins import Room


def described(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function that makes a connection, with the connector's own documentation."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "\n".join([*_part(READERS, name, "As a source"), *_part(WRITERS, name, "As a sink")])
    return function


def _part(room: Room[Any], name: str, title: str) -> Iterator[str]:
    try:
        kind = room.load(name)
    except UnknownName:
        return
    yield f"{title}: {(kind.__doc__ or '').strip()}"
    for option in dataclasses.fields(kind):
        about = option.metadata
        if about.get("rest") or not option.init:
            continue
        default = "" if option.default in (dataclasses.MISSING, None, ()) else f" [{option.default}]"
        place = " (first)" if about.get("argument") else ""
        yield f"  {option.name}{place}: {about.get('help', '')}{default}"
    yield ""
