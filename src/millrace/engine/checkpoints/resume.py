"""Whether each query of a plan goes on where it was, begins anew, or must not start; the same rules for all who ask.

Whether a query's checkpoint is the newest that there is, as its sinks tell: a plan asks them as a run does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import READERS, WRITERS, RunContext, Sink
from millrace.connectors.base.query_checkpoint import unfinished_batch
from millrace.connectors.base.registry import CONNECTORS, current_options, make_writer
from millrace.engine.checkpoints.fingerprint import fingerprint, keeps_state, wholly
from millrace.engine.checkpoints.query_history import (
    CheckpointPosition,
    checkpoint_of,
    last_batch,
    position,
    record_start,
    recorded_start,
)
from millrace.engine.checkpoints.state_dir import known_of, origins, origins_text, unused_checkpoints
from millrace.errors import CheckpointIncompatible, InputError, MillraceError, StateMismatch, UnknownName
from millrace.pipeline.compatibility.changes import ASKS, BREAKS, MIXES, NEW, Change, changes
from millrace.pipeline.compatibility.query_snapshot import QuerySnapshot, snapshot_query
from millrace.pipeline.compatibility.state_schema import StateSchema, state_differences
from millrace.pipeline.model import PipelineDef
from millrace.pipeline.plan import Plan, Query
from millrace.plugins import PluginRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESUMES, ASKED, ANEW = "resumes", "asks Spark", "starts from scratch"
REFUSED, BLOCKED = "cannot resume", "cannot start"

_UNKNOWN_CLUSTER = " of cluster None"


@dataclass(frozen=True)
class ResumeDecision:
    """What a run would do with a query."""

    query: Query
    verdict: str
    why: str = ""
    changes: tuple[Change, ...] = ()
    position: CheckpointPosition | None = None
    error: MillraceError | None = None
    """What else prevents it from starting."""
    unasked: str = ""
    """Why its sinks were not asked whether its checkpoint is the newest."""

    @property
    def starts(self) -> bool:
        """Whether a run would start it, as far as is known."""
        return self.verdict not in (REFUSED, BLOCKED)

    @property
    def obstacles(self) -> list[Change]:
        """What prevents it from going on."""
        return [one for one in self.changes if one.effect in (BREAKS, MIXES)]


def resume_decisions(
    plan: Plan,
    state: Path,
    cluster_id: str | None,
    accept: Collection[str] = (),
    found: Mapping[str, StateSchema] | None = None,
) -> list[ResumeDecision]:
    """What would become of each query that writes. With `found` Spark has been asked; else only the file has."""
    names = [query.name for query in plan.queries if query.sinks]
    for one in accept:
        if one not in names:
            raise UnknownName.among("query", one, names)
    known = known_of(state, plan.pipeline).get("queries", {})
    former = {name: before.said for name in unused_checkpoints(state, plan) if (before := recorded_start(state, name))}
    return [
        _outlook(plan.pipeline, query, state, known, former, cluster_id, accept, (found or {}).get(query.name))
        for query in plan.queries
        if query.sinks
    ]


def _outlook(
    pipeline: PipelineDef,
    query: Query,
    state: Path,
    known: Mapping[str, Any],
    former: Mapping[str, QuerySnapshot],
    cluster_id: str | None,
    accept: Collection[str],
    found: StateSchema | None,
) -> ResumeDecision:
    forgets = _forgets(pipeline, query)
    if forgets or not (checkpoint_of(state, query.name) / "offsets").exists():
        full = _full(query)
        judged = _judged(query, [] if forgets else _followed(query, former), accept, None)
        why = forgets or "it has no checkpoint yet"
        return replace(judged, verdict=BLOCKED if full or judged.obstacles else ANEW, why=why, error=full)
    made = [*_other_origins(pipeline, query, known, cluster_id), *_changes(pipeline, query, state, found)]
    return _judged(query, made, accept, position(state, query.name))


def _judged(query: Query, made: list[Change], accept: Collection[str], at: CheckpointPosition | None) -> ResumeDecision:
    if query.name in accept:
        made = [replace(one, effect=NEW) if one.effect == MIXES else one for one in made]
    effects = {one.effect for one in made}
    verdict = REFUSED if effects & {BREAKS, MIXES} else ASKED if ASKS in effects else RESUMES
    return ResumeDecision(query, verdict, "", tuple(made), at)


def _followed(query: Query, former: Mapping[str, QuerySnapshot]) -> list[Change]:
    """What queries that the file no longer has left in the topics that a new one writes to."""
    made = []
    for name, said in former.items():
        theirs = {sink["to"] for sink in said["sinks"] if sink["connector"] == "kafka"}
        for sink in query.sinks:
            for to in theirs.intersection(CONNECTORS.sink(sink.connection, sink.table).touches):
                what = f"{to} has the output of query {name!r}, which is not in the file any more"
                if said["mode"] == query.mode:  # with a name or a trigger of its own, the same once more
                    made.append(Change(MIXES, "sink", f"{what}: what it has read would be read and written again"))
                else:
                    made.append(Change(NEW, "sink", what))
    return made


def _changes(pipeline: PipelineDef, query: Query, state: Path, found: StateSchema | None) -> list[Change]:
    before = recorded_start(state, query.name)
    if before is None:
        if last_batch(state, query.name) < 0:
            return []
        return [Change(NEW, "state", "what made its checkpoint is not noted: Spark compares the types of its state")]
    now = snapshot_query(pipeline, query, CONNECTORS)
    made = changes(_with_current_options(before.said), _with_current_options(now))
    if found is None or before.found is None:
        return made
    # Spark has been asked, and knows better than the text does what the state is.
    said = [replace(one, effect=NEW) if one.effect == ASKS else one for one in made if one.part != "state"]
    return [*said, *state_differences(StateSchema.of(before.found), found)]


def _with_current_options(snapshot: QuerySnapshot) -> QuerySnapshot:
    """Return a snapshot with the current names of options, whichever names the file uses or used."""
    sources = {name: _renamed(READERS, source) for name, source in snapshot["sources"].items()}
    return snapshot | {"sources": sources, "sinks": [_renamed(WRITERS, sink) for sink in snapshot["sinks"]]}


def _renamed(connectors: PluginRegistry[Any], connection: QuerySnapshot) -> QuerySnapshot:
    try:
        kind = connectors.load(connection["connector"])
    except InputError:  # a plug-in that is not installed any more
        return connection
    return connection | {"options": current_options(kind, connection["options"])}


def _other_origins(
    pipeline: PipelineDef, query: Query, known: Mapping[str, Any], cluster_id: str | None
) -> list[Change]:
    now = origins(pipeline, query, cluster_id)
    before = known.get(query.name, now)
    if cluster_id is None:  # nobody can tell which cluster it will be
        before = {name: [kind, f"{what.partition(' of cluster ')[0]}"] for name, (kind, what) in before.items()}
        now = {name: [kind, what.removesuffix(_UNKNOWN_CLUSTER)] for name, (kind, what) in now.items()}
    if before == now:
        return []
    return [Change(BREAKS, "source", f"it read {origins_text(before)}; now it reads {origins_text(now)}")]


def _forgets(pipeline: PipelineDef, query: Query) -> str:
    """Why a query begins anew each time, if it does."""
    sources = [source for name in pipeline.upstream(query.table) if (source := pipeline.source(name))]
    for source in sources:
        if not source.static and not CONNECTORS.source(source.connection, False).resumes:
            return f"what {source.name} ({source.connection.connector}) gave cannot be read again"
    if not any(CONNECTORS.sink(sink.connection, sink.table).resumes for sink in query.sinks):
        return f"{query.sinks[0].connection.connector} keeps nothing beyond a run"
    return ""


def _full(query: Query) -> MillraceError | None:
    """What a sink says that would not take more from a query that begins anew."""
    for sink in query.sinks:
        writer, _ = make_writer(sink.connection)
        try:
            if writer:
                writer.require_new()
        except MillraceError as error:
            error.place = error.place or sink.place
            return error
    return None


def require_resumable(found: list[ResumeDecision], state: Path, tell: Callable[[str], None]) -> None:
    """Raise for the first query that cannot go on; of the others, tell what is new."""
    for one in found:
        if one.error:
            raise one.error
        if not one.starts:
            raise _refusal(one.query, one.obstacles, state, one.verdict)
    for one in found:
        for change in one.changes:
            tell(f"query {one.query.name!r}: {change.what}")


def _refusal(
    query: Query, obstacles: list[Change], state: Path, verdict: str = REFUSED
) -> StateMismatch | CheckpointIncompatible:
    kind = CheckpointIncompatible if verdict == REFUSED and obstacles[0].part != "source" else StateMismatch
    return kind(
        f"query {query.name!r} {verdict}",
        place=query.place,
        why="; ".join(one.what for one in obstacles),
        hint=choices(query, obstacles, state),
    )


def choices(query: Query, obstacles: list[Change], state: Path) -> str:
    """What the user can do about a query that cannot go on."""
    if not checkpoint_of(state, query.name).exists():
        return f"undo the change, write to another topic, or --accept-state-change {query.name} to write it again"
    begin = (
        "compute it again into a new generation (millrace replay), "
        "run with another --state (what is in its outputs stays there), "
        f"or remove {checkpoint_of(state, query.name)} to start from scratch"
    )
    if any(one.effect == BREAKS for one in obstacles):
        return f"undo the change, {begin}"
    return f"undo the change, {begin}; --accept-state-change {query.name} resumes with old and new results mixed"


class ResumePlanner:
    """A query that is about to start, as Spark has analysed it."""

    def __init__(self, pipeline: PipelineDef, query: Query, state: Path, accept: Collection[str]) -> None:
        self._pipeline, self._query, self._state, self._accept = pipeline, query, state, accept
        self._whole = False

    def whole(self, table: DataFrame) -> DataFrame:
        """The table with all its columns in its state; not where a checkpoint was begun without them."""
        before = recorded_start(self._state, self._query.name)
        begun = last_batch(self._state, self._query.name) >= 0
        wanted = bool(before and before.found and before.found["whole"]) if begun else True
        distinct = len({name.lower() for name in table.columns}) == len(table.columns)  # else they cannot be named
        self._whole = wanted and distinct and self._query.batches and keeps_state(table)
        return wholly(table) if self._whole else table

    def found(self, table: DataFrame, written: DataFrame, sources: Mapping[str, DataFrame]) -> StateSchema:
        """What Spark makes of the query; `sources` are the frames that it reads, by name."""
        return fingerprint(table, written, sources, whole=self._whole)

    def require(self, table: DataFrame, written: DataFrame, sources: Mapping[str, DataFrame]) -> None:
        """Raise if its checkpoint was made by another query; else note what starts now."""
        found = self._readable(table, written, sources)
        made = _changes(self._pipeline, self._query, self._state, found)
        judged = _judged(self._query, made, self._accept, None)
        if judged.obstacles:
            raise _refusal(self._query, judged.obstacles, self._state)
        said = snapshot_query(self._pipeline, self._query, CONNECTORS)
        record_start(self._state, self._query.name, said, found.to_json() if found else None)

    def _readable(self, table: DataFrame, written: DataFrame, sources: Mapping[str, DataFrame]) -> StateSchema | None:
        """What Spark makes of it; a plan that cannot be read prevents only those who have something to lose."""
        before = recorded_start(self._state, self._query.name)
        try:
            return self.found(table, written, sources)
        except Exception:
            if before and before.found:
                raise
            return None


def sink_sites(context: RunContext, query: Query, writers: Sequence[Sink], checkpoint: Path) -> list[RunContext]:
    """What each sink of a query may know; of several that write to the same place, how many are before it."""
    site = replace(
        context,
        name=query.table,
        mode=query.mode,
        batches=query.batches,
        query=query.name,
        checkpoint=checkpoint,
        unfinished_batch=unfinished_batch(checkpoint),
    )
    places = [writer.resources(site.name) for writer in writers]
    return [replace(site, duplicate_index=places[:number].count(place)) for number, place in enumerate(places)]


def check_sinks(outlook: ResumeDecision, context: RunContext) -> ResumeDecision:
    """What would become of a query that has a checkpoint, now that its sinks were asked; or why they were not."""
    query = outlook.query
    if not outlook.starts or outlook.position is None:
        return outlook
    writers = [writer for sink in query.sinks if (writer := make_writer(sink.connection)[0])]
    unasked = ""
    for writer, site in zip(
        writers, sink_sites(context, query, writers, checkpoint_of(context.state, query.name)), strict=True
    ):
        try:
            writer.require_newest(site)
        except StateMismatch as error:
            return replace(outlook, verdict=REFUSED, error=error)
        except MillraceError as error:  # a Kafka that is not there
            unasked = error.message
    return replace(outlook, unasked=unasked)
