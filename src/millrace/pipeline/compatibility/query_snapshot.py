"""A snapshot of a query: plain data that is saved at its start and compared with later definitions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from millrace.limited_files import read_limited
from millrace.masking import without_passwords, without_secrets
from millrace.pipeline.analysis.operators import UNKNOWN, Operator
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.analysis.scans import source_scans
from millrace.pipeline.connector_facts import Connectors
from millrace.pipeline.functions import called_functions
from millrace.pipeline.model import Connection, PipelineDef, SinkDef, SourceDef, TableDef, Watermark
from millrace.pipeline.plan import Query
from millrace.pipeline.python_source import function_tree
from millrace.pipeline.secret import Secret

STATEFUL = ("aggregate", "deduplicate", "within", "join", "state", "limit")
"""The kinds of operators that keep state between batches."""

QuerySnapshot = dict[str, Any]
"""A snapshot, or a part of it, as JSON."""


def snapshot_query(pipeline: PipelineDef, query: Query, connectors: Connectors) -> QuerySnapshot:
    """Return the snapshot of a query, without secrets."""
    sources = pipeline.upstream_sources(query.table)
    tables = [table for name in pipeline.upstream(query.table) if (table := pipeline.table(name))]
    plan = analyse(pipeline).get(query.table.lower(), UNKNOWN)
    return {
        "table": query.table,
        "mode": query.mode,
        "trigger": str(query.sinks[0].trigger or pipeline.trigger),  # as declared, however this run ends
        "sources": {source.name: _source(source, connectors) for source in sources},
        "offsets": source_scans(pipeline, query.table, offsets=True),
        "tables": {table.name: _table(table) | _functions(pipeline, table) for table in tables},
        "sinks": [_sink(sink, connectors) for sink in query.sinks],
        "steps": [_operator(operator) for operator in plan.operators if operator.kind in STATEFUL],
        "certain": not plan.opaque and all(operator.certain for operator in plan.operators),
    }


def _source(source: SourceDef, connectors: Connectors) -> QuerySnapshot:
    reads = ", ".join(connectors.source(source.connection, source.static).touches)
    snapshot = _connection(source.connection) | {"reads": reads}
    return snapshot | {"watermark": _watermark(source.watermark), "static": source.static}


def _sink(sink: SinkDef, connectors: Connectors) -> QuerySnapshot:
    facts = connectors.sink(sink.connection, sink.table)
    named = sink.connection.argument if isinstance(sink.connection.argument, str) else ""
    to = ", ".join(facts.touches) or f"{sink.connection.connector} {option_to_json(named)}".strip()
    return _connection(sink.connection) | {"to": to, "resumes": facts.resumes, "midway": facts.midway}


def _connection(connection: Connection) -> QuerySnapshot:
    options = {name: option_to_json(value) for name, value in connection.options}
    return {"connector": connection.connector, "argument": option_to_json(connection.argument), "options": options}


def _table(table: TableDef) -> QuerySnapshot:
    sql = table.sql and without_secrets(table.sql)
    snapshot: QuerySnapshot = {"watermark": _watermark(table.watermark), "sql": sql}
    if table.function is not None and table.sql is None:
        snapshot |= {"function": _digest(function_text(table.function)), "file": _digest(_file_text(table.function))}
    if table.ranking:
        order = [[key.expression, key.descending, key.nulls_first] for key in table.ranking.order]
        snapshot["ranking"] = {"by": list(table.ranking.by), "order": order, "n": table.ranking.n}
    return snapshot


def _functions(pipeline: PipelineDef, table: TableDef) -> QuerySnapshot:
    """Return the functions that a table calls: their statements, and the files that they may call others of."""
    functions = {
        function.name: {
            "function": _digest(f"{function_text(function.python)}\n{function.kind}\n{function.returns}"),
            "file": _digest(_file_text(function.python)),
        }
        for function in called_functions(pipeline.functions, table)
    }
    return {"functions": functions} if functions else {}


def _watermark(watermark: Watermark | None) -> list[Any] | None:
    return None if watermark is None else [watermark.column, watermark.seconds]


def _operator(operator: Operator) -> QuerySnapshot:
    snapshot = {"kind": operator.kind, "what": operator.what, "table": operator.table, "join": operator.join}
    return snapshot | {"keys": _list(operator.keys), "values": _list(operator.values)}


def _list(texts: tuple[str, ...] | None) -> list[str] | None:
    return None if texts is None else list(texts)


def option_to_json(value: Any) -> Any:
    """Return a value for JSON: secrets are masked, functions become their names."""
    if isinstance(value, Secret):
        return "***"
    if isinstance(value, str):
        return without_passwords(value)
    if value is None or isinstance(value, int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(name): option_to_json(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [option_to_json(item) for item in value]
    return f"{type(value).__name__} {getattr(value, '__qualname__', '')}".strip()


def function_text(function: Callable[..., Any]) -> str | None:
    """Return the statements of a function without layout and comments; None if its file cannot be read."""
    tree = function_tree(function)
    if tree is None:
        return None
    first = tree.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    body = tree.body[1:] if documented else tree.body
    return "\n".join(map(ast.unparse, (tree.args, *body)))


def _file_text(function: Callable[..., Any]) -> str | None:
    """Return the file of a function without layout: it may define what the function calls."""
    try:
        return ast.dump(ast.parse(read_limited(function.__code__.co_filename)))
    except (OSError, SyntaxError, ValueError):
        return None


def _digest(text: str | None) -> str | None:
    return None if text is None else sha256(text.encode()).hexdigest()[:16]
