"""The JSON Schema of a pipeline in YAML, so that editors complete it and mark mistakes while one types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from millrace.pipeline.model import MODES
from millrace.pipeline.panels import KINDS, MOST_ROWS, PanelKind, PanelOption
from millrace.pipeline.ranking import LATEST, MAX_ROWS, TOP

_TEXT = {"type": "string"}
_FROM_ENVIRONMENT = {"type": "string", "pattern": r"\$\{"}


@dataclass(frozen=True)
class OptionForm:
    """An option of a connector as a file may give it."""

    name: str
    help: str = ""
    types: tuple[str, ...] = ()
    """JSON's names of types; none when it may be anything."""
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True)
class ConnectorForm:
    """A connector as a source or a sink: its argument, its options, and whether it takes others as well."""

    name: str
    help: str = ""
    argument: OptionForm | None = None
    options: tuple[OptionForm, ...] = ()
    others: bool = False


def json_schema(sources: Iterable[ConnectorForm], sinks: Iterable[ConnectorForm]) -> dict[str, Any]:
    """The schema of a whole file, for the connectors that there are."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Millrace pipeline",
        "type": "object",
        "anyOf": [
            {"required": ["name", "sinks", "sources"]},
            {"required": ["name", "sinks", "include"]},
            {
                "description": "What other files include.",
                "required": ["sources"],
                "properties": dict.fromkeys(("name", "trigger", "tables", "sinks", "panels"), False),
            },
        ],
        "additionalProperties": False,
        "patternProperties": {"^x-": {"description": "A place for what others refer to by *alias."}},
        "properties": {
            "name": {**_TEXT, "description": "The pipeline's name: of its state, its queries and its consumer groups."},
            "trigger": _trigger("When its queries look for new records; a sink may have its own."),
            "include": {
                "description": "Files with sources that several pipelines share, relative to this one.",
                "anyOf": [_TEXT, {"type": "array", "items": _TEXT}],
                "examples": ["../sources.yaml"],
            },
            "functions": _FUNCTIONS,
            "sources": _named("What is read, by the name that tables use.", _one_of(sources, _SOURCE, ())),
            "tables": _named("Rows made from other rows by SQL.", _TABLE),
            "sinks": _listed("Where rows go.", _one_of(sinks, _SINK, ("from",))),
            "panels": _listed("What the page shows.", _PANEL),
        },
    }


def _trigger(about: str) -> dict[str, Any]:
    return {**_TEXT, "description": about, "examples": ["fastest", "5s", "once", "continuous 1s", "realtime"]}


_WATERMARK = {
    "description": "The column of event time, and how long to wait for late rows.",
    "type": "array",
    "prefixItems": [_TEXT, _TEXT],
    "minItems": 2,
    "maxItems": 2,
    "examples": [["at", "10 seconds"]],
}
_SOURCE = {
    "watermark": _WATERMARK,
    "static": {"type": "boolean", "description": "Read whole, for joins, instead of followed."},
}
_SINK = {
    "from": {**_TEXT, "description": "The table or source whose rows are written."},
    "mode": {"enum": list(MODES), "description": "New rows, changed rows, or the whole result each time."},
    "trigger": _trigger("When this sink's query looks for new records."),
}
_SQL = {**_TEXT, "description": "A SELECT over the names of sources and other tables."}
_FUNCTIONS = {
    "description": "A Python file, or several, whose functions SQL may call by their names.",
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT}],
    "examples": ["./udf.py"],
}
_FROM = {**_TEXT, "description": "The source or table whose rows are taken."}
_COLUMNS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_BY = {**_COLUMNS, "description": "The columns of the groups: each has rows of its own."}
_ROW_COUNT = {
    "description": "How many rows of each group.",
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_ROWS}, dict(_FROM_ENVIRONMENT)],
}
_LATEST = {
    "description": "The newest row of each key.",
    "type": "object",
    "required": ["from", "by", "order"],
    "additionalProperties": False,
    "properties": {
        "from": _FROM,
        "by": {**_BY, "description": "The key: a column, or several."},
        "order": {**_COLUMNS, "description": "What makes a row newer: the greatest is taken.", "examples": ["at"]},
    },
}
_TOP = {
    "description": "The first rows of each group in an order.",
    "type": "object",
    "required": ["from", "n", "order"],
    "additionalProperties": False,
    "properties": {
        "from": _FROM,
        "n": _ROW_COUNT,
        "by": _BY,
        "order": {**_COLUMNS, "description": "Columns, each with DESC or ASC.", "examples": ["count DESC"]},
        "rank": {**_TEXT, "description": "A column that gets the place of each row, from 1."},
    },
}
_FORMS: dict[str, dict[str, Any]] = {"sql": _SQL, LATEST: _LATEST, TOP: _TOP}


def _table_form(form: str, rows: dict[str, Any]) -> dict[str, Any]:
    properties = {form: rows, "watermark": _WATERMARK}
    return {"type": "object", "required": [form], "additionalProperties": False, "properties": properties}


_TABLE = {"anyOf": [_SQL, *(_table_form(form, rows) for form, rows in _FORMS.items())]}


def _picture(kind: PanelKind) -> dict[str, Any]:
    needed = [option.name for option in kind.options if option.required]
    return {
        "description": kind.help,
        "type": ["object"] if needed else ["object", "null"],
        "required": needed,
        "properties": {option.name: _picture_option(option) for option in kind.options},
        "additionalProperties": False,
    }


def _picture_option(option: PanelOption) -> dict[str, Any]:
    about: dict[str, Any] = {"description": option.help}
    if option.takes == "count":
        whole = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS}
        return {**about, "anyOf": [whole, dict(_FROM_ENVIRONMENT)], "default": option.default}
    if option.takes == "columns":
        return {**about, "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
    return {**about, "type": ["string", "number"] if option.takes == "text" else "string"}


_PANEL = {
    "type": "object",
    "required": ["from"],
    "additionalProperties": False,
    "minProperties": 2,
    "maxProperties": 2,
    "properties": {
        "from": {**_TEXT, "description": "The table or source that is shown."},
        **{name: _picture(kind) for name, kind in KINDS.items()},
    },
}


def _named(about: str, each: dict[str, Any]) -> dict[str, Any]:
    names = {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}
    return {"description": about, "type": ["object", "null"], "propertyNames": names, "additionalProperties": each}


def _listed(about: str, each: dict[str, Any]) -> dict[str, Any]:
    return {"description": about, "type": ["array", "null"], "items": each}


def _one_of(forms: Iterable[ConnectorForm], general: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "object", "anyOf": [_connector(form, general, required) for form in forms]}


def _connector(form: ConnectorForm, general: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    options = {option.name: _option(option) for option in form.options}
    return {
        "title": form.name,
        "description": form.help,
        "required": [*required, form.name, *(option.name for option in form.options if option.required)],
        "properties": {form.name: _argument(form), **options, **general},
        "additionalProperties": form.others,
    }


def _argument(form: ConnectorForm) -> dict[str, Any]:
    given = form.argument
    if given is None:
        return {"description": form.help, "type": ["null", "object"], "maxProperties": 0}
    wanted = _option(given)
    if not given.required and "anyOf" in wanted:
        wanted["anyOf"] = [*wanted["anyOf"], {"type": "null"}]
    return {**wanted, "description": f"{form.help} {given.help}".strip()}


def _option(option: OptionForm) -> dict[str, Any]:
    """A value of its type, or text that is put together from the environment."""
    described = {"description": option.help} if option.help else {}
    if option.choices:
        return {**described, "anyOf": [{"enum": list(option.choices)}, dict(_FROM_ENVIRONMENT)]}
    if not option.types:
        return described
    kinds: list[dict[str, Any]] = [{"type": kind} for kind in option.types]
    return {**described, "anyOf": kinds if "string" in option.types else [*kinds, dict(_FROM_ENVIRONMENT)]}
