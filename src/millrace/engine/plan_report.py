"""What a run would do, as JSON objects, for `millrace plan`.

- `query_report`: a query, how it starts and why, its sources, sinks and state.
- `topics_report`: the topics that a run uses.
- `settings_report`: the settings of Spark, each with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from millrace.connectors.base.api import MessageSource, Source
from millrace.connectors.base.message_source import ARRIVAL, PartitionedSource
from millrace.connectors.base.offset_range import ReplayRange
from millrace.connectors.base.registry import CONNECTORS, make_source, system_of
from millrace.connectors.kafka.source import WORTHWHILE_RECORDS, KafkaSource, left_to_spark
from millrace.dead_letters.letter import dead_topic
from millrace.engine.checkpoints.query_history import CheckpointPosition, checkpoint_of
from millrace.engine.checkpoints.resume import ANEW, ResumeDecision, choices
from millrace.engine.session import spark_conf
from millrace.engine.session.spark_conf import ROCKSDB
from millrace.pipeline.analysis.operators import UNKNOWN, Operator
from millrace.pipeline.analysis.pipeline import SourceWatermark, analyse, source_watermark
from millrace.pipeline.analysis.scans import source_scans
from millrace.pipeline.checks.triggers import realtime_obstacles
from millrace.pipeline.compatibility.query_snapshot import option_to_json
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef
from millrace.pipeline.plan import Plan, Query
from millrace.pipeline.ranking import Ranking
from millrace.pipeline.schema import Map, Type, inner_types
from millrace.pipeline.secret import shown
from millrace.settings import BULK_READER
from millrace.units import format_duration

Json = dict[str, Any]
_TOPIC = "topic "
_DECODING = {
    "arrow": "decoded in columns (unless decoder: spark)",
    "spark": "decoded by Spark's functions",
    "sift": "looked at by Spark",
    "whole": "taken as they are",
}


def query_report(
    pipeline: PipelineDef,
    decision: ResumeDecision,
    state: Path,
    span: ReplayRange | None = None,
    found: Sequence[Operator] | None = None,
) -> Json:
    """Return what becomes of a query and why, what it reads (a new one from the start of `span`) and writes.

    `found` are the operators with state in Spark's own plan, if Spark was asked.
    """
    query, position = decision.query, decision.position
    sources = pipeline.upstream_sources(query.table)
    operators = _with_found(analyse(pipeline).get(query.table.lower(), UNKNOWN).operators, found or ())
    scans = source_scans(pipeline, query.table)
    report: Json = {
        "name": query.name,
        "verdict": decision.verdict,
        "why": decision.why,
        "changes": [{"effect": change.effect, "part": change.part, "what": change.what} for change in decision.changes],
        "choices": choices(query, decision.obstacles, state) if decision.obstacles else None,
        "unasked": decision.unasked or None,
        "batch": None if position is None else position.batch,
        "table": query.table,
        "mode": query.mode,
        "trigger": str(query.trigger),
        "sources": [
            _source_report(source, None if decision.verdict == ANEW else position, sources, span)
            | _reading_report(pipeline, source, query)
            | {"times": scans.get(source.name, 1)}
            for source in sources
        ],
        "rewritten": [
            {
                "table": table.name,
                "form": table.ranking.kind,
                "sql": _rewritten(pipeline, table.reads[0], table.ranking),
            }
            for name in pipeline.upstream(query.table)
            if (table := pipeline.table(name)) and table.ranking
        ],
        "sinks": [_sink_report(sink) for sink in query.sinks],
        "realtime": _realtime_report(pipeline, query),
        "state": [
            _state_report(operator, query.mode) for operator in operators if operator.kind in spark_conf.STATEFUL
        ],
        "state_bytes": _folder_bytes(checkpoint_of(state, query.name) / "state"),
    }
    if error := decision.error:
        report |= {"why": "; ".join(filter(None, (error.message, error.why))), "choices": error.hint}
    return report


def _with_found(operators: Sequence[Operator], found: Sequence[Operator]) -> list[Operator]:
    """Return the operators of the file, with what only Spark's plan shows of them, and those that only it has."""
    bounds: dict[tuple[str, str], bool] = {}
    for operator in found:
        key = (operator.kind, operator.table)
        bounds[key] = bounds.get(key, True) and bool(operator.bounded)
    known = [
        replace(operator, bounded=bounds.get((operator.kind, operator.table))) if operator.bounded is None else operator
        for operator in operators
    ]
    written = {(operator.kind, operator.table) for operator in operators}
    return [*known, *(operator for operator in found if (operator.kind, operator.table) not in written)]


