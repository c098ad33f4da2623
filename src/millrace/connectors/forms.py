"""Connectors as a YAML file may name them, for its JSON Schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from millrace.connectors.stream import READERS, WRITERS
from millrace.pipeline.jsonschema import ConnectorForm, OptionForm
from millrace.plugins import Room

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def connector_names() -> frozenset[str]:
    """The names that stand for a source or a sink."""
    return frozenset((*READERS.names(), *WRITERS.names()))


def source_forms() -> list[ConnectorForm]:
    """Every connector that can be read."""
    return list(_forms(READERS))


def sink_forms() -> list[ConnectorForm]:
    """Every connector that can be written."""
    return list(_forms(WRITERS))


def _forms(room: Room[Any]) -> Iterator[ConnectorForm]:
    for name in room.names():
        kind = room.load(name)
        hints = get_type_hints(kind)
        fields = [one for one in dataclasses.fields(kind) if one.init and not one.metadata.get("rest")]
        options = [_option(one, hints[one.name]) for one in fields if not one.metadata.get("argument")]
        argument = next((_option(one, hints[one.name]) for one in fields if one.metadata.get("argument")), None)
        others = any(one.metadata.get("rest") for one in dataclasses.fields(kind))
        help_ = (kind.__doc__ or "").strip().splitlines()[0]
        yield ConnectorForm(name, help_, argument, tuple(options), others)


def _option(field: dataclasses.Field[Any], hint: Any) -> OptionForm:
    missing = dataclasses.MISSING
    required = field.default is missing and field.default_factory is missing
    types = tuple(dict.fromkeys(_types(hint)))
    if field.metadata.get("parse"):
        types = tuple(dict.fromkeys(("string", *types)))
    about = field.metadata
    return OptionForm(field.name, about.get("help", ""), types, tuple(about.get("choices", ())), required)


def _types(hint: Any) -> Iterator[str]:
    """JSON's names for what a field takes; nothing when that is more than JSON has."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for one in get_args(hint):
            yield from _types(one)
    elif hint in _TYPES:
        yield _TYPES[hint]
        if hint is str:  # a topic named 7 is text as well
            yield from ("integer", "number")
    elif origin is tuple:
        yield "array"
        yield from _types(get_args(hint)[0])
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield "object"
    elif hint is not NoneType:
        return
