"""What a run would do, as plain data: each query with its sources and sinks, what is made, what is needed, and why."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from millrace.connectors.base.api import MessageSource, Source
from millrace.connectors.base.offset_range import ReplayRange
from millrace.connectors.base.registry import CONNECTORS, make_reader, system_of
from millrace.connectors.kafka.bulk_choice import WORTHWHILE_RECORDS, left_to_spark
from millrace.connectors.kafka.source import KafkaSource
from millrace.dead_letters.letter import dead_topic
from millrace.engine.checkpoints.query_history import CheckpointPosition, checkpoint_of
from millrace.engine.checkpoints.resume import ANEW, ResumeDecision, choices
from millrace.engine.session.spark_conf import ROCKSDB, ROCKSDB_OPTIONS, STATEFUL, ConfChoice, state_store
from millrace.engine.session.spark_conf import spark_choices as chosen
from millrace.pipeline.analysis.operators import UNKNOWN, Operator
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.checks.triggers import realtime_obstacles
from millrace.pipeline.compatibility.query_snapshot import option_to_json
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef
from millrace.pipeline.plan import Plan, Query
from millrace.pipeline.secret import shown
from millrace.settings import BULK_READER

Told = dict[str, Any]
_TOPIC = "topic "


def query_report(pipeline: PipelineDef, outlook: ResumeDecision, state: Path, span: ReplayRange | None = None) -> Told:
    """One query: what becomes of it and why, what it reads (from a span on, where it is new) and writes."""
    one, at = outlook.query, outlook.position
    names = pipeline.upstream(one.table)
    sources = [source for name in names if (source := pipeline.source(name))]
    told: Told = {
        "name": one.name,
        "verdict": outlook.verdict,
        "why": outlook.why,
        "changes": [{"effect": each.effect, "part": each.part, "what": each.what} for each in outlook.changes],
        "choices": choices(one, outlook.obstacles, state) if outlook.obstacles else None,
        "unasked": outlook.unasked or None,
        "batch": None if at is None else at.batch,
        "table": one.table,
        "mode": one.mode,
        "trigger": str(one.trigger),
        "sources": [
            _source(source, at, sources, span, anew=outlook.verdict == ANEW) | _way(source, one, part=span is not None)
            for source in sources
        ],
        "sinks": [_sink(sink) for sink in one.sinks],
        "realtime": _realtime(pipeline, one),
        "state": [
            _kept(step, one.mode)
            for step in analyse(pipeline).get(one.table.lower(), UNKNOWN).steps
            if step.kind in STATEFUL
        ],
        "state_bytes": _bytes(checkpoint_of(state, one.name) / "state"),
    }
    if outlook.error:
        error = outlook.error
        told |= {"why": "; ".join(filter(None, (error.message, error.why))), "choices": error.hint}
    return told


def _kept(step: Operator, mode: str) -> Told:
    """What an operation remembers, by what, and whether it is forgotten one day (None: that cannot be told)."""
    forgotten = False if mode == "complete" else step.bounded
    keys = list(step.keys) if step.keys is not None else None
    return {"operation": step.what, "table": step.table, "keys": keys, "forgotten": forgotten}


def _bytes(folder: Path) -> int:
    """What the files of a state take; its query may be at work, and remove some meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            total += file.stat().st_size if file.is_file() else 0
    return total


def _realtime(pipeline: PipelineDef, one: Query) -> Told:
    """Whether real-time mode could run a query, and what stands in the way."""
    found = [problem for sink in one.sinks for problem in realtime_obstacles(pipeline, sink, CONNECTORS)]
    against = list(dict.fromkeys(problem.why or problem.message for problem in found))
    return {"chosen": one.trigger.kind == "realtime", "possible": not found, "against": against}


def _source(
    source: SourceDef, at: CheckpointPosition | None, among: list[SourceDef], span: ReplayRange | None, *, anew: bool
) -> Told:
    kind = source.connection.connector
    reads = ", ".join(CONNECTORS.source(source.connection, source.static).touches) or kind
    told: Told = {"name": source.name, "connector": kind, "reads": reads, "static": source.static}
    reader, _ = make_reader(source.connection)
    filling = reader.filling() if reader else None
    told |= {"listens": filling.where} if filling else {}
    streams = [one for one in among if not one.static]
    if source.static:
        return told | {"start": "whole, in every batch"}
    if anew or at is None or at.batch < 0:
        ended = _ended(reader, span)
        if ended:
            return told | {"start": "where the replay ended", "offsets": ended}
        return told | {"start": option_to_json(getattr(reader, "start", "the beginning"))}
    # Only with one stream is it certain which of Spark's numbers it has.
    offsets = at.offsets[0] if len(streams) == 1 and at.offsets else None
    return told | {"start": "where it was", "offsets": offsets if system_of(source) == "kafka" else None}


