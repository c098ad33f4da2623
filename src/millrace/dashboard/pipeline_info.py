"""A pipeline as the dashboard shows it: what it is made of, how it runs, what each sink promises; secrets masked."""

from __future__ import annotations

import inspect
import platform
import textwrap
from collections.abc import Iterable, Mapping
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
        "sources": [_source(one) for one in pipeline.sources],
        "tables": [_table(one) for one in pipeline.tables],
        "sinks": [_sink(one, plan) for one in pipeline.sinks],
        "queries": [_query(one, pipeline) for one in plan.queries],
        "panels": [_panel(one) for query in plan.queries for one in query.panels],
        "memory": sorted({_memory_name(one) for one in pipeline.sinks if one.connection.connector == "memory"}),
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
    kafka = [one.connection.argument for one in pipeline.sinks if one.connection.connector == "kafka"]
    return list(dict.fromkeys([*read, *(one for one in kafka if isinstance(one, str))]))


def masked(name: str, value: Any) -> Any:
    """A value without its secrets, all the way down."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): masked(name if is_secret(name) else str(key), one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return _masked_sequence(name, value)
    if isinstance(value, Secret) or is_secret(name) or holds_password(value):
        return MASK
    return str(value)


def versions(kafka: str | None) -> dict[str, str]:
    """What runs here."""
    found = {"millrace": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in ("pyspark", "confluent-kafka", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | ({"kafka": kafka} if kafka else {})


def _masked_sequence(name: str, value: Iterable[Any]) -> Any:
    """A list, or what a frozen mapping has become: pairs of a name and a value."""
    every = list(value)
    if every and all(isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in every):
        return {key: masked(name if is_secret(name) else key, one) for key, one in every}
    return [masked(name, one) for one in every]


def _source(one: SourceDef) -> dict[str, Any]:
    return {
        "name": one.name,
        **_connected(one.connection),
        **_place(one.place),
        "watermark": _watermark(one.watermark),
    } | ({"static": one.static})


def _table(one: TableDef) -> dict[str, Any]:
    return {
        "name": one.name,
        "reads": list(one.reads),
        "sql": one.sql,
        "source": None if one.sql else _code(one),
        **_place(one.place),
        "watermark": _watermark(one.watermark),
    }


def _sink(one: SinkDef, plan: Plan) -> dict[str, Any]:
    writer, _ = make_sink(one.connection)
    query = next((query.name for query in plan.queries if one in query.sinks), None)
    return {
        "table": one.table,
        **_connected(one.connection),
        "to": masked("to", ", ".join(writer.resources(one.table)) or None) if writer else None,
        "mode": one.mode,
        "guarantee": writer.delivery_guarantee if writer else None,
        "query": query,
        **_place(one.place),
    }


def _query(one: Query, pipeline: PipelineDef) -> dict[str, Any]:
    sinks = [number for number, sink in enumerate(pipeline.sinks) if sink in one.sinks]
    return {"name": one.name, "table": one.table, "mode": one.mode, "trigger": str(one.trigger), "sinks": sinks}


def _panel(one: RunPanel) -> dict[str, Any]:
    given = {name: value for name, value in one.given.items() if value is not None and name != "title"}
    return {
        "id": one.id,
        "table": one.panel.table,
        "kind": one.panel.kind,
        "title": one.title,
        "options": masked("", given),
        "inferred": one.inferred,
    }


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
    made = (*chosen, *state_store(plan, master, spark))
    ours = [_setting(one.key, one.value, one.why) for one in made if one.key not in spark]
    return ours + [_setting(key, value, "given for this run") for key, value in spark.items()]


def _setting(name: str, value: str | None, why: str) -> dict[str, Any]:
    return {"name": name, "value": masked(name, value), "why": why}
