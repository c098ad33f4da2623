"""A pipeline as the dashboard shows it: what it is made of, how it runs, what each sink promises; secrets masked."""

from __future__ import annotations

import inspect
import platform
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from millrace import __version__
from millrace.connectors.base.registry import make_sink, topics_read
from millrace.engine.replay.generations import FIRST
from millrace.engine.session.spark_conf import spark_choices, state_store
from millrace.errors import SourceLocation
from millrace.pipeline.model import Connection, PipelineDef, SinkDef, SourceDef, TableDef, Watermark
from millrace.pipeline.panels import RunPanel
from millrace.pipeline.plan import Plan, Query
from millrace.pipeline.secret import Secret, holds_password, is_secret
from millrace.units import format_duration

MASK = "***"


def pipeline_info(
    plan: Plan, *, master: str | None, spark: Mapping[str, str], kafka: str | None, generation: int = FIRST
) -> dict[str, Any]:
    """Everything about a pipeline that does not change while it runs."""
    pipeline = plan.pipeline
    return {
        "name": pipeline.name,
        "file": pipeline.place.file,
        "version": __version__,
        "generation": generation,
        "generations": [],  # set by the run page: they change while it runs
        "sources": [_source(source) for source in pipeline.sources],
        "tables": [_table(table) for table in pipeline.tables],
        "sinks": [_sink(sink, plan) for sink in pipeline.sinks],
        "queries": [_query(query, pipeline) for query in plan.queries],
        "panels": [_panel(panel) for query in plan.queries for panel in query.panels],
        "memory": sorted({_memory_name(sink) for sink in pipeline.sinks if sink.connection.connector == "memory"}),
        "topics": topics_touched(pipeline),
        "settings": _settings(plan, master, spark),
        "versions": versions(kafka),
    }


def program_info(
    name: str, file: str, *, master: str | None, spark: Mapping[str, str], kafka: str | None
) -> dict[str, Any]:
    """The same for a program whose queries are its own matter."""
    empty = ("generations", "sources", "tables", "sinks", "queries", "panels", "memory", "topics")
    chosen = {"spark.master": master, **spark} if master else dict(spark)
    return {
        "name": name,
        "file": file,
        "version": __version__,
        "generation": None,
        **{part: [] for part in empty},
        "settings": [_setting(key, value, "given for this run") for key, value in chosen.items()],
        "versions": versions(kafka),
    }


def topics_touched(pipeline: PipelineDef) -> list[str]:
    """The topics that a pipeline reads and writes, as far as it names them."""
    read = [topic for named in topics_read(pipeline).values() for topic in named]
    written = [sink.connection.argument for sink in pipeline.sinks if sink.connection.connector == "kafka"]
    return list(dict.fromkeys([*read, *(topic for topic in written if isinstance(topic, str))]))


def masked(name: str, value: Any) -> Any:
    """A value without its secrets, all the way down."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): masked(name if is_secret(name) else str(key), part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        pairs = (isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], str) for part in value)
        if value and all(pairs):  # what a frozen mapping has become
            return masked(name, dict(value))
        return [masked(name, part) for part in value]
    if isinstance(value, Secret) or is_secret(name) or holds_password(value):
        return MASK
    return str(value)


def versions(kafka: str | None) -> dict[str, str]:
    """What runs here."""
    here = {"millrace": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in ("pyspark", "confluent-kafka", "pyarrow"):
        with suppress(PackageNotFoundError):
            here[name] = version(name)
    return here | ({"kafka": kafka} if kafka else {})


def _source(source: SourceDef) -> dict[str, Any]:
    where = _connected(source.connection) | _place(source.place)
    return {"name": source.name, **where, "watermark": _watermark(source.watermark), "static": source.static}


def _table(table: TableDef) -> dict[str, Any]:
    code = {"sql": table.sql, "source": None if table.sql else _code(table), **_place(table.place)}
    return {"name": table.name, "reads": list(table.reads), **code, "watermark": _watermark(table.watermark)}


def _sink(sink: SinkDef, plan: Plan) -> dict[str, Any]:
    writer, _ = make_sink(sink.connection)
    return {
        "table": sink.table,
        **_connected(sink.connection),
        "to": masked("to", ", ".join(writer.resources(sink.table)) or None) if writer else None,
        "mode": sink.mode,
        "guarantee": writer.delivery_guarantee if writer else None,
        "query": next((query.name for query in plan.queries if sink in query.sinks), None),
        **_place(sink.place),
    }


def _query(query: Query, pipeline: PipelineDef) -> dict[str, Any]:
    sinks = [number for number, sink in enumerate(pipeline.sinks) if sink in query.sinks]
    trigger = str(query.trigger)
    return {"name": query.name, "table": query.table, "mode": query.mode, "trigger": trigger, "sinks": sinks}


def _panel(panel: RunPanel) -> dict[str, Any]:
    given = {name: value for name, value in panel.given.items() if value is not None and name != "title"}
    shown = {"id": panel.id, "table": panel.panel.table, "kind": panel.panel.kind, "title": panel.title}
    return {**shown, "options": masked("", given), "inferred": panel.inferred}


def _connected(connection: Connection) -> dict[str, Any]:
    argument = masked(connection.connector, connection.argument)
    detail = ", ".join(map(str, argument)) if isinstance(argument, list) else argument
    options = {name: masked(name, value) for name, value in connection.options}
    return {"connector": connection.connector, "detail": detail, "options": options}


def _memory_name(sink: SinkDef) -> str:
    return str(sink.connection.argument or dict(sink.connection.options).get("name") or sink.table)


def _code(table: TableDef) -> str | None:
    """The Python that makes a table, if it can still be read."""
    try:
        return textwrap.dedent(inspect.getsource(table.function)) if table.function else None
    except (OSError, TypeError):
        return None


def _watermark(watermark: Watermark | None) -> str | None:
    return f"{watermark.column}, {format_duration(watermark.seconds)}" if watermark else None


def _place(place: SourceLocation) -> dict[str, Any]:
    return {"file": place.file, "line": place.line}


def _settings(plan: Plan, master: str | None, spark: Mapping[str, str]) -> list[dict[str, Any]]:
    realtime = any(not query.batches for query in plan.queries)
    chosen = spark_choices(master=spark.get("spark.master", master), realtime=realtime, given=spark)
    choices = (*chosen, *state_store(plan, master, spark))
    ours = [_setting(choice.key, choice.value, choice.why) for choice in choices if choice.key not in spark]
    return ours + [_setting(key, value, "given for this run") for key, value in spark.items()]


def _setting(name: str, value: str | None, why: str) -> dict[str, Any]:
    return {"name": name, "value": masked(name, value), "why": why}
