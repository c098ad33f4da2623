"""Decide for each query of a plan whether it resumes, starts from scratch, or must not start.

- Compare the query with the one that made its checkpoint, by the file and by Spark's plan.
- Ask the sinks whether the checkpoint is the newest: a sink may hold batches that the checkpoint does not know.
- Refuse a start with what the user can do instead. `plan` and `run` use the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import SINKS, SOURCES, RunContext, Sink
from millrace.connectors.base.query_checkpoint import unfinished_batch
from millrace.connectors.base.registry import CONNECTORS, current_options, make_sink
from millrace.engine.checkpoints import query_history
from millrace.engine.checkpoints.fingerprint import fingerprint, keeps_state, with_all_columns_read
from millrace.engine.checkpoints.last_batch import (
    has_open_windows,
    is_last_batch_done,
    is_last_batch_planned,
)
from millrace.engine.checkpoints.query_history import CheckpointPosition, checkpoint_of, last_batch, recorded_start
from millrace.engine.checkpoints.state_dir import known_of, origins, origins_text, unused_checkpoints
from millrace.errors import CheckpointIncompatible, InputError, MillraceError, StateMismatch, UnknownName
from millrace.pipeline.compatibility.changes import CHANGES_MEANING, COMPATIBLE, INCOMPATIBLE, UNKNOWN, Change, changes
from millrace.pipeline.compatibility.query_snapshot import QuerySnapshot, snapshot_query
from millrace.pipeline.compatibility.state_schema import StateSchema, state_differences
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import Plan, Query
from millrace.plugins import PluginRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESUMES, ASKED, ANEW = "resumes", "asks Spark", "starts from scratch"
REFUSED, BLOCKED, LEFT_OUT = "cannot resume", "cannot start", "is left out"
_END = "end"
"""The part of a change that is none of the file: the query is at the end of event time."""


@dataclass(frozen=True)
class ResumeDecision:
    """What a run does with a query."""

    query: Query
    verdict: str
    why: str = ""
    changes: tuple[Change, ...] = ()
    position: CheckpointPosition | None = None
    error: MillraceError | None = None
    """Another error that prevents it from starting."""
    unasked: str = ""
    """Why its sinks could not be asked whether its checkpoint is the newest."""

    @property
    def starts(self) -> bool:
        """Whether a run starts it, as far as is known."""
        return self.verdict not in (REFUSED, BLOCKED, LEFT_OUT)

    @property
    def is_unfinished(self) -> bool:
        """Whether a run was ended before the query had written its last windows."""
        return any(change.part == _END and change.effect == INCOMPATIBLE for change in self.changes)

    @property
    def obstacles(self) -> list[Change]:
        """The changes that prevent it from resuming."""
        return [change for change in self.changes if change.effect in (INCOMPATIBLE, CHANGES_MEANING)]


def resume_decisions(
    plan: Plan,
    state: Path,
    cluster_id: str | None,
    accept: Collection[str] = (),
    schemas: Mapping[str, StateSchema] | None = None,
    *,
    flush: bool = False,
) -> list[ResumeDecision]:
    """Return the decision for each query that writes; without `schemas` of Spark's plans, from the file alone.

    A run with `flush` also finishes what another one has begun, and leaves out the queries that have nothing to finish.
    """
    queries = [query for query in plan.queries if query.sinks]
    names = [query.name for query in queries]
    for name in accept:
        if name not in names:
            raise UnknownName.among("query", name, names)
    known = known_of(state, plan.pipeline).get("queries", {})
    starts = {name: recorded_start(state, name) for name in unused_checkpoints(state, plan)}
    former = {name: start.snapshot for name, start in starts.items() if start}
    lasting = [query for query in queries if not _why_never_resumed(plan.pipeline, query) and query.name not in accept]
    ended = {query.name for query in lasting if is_last_batch_done(checkpoint_of(state, query.name))}
    unended = [
        query.name
        for query in lasting
        if ended and has_open_windows(plan.pipeline, query, checkpoint_of(state, query.name))
    ]

    def decide(query: Query) -> ResumeDecision:
        if flush and unended and query.name in ended:
            return ResumeDecision(query, LEFT_OUT)
        never = _why_never_resumed(plan.pipeline, query)
        if never or not (checkpoint_of(state, query.name) / "offsets").exists():
            refusal = _sink_refusal(query)
            decision = _decide(query, [] if never else _changes_to_output(query, former), accept, None)
            verdict = BLOCKED if refusal or decision.obstacles else ANEW
            return replace(decision, verdict=verdict, why=never or "it has no checkpoint yet", error=refusal)
        source_changes = _source_changes(plan.pipeline, query, known, cluster_id)
        other_changes = _changes(plan.pipeline, query, state, (schemas or {}).get(query.name))
        end = _ended(checkpoint_of(state, query.name), unended, flush=flush)
        found = [*end, *source_changes, *other_changes]
        return _decide(query, found, accept, query_history.position(state, query.name))

    return [decide(query) for query in queries]


def _ended(checkpoint: Path, unended: list[str], *, flush: bool) -> list[Change]:
    """Return why a query does not resume whose last windows were written at the end of event time."""
    if is_last_batch_done(checkpoint):
        what = "its last windows were written by --flush: what comes now for their time would make other rows of them"
        names = ", ".join(map(repr, unended))
        others = f"; those of {names} were not: --until-caught-up --flush writes them" if unended else ""
        return [Change(CHANGES_MEANING, _END, f"{what}{others}")]
    if is_last_batch_planned(checkpoint) and not flush:
        what = "a run that writes its last windows was ended before it had written all of them"
        return [Change(INCOMPATIBLE, _END, what)]
    return []


def _decide(
    query: Query, changes: list[Change], accept: Collection[str], position: CheckpointPosition | None
) -> ResumeDecision:
    if query.name in accept:
        changes = _made_compatible(changes, CHANGES_MEANING)
    effects = {change.effect for change in changes}
    verdict = REFUSED if effects & {INCOMPATIBLE, CHANGES_MEANING} else ASKED if UNKNOWN in effects else RESUMES
    return ResumeDecision(query, verdict, "", tuple(changes), position)


def _made_compatible(changes: list[Change], effect: str) -> list[Change]:
    return [replace(change, effect=COMPATIBLE) if change.effect == effect else change for change in changes]


def _changes_to_output(query: Query, former: Mapping[str, QuerySnapshot]) -> list[Change]:
    """Return a change for each topic of a new query that has the output of a query that was removed."""
    output_changes = []
    for name, snapshot in former.items():
        theirs = {sink["to"] for sink in snapshot["sinks"] if sink["connector"] == "kafka"}
        same = snapshot["mode"] == query.mode  # the same query under another name
        effect, result = (
            (CHANGES_MEANING, ": what it has read would be read and written again") if same else (COMPATIBLE, "")
        )
        for sink in query.sinks:
            for to in theirs.intersection(CONNECTORS.sink(sink.connection, sink.table).touches):
                what = f"{to} has the output of query {name!r}, which is not in the file any more{result}"
                output_changes.append(Change(effect, "sink", what))
    return output_changes


def _changes(pipeline: PipelineDef, query: Query, state: Path, schema: StateSchema | None) -> list[Change]:
    before = recorded_start(state, query.name)
    if before is None:
        what = "what made its checkpoint is not recorded: Spark compares the types of its state"
        return [Change(COMPATIBLE, "state", what)] if last_batch(state, query.name) >= 0 else []
    now = snapshot_query(pipeline, query, CONNECTORS)
    file_changes = changes(with_current_options(before.snapshot), with_current_options(now))
    if schema is None or before.state_schema is None:
        return file_changes
    # Spark's plan knows the state better than the text does.
    others = _made_compatible([change for change in file_changes if change.part != "state"], UNKNOWN)
    return [*others, *state_differences(StateSchema.of(before.state_schema), schema)]


def with_current_options(snapshot: QuerySnapshot) -> QuerySnapshot:
    """Return a snapshot with the current names of options, whichever names the file uses or used."""
    sources = {name: _renamed(SOURCES, source) for name, source in snapshot["sources"].items()}
    return snapshot | {"sources": sources, "sinks": [_renamed(SINKS, sink) for sink in snapshot["sinks"]]}


def _renamed(connectors: PluginRegistry[Any], connection: QuerySnapshot) -> QuerySnapshot:
    try:
        kind = connectors.load(connection["connector"])
    except InputError:  # a plug-in that is not installed any more
        return connection
    return connection | {"options": current_options(kind, connection["options"])}


def _source_changes(
    pipeline: PipelineDef, query: Query, known: Mapping[str, Any], cluster_id: str | None
) -> list[Change]:
    now = origins(pipeline, query, cluster_id)
    before = known.get(query.name, now)
    if cluster_id is None:  # the cluster is not known yet
        before = {name: [kind, what.partition(" of cluster ")[0]] for name, (kind, what) in before.items()}
        now = {name: [kind, what.removesuffix(" of cluster None")] for name, (kind, what) in now.items()}
    if before == now:
        return []
    return [Change(INCOMPATIBLE, "source", f"it read {origins_text(before)}; now it reads {origins_text(now)}")]


def _why_never_resumed(pipeline: PipelineDef, query: Query) -> str:
    """Return why a query starts from scratch each time, if it does."""
    for source in pipeline.upstream_sources(query.table):
        if not source.static and not CONNECTORS.source(source.connection, False).resumes:
            return f"what {source.name} ({source.connection.connector}) gave cannot be read again"
    if not any(CONNECTORS.sink(sink.connection, sink.table).resumes for sink in query.sinks):
        return f"{query.sinks[0].connection.connector} keeps nothing beyond a run"
    return ""


def _sink_refusal(query: Query) -> MillraceError | None:
    """Return the error of a sink that accepts nothing from a query that starts from scratch."""
    for sink in query.sinks:
        writer, _ = make_sink(sink.connection)
        try:
            if writer:
                writer.require_new()
        except MillraceError as error:
            error.place = error.place or sink.place
            return error
    return None


def require_resumable(decisions: list[ResumeDecision], state: Path, notify: Callable[[str], None]) -> None:
    """Raise for the first query that cannot start, or that has to be finished; report the changes of the others."""
    for decision in sorted(decisions, key=lambda decision: not decision.is_unfinished):
        if decision.error:
            raise decision.error
        if decision.verdict in (REFUSED, BLOCKED):
            raise _refusal(decision.query, decision.obstacles, state, decision.verdict)
    for decision in decisions:
        for change in decision.changes:
            notify(f"query {decision.query.name!r}: {change.what}")


def _refusal(
    query: Query, obstacles: list[Change], state: Path, verdict: str = REFUSED
) -> StateMismatch | CheckpointIncompatible:
    kind = CheckpointIncompatible if verdict == REFUSED and obstacles[0].part != "source" else StateMismatch
    return kind(
        f"query {query.name!r} {verdict}",
        place=query.place,
        why="; ".join(change.what for change in obstacles),
        hint=choices(query, obstacles, state),
    )


def choices(query: Query, obstacles: list[Change], state: Path) -> str:
    """Return what the user can do about a query that cannot resume."""
    if not checkpoint_of(state, query.name).exists():
        return f"undo the change, write to another topic, or --accept-state-change {query.name} to write it again"
    if obstacles[0].part == _END:
        return _choices_at_end(query, obstacles)
    begin = (
        "undo the change, compute it again into a new generation (millrace replay), run with another --state (what is "
        f"in its outputs stays there), or remove {checkpoint_of(state, query.name)} to start from scratch"
    )
    if any(change.effect == INCOMPATIBLE for change in obstacles):
        return begin
    return f"{begin}; --accept-state-change {query.name} resumes with old and new results mixed"


def _choices_at_end(query: Query, obstacles: list[Change]) -> str:
    if any(change.effect == INCOMPATIBLE for change in obstacles):
        return "finish it: repeat the run with --until-caught-up --flush"
    again = "to compute everything again, run with another --state and other outputs"
    return f"{again}; --accept-state-change {query.name} resumes as if the last windows had not been written"


class ResumePlanner:
    """Checks a query that is about to start, as Spark has analysed it.

    What a checkpoint holds counts for a query that `resumes` only: for another one it is about to be removed.
    """

    def __init__(
        self, pipeline: PipelineDef, query: Query, state: Path, accept: Collection[str], *, resumes: bool = True
    ) -> None:
        self._pipeline, self._query, self._state, self._accept = pipeline, query, state, accept
        self.resumes = resumes
        self._all_columns = False
        self._schema: StateSchema | None = None

    def with_all_columns(self, table: DataFrame) -> DataFrame:
        """Return the table with all its columns in its state, unless its checkpoint was created without them."""
        before = recorded_start(self._state, self._query.name)
        started = self.resumes and last_batch(self._state, self._query.name) >= 0
        wanted = bool(before and before.state_schema and before.state_schema["whole"]) if started else True
        distinct = len({name.lower() for name in table.columns}) == len(table.columns)  # else they cannot be named
        self._all_columns = wanted and distinct and self._query.batches and keeps_state(table)
        return with_all_columns_read(table) if self._all_columns else table

    def state_schema(self, table: DataFrame, written: DataFrame, sources: Mapping[str, DataFrame]) -> StateSchema:
        """Return the fingerprint of Spark's plan; `sources` are the frames that it reads, by name."""
        return fingerprint(table, written, sources, whole=self._all_columns)

    def require(self, table: DataFrame, written: DataFrame, sources: Mapping[str, DataFrame]) -> None:
        """Raise if another query made the checkpoint that it resumes."""
        before = recorded_start(self._state, self._query.name) if self.resumes else None
        try:
            self._schema = self.state_schema(table, written, sources)
        except Exception:  # a plan that cannot be read is an error only where there is one to compare with
            if before and before.state_schema:
                raise
        found = _changes(self._pipeline, self._query, self._state, self._schema) if self.resumes else []
        decision = _decide(self._query, found, self._accept, None)
        if decision.obstacles:
            raise _refusal(self._query, decision.obstacles, self._state)

    def record(self) -> None:
        """Record the start, when what the query does not resume from is removed."""
        snapshot = snapshot_query(self._pipeline, self._query, CONNECTORS)
        schema = self._schema.to_json() if self._schema else None
        query_history.record_start(self._state, self._query.name, snapshot, schema)


