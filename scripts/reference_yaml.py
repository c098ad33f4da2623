"""The page on the YAML form, from the JSON Schema that editors use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from millrace.connectors.base.registry import connector_names, sink_forms, source_forms
from millrace.pipeline.loading.json_schema import json_schema

_INTRO = """# Pipelines in YAML: the schema

Made from the code by `scripts/reference.py`. `millrace check --schema` prints the same as a JSON Schema, for
[editors](../pipelines.md#completion-in-an-editor); [pipelines](../pipelines.md) explains it with examples.
"""


def yaml_page() -> str:
    """The page."""
    return "\n".join([_INTRO, *_parts(json_schema(source_forms(), sink_forms()))])


def _parts(schema: dict[str, Any]) -> Iterator[str]:
    top = schema["properties"]
    with_sources, with_include, _ = schema["anyOf"]
    needed = set(with_sources["required"]) & set(with_include["required"])
    yield from _table("At the top", top, needed, "`sources` or `include` is needed as well.")
    yield "`x-…`: a place for what others refer to by `*alias`.\n"
    source = top["sources"]["additionalProperties"]["anyOf"]
    yield from _connected("A source", source, "It is a mapping: its name to these keys.")
    table = top["tables"]["additionalProperties"]["anyOf"][1]
    yield from _table("A table", table["properties"], table["required"], "SQL as text, or a mapping of")
    yield from _connected("A sink", top["sinks"]["items"]["anyOf"], "It is an item of a list.")
    panel = top["panels"]["items"]
    yield from _table("A panel", panel["properties"], panel["required"], "`from`, and one of the others:")
    for name, kind in panel["properties"].items():
        if name != "from":
            yield from _table(f"{name}", kind["properties"], kind["required"], depth=3)


def _connected(title: str, forms: list[dict[str, Any]], about: str) -> Iterator[str]:
    """A source or a sink: the keys of all, and one that is a connector's name."""
    general = {name: one for name, one in forms[0]["properties"].items() if all(name in f["properties"] for f in forms)}
    needed = [name for name in forms[0]["required"] if name in general]
    general = {name: one for name, one in general.items() if name not in connector_names()}
    told = ", ".join(f"[`{form['title']}`](../connectors.md#{form['title']})" for form in forms)
    one = "One key is a connector's name, and the connector's options stand beside it"
    yield from _table(title, general, needed, f"{about} {one}: {told}.")


def _table(title: str, keys: dict[str, Any], needed: Iterable[str], about: str = "", depth: int = 2) -> Iterator[str]:
    yield f"{'#' * depth} {title}\n"
    if about:
        yield f"{about}\n"
    yield "| key | what it says | form |\n| --- | --- | --- |"
    for name, one in keys.items():
        word = " (needed)" if name in needed else ""
        yield f"| `{name}`{word} | {one.get('description', '')} | {_form(one)} |"
    yield ""


_FORMS = {"array": "list", "object": "mapping", "string": "text", "integer": "whole number", "boolean": "true or false"}


def _form(one: dict[str, Any]) -> str:
    """What a value looks like: its choices, its examples, or its type."""
    if choices := one.get("enum"):
        return ", ".join(f"`{choice}`" for choice in choices)
    if examples := one.get("examples"):
        return ", ".join(f"`{_written(example)}`" for example in examples)
    kinds = one.get("type") or [part["type"] for part in one.get("anyOf", ()) if "pattern" not in part]
    words = [_FORMS.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
    default = f", `{one['default']}` unless said" if "default" in one else ""
    return " or ".join(words) + default


def _written(example: Any) -> str:
    return f"[{', '.join(example)}]" if isinstance(example, list) else str(example)