def _way(source: SourceDef, query: Query, *, part: bool) -> Told:
    """How records come in, and what decodes them."""
    reader, _ = make_reader(source.connection)
    if not isinstance(reader, MessageSource):
        return {}
    decoding = reader.decoding if query.batches else "spark"
    decoded = _DECODED[decoding]
    if not isinstance(reader, KafkaSource):
        return {"way": decoded}
    why = left_to_spark(reader, batches=query.batches, part=part)
    if why:
        return {"way": f"read by Spark's own source, as {why}; {decoded}"}
    together = f"{decoded} where they are read" if decoding == "arrow" else decoded
    enough = "" if BULK_READER.value() == "on" else f"{WORTHWHILE_RECORDS:,} or more wait, or come in a minute, and "
    where = f"where {enough}the cluster wants neither TLS nor a password"
    return {"way": f"read in bulk (unless MILLRACE_BULK_READER=off), {where}, else by Spark's own source; {together}"}


_DECODED = {
    "arrow": "decoded in columns (unless decoder: spark)",
    "spark": "decoded by Spark's functions",
    "sift": "looked at by Spark",
    "whole": "taken as they are",
}


def _ended(reader: Source | None, span: ReplayRange | None) -> dict[str, Mapping[str, int]]:
    """Where a source begins in a run of a generation, which begins where its replay ended."""
    if span is None or not isinstance(reader, KafkaSource):
        return {}
    names = (*reader.topic, *(reader.partitions or ()))
    return {
        topic: numbers
        for topic, numbers in span.begin.items()
        if topic in names or (reader.pattern and re.fullmatch(reader.pattern, topic))
    }


def _sink(sink: SinkDef) -> Told:
    facts = CONNECTORS.sink(sink.connection, sink.table)
    kind = sink.connection.connector
    return {"connector": kind, "to": ", ".join(facts.touches) or kind, "guarantee": facts.guarantee}


def topics_report(pipeline: PipelineDef) -> list[str]:
    """Every topic that a run sees to: those of sources and sinks, and of dead letters."""
    return list(dict.fromkeys([*_read(pipeline), *_written(pipeline)]))


def _read(pipeline: PipelineDef) -> Iterator[str]:
    for source in pipeline.sources:
        reader, _ = make_reader(source.connection)
        named = _topics(reader.resources()) if reader else []
        yield from named
        if reader and reader.keeps_dead_letters:
            yield from map(dead_topic, named)


def _written(pipeline: PipelineDef) -> Iterator[str]:
    for sink in pipeline.sinks:
        yield from _topics(CONNECTORS.sink(sink.connection, sink.table).touches)


def _topics(touches: Collection[str]) -> list[str]:
    return [one.removeprefix(_TOPIC) for one in touches if one.startswith(_TOPIC)]


def settings_report(
    plan: Plan, master: str | None, given: Mapping[str, str], found: Collection[ResumeDecision]
) -> list[Told]:
    """Spark's settings that are chosen, each with its reason; what was given wins, and what a checkpoint keeps wins."""
    realtime = any(not one.batches for one in plan.queries)
    made = list(chosen(master=given.get("spark.master", master), realtime=realtime, given=given))
    made += state_store(plan, master, given)
    if not _in_rocksdb(made, given, found):
        made = [one for one in made if one not in ROCKSDB_OPTIONS]
    told: dict[str, Told] = {one.key: {"key": one.key, "value": one.value, "why": one.why} for one in made}
    told |= {key: {"key": key, "value": shown(key, value), "why": "--set"} for key, value in given.items()}
    for one in found:
        kept = _going_on(one)
        for key in [key for key in kept if key in told and kept[key] != told[key]["value"]]:
            told[key].setdefault("kept", {})[one.query.name] = kept[key]
    return list(told.values())


def _in_rocksdb(made: Collection[ConfChoice], given: Mapping[str, str], found: Collection[ResumeDecision]) -> bool:
    """Whether a state is kept in RocksDB: by a query that begins, or by one that goes on with its checkpoint."""
    chosen_store = given.get(ROCKSDB.key) or next((one.value for one in made if one.key == ROCKSDB.key), None)
    return ROCKSDB.value in (chosen_store, *(_going_on(one).get(ROCKSDB.key) for one in found))


def _going_on(one: ResumeDecision) -> Mapping[str, str]:
    """The settings that a checkpoint keeps, of a query that goes on with it."""
    return one.position.settings if one.position and one.starts and one.verdict != ANEW else {}