def _rewritten(pipeline: PipelineDef, read: str, ranking: Ranking) -> str:
    """Return the SQL of a ranking, without maps in its order where the schema of a source says that there are any."""
    source = pipeline.source(read)
    schema = CONNECTORS.source(source.connection, source.static).schema if source else None
    maps = [field.name for field in schema.fields if _has_map(field.type)] if schema else []
    return ranking.sql(read, maps)


def _has_map(kind: Type) -> bool:
    return isinstance(kind, Map) or any(map(_has_map, inner_types(kind)))


def _state_report(operator: Operator, mode: str) -> Json:
    """Return the state of an operator, its keys, and whether the state is bounded (None: not known)."""
    bounded = False if mode == "complete" else operator.bounded
    keys = list(operator.keys) if operator.keys is not None else None
    return {"operation": operator.what, "table": operator.table, "keys": keys, "forgotten": bounded}


def _folder_bytes(folder: Path) -> int:
    """Return the size of the files in a folder; a running query may remove some meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _realtime_report(pipeline: PipelineDef, query: Query) -> Json:
    """Return whether real-time mode can run a query, and the obstacles."""
    problems = [problem for sink in query.sinks for problem in realtime_obstacles(pipeline, sink, CONNECTORS)]
    obstacles = list(dict.fromkeys(problem.why or problem.message for problem in problems))
    return {"chosen": query.trigger.kind == "realtime", "possible": not problems, "against": obstacles}


def _source_report(
    source: SourceDef, position: CheckpointPosition | None, sources: list[SourceDef], span: ReplayRange | None
) -> Json:
    """Return what a source reads, and where it starts: at the `position` of a checkpoint, if there is one."""
    connector = source.connection.connector
    reads = ", ".join(CONNECTORS.source(source.connection, source.static).touches) or connector
    report: Json = {"name": source.name, "connector": connector, "reads": reads, "static": source.static}
    reader, _ = make_source(source.connection)
    if filling := reader.filling() if reader else None:
        report["listens"] = filling.where
    if source.static:
        return report | {"start": "whole, in every batch"}
    if position is None or position.batch < 0:
        if offsets := _replay_end(reader, span):
            return report | {"start": "where the replay ended", "offsets": offsets}
        return report | {"start": option_to_json(getattr(reader, "start", "the beginning"))}
    # Spark stores offsets by the number of a stream, which is certain only if there is one.
    single = len([other for other in sources if not other.static]) == 1
    known = position.offsets[0] if single and position.offsets and system_of(source) == "kafka" else None
    return report | {"start": "where it was", "offsets": known}


def _reading_report(pipeline: PipelineDef, source: SourceDef, query: Query) -> Json:
    reader, _ = make_source(source.connection)
    if not isinstance(reader, MessageSource):
        return {}
    report: Json = {"way": _way(reader, query)}
    if isinstance(reader, PartitionedSource) and query.batches and not source.static:
        watermark = source_watermark(pipeline, query.table, source, reader.time_columns())
        report["alignment"] = _alignment(reader, query, watermark)
    return report


def _alignment(reader: PartitionedSource, query: Query, watermark: SourceWatermark | None) -> str:
    """Return by what the batches of a backlog are cut across the partitions of a source."""
    if watermark is None:
        return "each partition gives its share of a batch, as the query has no watermark"
    by = reader.aligned_by(watermark)
    if not by:
        return "each partition gives its share of a batch (alignment: off): records of a backlog may be late"
    if isinstance(reader, KafkaSource) and left_to_spark(reader, batches=query.batches):
        return "a backlog is one batch, as Spark's own source cannot cut it by event time (max_per_batch is not used)"
    idle = f"records wait for older ones that arrive within {format_duration(reader.idle_after)}"
    if by != ARRIVAL:
        return f"batches of a backlog are cut by {by}, across all partitions; {idle}"
    chosen = "alignment: arrival" if reader.alignment == ARRIVAL else "the watermark's column is computed in a table"
    return f"batches of a backlog are cut by when records arrived ({chosen}), across all partitions; {idle}"


def _way(reader: MessageSource, query: Query) -> str:
    """Return how the records of a source are read and decoded."""
    decoding = reader.decoding if query.batches else "spark"
    decoded = _DECODING[decoding]
    if not isinstance(reader, KafkaSource):
        return decoded
    if why := left_to_spark(reader, batches=query.batches):
        return f"read by Spark's own source, as {why}; {decoded}"
    together = f"{decoded} where they are read" if decoding == "arrow" else decoded
    enough = "" if BULK_READER.value() == "on" else f"{WORTHWHILE_RECORDS:,} or more wait, or come in a minute, and "
    where = f"where {enough}the cluster wants neither tokens (OAUTHBEARER) nor a PKCS#12 keystore"
    return f"read in bulk (unless MILLRACE_BULK_READER=off), {where}, else by Spark's own source; {together}"


def _replay_end(reader: Source | None, span: ReplayRange | None) -> dict[str, Mapping[str, int]]:
    """Return where a source starts in a run of a generation: at the end of its replay."""
    if span is None or not isinstance(reader, KafkaSource):
        return {}
    names = {*reader.topic, *(reader.partitions or ())}
    if reader.pattern:
        names |= {topic for topic in span.begin if re.fullmatch(reader.pattern, topic)}
    return {topic: offsets for topic, offsets in span.begin.items() if topic in names}


def _sink_report(sink: SinkDef) -> Json:
    facts = CONNECTORS.sink(sink.connection, sink.table)
    connector = sink.connection.connector
    return {"connector": connector, "to": ", ".join(facts.touches) or connector, "guarantee": facts.guarantee}


def topics_report(pipeline: PipelineDef) -> list[str]:
    """Return every topic that a run uses: those of sources, sinks and dead letters."""
    topics: list[str] = []
    for source in pipeline.sources:
        if reader := make_source(source.connection)[0]:
            names = _topics(reader.resources())
            topics += [*names, *(map(dead_topic, names) if reader.keeps_dead_letters else ())]
    for sink in pipeline.sinks:
        topics += _topics(CONNECTORS.sink(sink.connection, sink.table).touches)
    return list(dict.fromkeys(topics))


def _topics(resources: Collection[str]) -> list[str]:
    return [resource.removeprefix(_TOPIC) for resource in resources if resource.startswith(_TOPIC)]


def settings_report(
    plan: Plan, master: str | None, given: Mapping[str, str], decisions: Collection[ResumeDecision]
) -> list[Json]:
    """Return Spark's settings with their reasons: our choices, the `given` ones, and those that a checkpoint keeps."""
    realtime = any(not query.batches for query in plan.queries)
    chosen = [
        *spark_conf.spark_choices(master=given.get("spark.master", master), realtime=realtime, given=given),
        *spark_conf.state_store(plan, master, given),
    ]
    kept = [(decision.query.name, _checkpoint_settings(decision)) for decision in decisions]
    # Whether a new query, or one that resumes its checkpoint, has its state in RocksDB.
    new = given.get(ROCKSDB.key) or next((choice.value for choice in chosen if choice.key == ROCKSDB.key), None)
    if ROCKSDB.value not in (new, *(conf.get(ROCKSDB.key) for _, conf in kept)):
        chosen = [choice for choice in chosen if choice not in spark_conf.ROCKSDB_OPTIONS]
    settings: dict[str, Json] = {choice.key: asdict(choice) for choice in chosen}
    settings |= {key: {"key": key, "value": shown(key, value), "why": "--set"} for key, value in given.items()}
    for query, conf in kept:
        for key, value in conf.items():
            if key in settings and value != settings[key]["value"]:
                settings[key].setdefault("kept", {})[query] = value
    return list(settings.values())


def _checkpoint_settings(decision: ResumeDecision) -> Mapping[str, str]:
    """Return the settings that the checkpoint of a query keeps; empty if the query does not resume."""
    position = decision.position
    return position.settings if position and decision.starts and decision.verdict != ANEW else {}
