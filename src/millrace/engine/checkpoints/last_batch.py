"""The end of event time: a last batch without records that closes every window (`run --until-caught-up --flush`).

Spark has no call for it. But a batch that stands in the offset log of a checkpoint and is not committed is what the
next start of the query runs first, with the watermark that is written there. So `plan_last_batch` writes the plan of a
batch that reads nothing and whose watermark is the end of event time, and the query is started for this batch alone
(the trigger `LAST_BATCH`). To Spark and to the sinks it is a batch like any other: it comes again after a crash, with
the same number, and is written once.

Afterwards every record would be late. So a query does not resume after its last batch, unless the user accepts that
(`withdraw_last_batch` gives the checkpoint the watermark back that its records gave it). Nor is it started again for
the last batch once that is committed. For the same reason a pipeline whose queries feed each other has no last batch.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from millrace.atomic_files import write_whole
from millrace.connectors.base.query_checkpoint import (
    LOG_VERSION,
    last_committed_batch,
    last_planned_batch,
    unfinished_batch,
)
from millrace.connectors.base.registry import sink_of, source_of
from millrace.connectors.kafka.sink import KafkaSink
from millrace.connectors.kafka.source import KafkaSource
from millrace.engine.checkpoints.checkpoint import metadata_number
from millrace.errors import InvalidOption, StateMismatch
from millrace.pipeline.analysis.operators import UNKNOWN, Operator
from millrace.pipeline.analysis.pipeline import analyse
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, Trigger
from millrace.pipeline.plan import Plan, Query
from millrace.telemetry.progress import END_OF_EVENT_TIME

LAST_BATCH = Trigger("last batch")
_END_MS = round(END_OF_EVENT_TIME.timestamp() * 1000)
_WATERMARK, _NEXT_WATERMARK, _TIME = "batchWatermarkMs", "nextBatchWatermarkMs", "batchTimestampMs"
_KEEPING_ROWS = ("left", "right", "full")
"""Joins of streams that write rows without a partner when the watermark has passed them."""


def emits_at_end(pipeline: PipelineDef, query: Query) -> bool:
    """Return whether a query may hold rows that it writes only when the watermark has passed them."""
    plan = analyse(pipeline).get(query.table.lower(), UNKNOWN)
    if not query.sinks or query.mode == "complete":
        return False
    return plan.opaque or any(_emits(operator, query.mode) for operator in plan.operators)


def _emits(operator: Operator, mode: str) -> bool:
    if operator.kind == "aggregate":
        return mode == "append"  # in update mode it has written everything at once
    return operator.kind == "state" or (operator.kind == "join" and operator.join in _KEEPING_ROWS)


def has_watermark(pipeline: PipelineDef, query: Query) -> bool:
    """Return whether the file gives a query a watermark; it is not in the checkpoint while one source is silent."""
    return any(element and element.watermark for element in map(pipeline.element, pipeline.upstream(query.table)))


def require_separate_queries(plan: Plan) -> None:
    """Raise if event time would end for a query before all that another one writes for it is there."""
    for writer in plan.queries:
        for reader in plan.queries:
            streams = [source for source in plan.pipeline.upstream_sources(reader.table) if not source.static]
            shared = [what for sink in writer.sinks for stream in streams if (what := _passed_on(sink, stream))]
            if shared and (emits_at_end(plan.pipeline, writer) or emits_at_end(plan.pipeline, reader)):
                raise InvalidOption(
                    f"--flush cannot end event time for query {reader.name!r}: it reads {min(shared)}, which query "
                    f"{writer.name!r} writes",
                    place=reader.place,
                    why="what the one writes last would come too late for the other",
                    hint="make two pipelines of them and run one after the other, or leave out --flush",
                )


def _passed_on(sink: SinkDef, stream: SourceDef) -> str:
    """Return what a sink may write that a stream reads; empty if there is nothing."""
    writer, reader = sink_of(sink), source_of(stream)
    shared = set(writer.resources(sink.table)).intersection(reader.resources())
    if shared:
        return min(shared)
    if not isinstance(writer, KafkaSink) or not isinstance(reader, KafkaSource):
        return ""
    if writer.topic_column:  # it may name any topic
        return f"topic {reader.pattern or reader.topics()[0]}"
    return f"topic {writer.topic}" if reader.matching and re.fullmatch(reader.matching, writer.topic) else ""


def has_open_windows(pipeline: PipelineDef, query: Query, checkpoint: Path) -> bool:
    """Return whether a query holds rows that its last batch, which is not finished, would write."""
    if not emits_at_end(pipeline, query):
        return False
    in_first_batch = last_committed_batch(checkpoint) < 0 <= last_planned_batch(checkpoint)
    return in_first_batch or _awaits_end(checkpoint, watermarked=has_watermark(pipeline, query))


def _awaits_end(checkpoint: Path, *, watermarked: bool) -> bool:
    last = last_committed_batch(checkpoint)
    watermark = _watermark_after(checkpoint, last)
    keeps_state = last >= 0 and (checkpoint / "state").is_dir() and (watermarked or watermark > 0)
    return keeps_state and watermark < _END_MS


def plan_last_batch(checkpoint: Path, *, watermarked: bool) -> bool:
    """Plan the last batch of a query that has caught up; return whether the query has to be started for it.

    A query that is not known to be `watermarked` is one if its checkpoint has a watermark: Python may set it.
    """
    if unfinished_batch(checkpoint) is not None:
        return is_last_batch_planned(checkpoint)
    if not _awaits_end(checkpoint, watermarked=watermarked):
        return False
    last = last_committed_batch(checkpoint)
    plan = checkpoint / "offsets" / str(last)
    version, metadata, *sources = plan.read_text("utf-8").split("\n")
    if version != LOG_VERSION:
        raise StateMismatch(f"{plan} has a format that Millrace does not know", why=version)
    fields = json.loads(metadata) | {_WATERMARK: _END_MS, _TIME: int(time.time() * 1000)}
    text = "\n".join([version, json.dumps(fields, separators=(",", ":")), *sources])
    write_whole(checkpoint / "offsets" / str(last + 1), text)
    return True


def is_last_batch_planned(checkpoint: Path) -> bool:
    """Return whether the last batch of a query was planned, and is not finished."""
    unfinished = unfinished_batch(checkpoint)
    return unfinished is not None and metadata_number(checkpoint / "offsets" / str(unfinished), _WATERMARK) == _END_MS


def is_last_batch_done(checkpoint: Path) -> bool:
    """Return whether a query has run its last batch."""
    planned = last_planned_batch(checkpoint)
    finished = planned == last_committed_batch(checkpoint) >= 0
    return finished and metadata_number(checkpoint / "offsets" / str(planned), _WATERMARK) == _END_MS


def withdraw_last_batch(checkpoint: Path) -> None:
    """Give the checkpoint of a query that has run its last batch the watermark that it had before."""
    last = last_committed_batch(checkpoint)
    watermark = _watermark_after(checkpoint, last - 1)
    # In this order: until the plan is rewritten, the batch counts as the last one.
    _rewrite(checkpoint / "commits" / str(last), _NEXT_WATERMARK, watermark)
    _rewrite(checkpoint / "offsets" / str(last), _WATERMARK, watermark)


def _watermark_after(checkpoint: Path, batch: int) -> int:
    """Return the watermark that the batch after this one has, in milliseconds."""
    planned = metadata_number(checkpoint / "offsets" / str(batch), _WATERMARK)
    return max(planned, metadata_number(checkpoint / "commits" / str(batch), _NEXT_WATERMARK))


def _rewrite(path: Path, name: str, value: int) -> None:
    version, metadata, *others = path.read_text("utf-8").split("\n")
    fields = json.loads(metadata) | {name: value}
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old content
    write_whole(path, "\n".join([version, json.dumps(fields, separators=(",", ":")), *others]))