def sink_contexts(context: RunContext, query: Query, writers: Sequence[Sink], checkpoint: Path) -> list[RunContext]:
    """Return the context of each sink of a query; sinks that write to the same target are numbered."""
    context = replace(context, name=query.table, mode=query.mode, batches=query.batches, query=query.name)
    own = replace(context, checkpoint=checkpoint, unfinished_batch=unfinished_batch(checkpoint))
    targets = [writer.resources(own.name) for writer in writers]
    return [replace(own, duplicate_index=targets[:number].count(target)) for number, target in enumerate(targets)]


def check_sinks(decision: ResumeDecision, context: RunContext) -> ResumeDecision:
    """Return the decision after the sinks of a query with a checkpoint were asked, or why they could not be."""
    query = decision.query
    if not decision.starts or decision.position is None:
        return decision
    writers = [writer for sink in query.sinks if (writer := make_sink(sink.connection)[0])]
    contexts = sink_contexts(context, query, writers, checkpoint_of(context.state, query.name))
    unasked = ""
    for writer, own in zip(writers, contexts, strict=True):
        try:
            writer.require_newest(own)
        except StateMismatch as error:
            return replace(decision, verdict=REFUSED, error=error)
        except MillraceError as error:  # a Kafka that does not answer
            unasked = error.message
    return replace(decision, unasked=unasked)
