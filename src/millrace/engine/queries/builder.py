"""A plan becomes running queries.

- `QueryBuilder` starts a query: its tables, its sinks, its checkpoint.
- `QueryTables` builds the DataFrames of one query: sources are read and decoded, tables computed.
- `follow_generations` replaces sources that follow another pipeline by the generation that counts now.
- `prepare` creates the topics and folders that a pipeline needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import MessageSource, RunContext, Sink, Source, whole_batch
from millrace.connectors.base.batch_tasks import with_deterministic_tasks
from millrace.connectors.base.message_source import TIMESTAMPS, PartitionedSource
from millrace.connectors.base.rdd_lineage import task_inputs
from millrace.connectors.base.registry import make_source, sink_of, source_of
from millrace.connectors.files import CURRENT, FilesSource
from millrace.connectors.kafka.generation_alias import aliases, leading
from millrace.connectors.kafka.source import KafkaSource
from millrace.engine.checkpoints.checkpoint import CHECKPOINTS, PANEL_CHECKPOINTS, next_offsets
from millrace.engine.checkpoints.data_loss import TopicIds, lost_offsets
from millrace.engine.checkpoints.last_batch import LAST_BATCH, is_last_batch_done, withdraw_last_batch
from millrace.engine.checkpoints.resume import ResumePlanner, sink_contexts
from millrace.engine.checkpoints.state_dir import location
from millrace.engine.failures.explain import explain, explained
from millrace.engine.queries import bad_records
from millrace.engine.queries.late_records import EventTimeCounter, EventTimeCountParam, LateRecords
from millrace.engine.queries.stateful_plans import require_supported, with_sql_null_keys
from millrace.engine.session.spark_conf import is_local
from millrace.errors import InputError, InvalidDefinition, MillraceError, OffsetsGone, Problem
from millrace.errors.transport import to_transport
from millrace.object_stores import remove_folder
from millrace.pipeline.analysis.pipeline import source_watermark
from millrace.pipeline.analysis.windows import event_time_windows
from millrace.pipeline.functions import ARROW, PYSPARK, FunctionDef
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Trigger, Watermark, freeze
from millrace.pipeline.plan import WITHOUT_BATCHES, Query, unbatched
from millrace.pipeline.schema import Schema
from millrace.telemetry.panel_registry import PanelRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import DataType, StructType

_MAX_RECORDS_PER_DEAD_LETTER_BATCH = 100_000
"""For a query that only writes dead letters: a run may end before it has read everything."""
_NOTHING = "nothing"
"""In place of the checkpoint of a query that does not resume: no folder of a checkpoint has the name."""
VIEWS = threading.Lock()
"""Held while frames get names and a query is analysed: names belong to the whole session."""


@dataclass(frozen=True)
class PreparedQuery:
    """A query that is built and not started."""

    writer: DataStreamWriter
    resuming: ResumePlanner
    forget_letters: Sequence[Callable[[], None]]
    """Each removes the dead letters of a source that belong to batches which the query runs again."""


@dataclass
class QueryBuilder:
    """Builds and starts the queries of a run."""

    pipeline: PipelineDef
    context: RunContext
    """The run's; each connector gets one derived from it."""
    dead_letter_counts: dict[str, Any] = field(default_factory=dict)
    """How many bad records each source had: accumulators of `DeadLetterCount`."""
    panels: PanelRegistry | None = None
    """None where nobody would see panels."""
    started_queries: set[str] = field(default_factory=set)
    """The queries that were started in this run: the next start of one resumes."""
    late_records: dict[str, LateRecords] = field(default_factory=dict)
    """What counts the late records of each query."""
    dead_letter_sources: Collection[str] = ()
    """Sources whose dead letters are written by a query of their own."""
    _prepared: dict[str, PreparedQuery] = field(default_factory=dict)
    """Queries that are built and not started."""
    _has_functions: bool = False
    """Whether the session has the pipeline's functions."""

    @property
    def spark(self) -> SparkSession:
        return self.context.spark

    def prepare(self, queries: Sequence[Query]) -> None:
        """Build queries before the first is started; raise the problems of all of them at once."""
        errors: list[InputError] = []
        for query in queries:
            try:
                self._prepared[query.name] = self._prepare(query)
            except InputError as error:
                error.place = error.place or query.place
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            problems = [Problem(error.condition, error.message, error.place, error.hint, error.why) for error in errors]
            raise InvalidDefinition.listing(self.pipeline.place.file, list(dict.fromkeys(problems)))

    def start(self, query: Query) -> StreamingQuery:
        """Start writing a query's table; build it first if that is not done."""
        prepared = self._prepared.pop(query.name, None) or self._prepare(query)
        try:
            self.context.lock.check()
            for forget in prepared.forget_letters:  # by the id of the query, which is removed with its checkpoint
                forget()
            self._clear(query)
            if query.sinks:
                prepared.resuming.record()
            running = prepared.writer.start()
        except MillraceError:
            raise
        except Exception as error:
            raise explain(error, place=query.place) from error
        self.started_queries.add(query.name)
        return running

    def register_functions(self) -> None:
        """Let SQL call the pipeline's functions; names of functions belong to the whole session."""
        if self._has_functions or not self.pipeline.functions:
            return
        with VIEWS:
            for function in self.pipeline.functions:
                with explained(function.place):
                    self.spark.udf.register(function.name, _udf(function))
        self._has_functions = True

    def _prepare(self, query: Query) -> PreparedQuery:
        """Build a query's table, up to its start."""
        try:
            self.context.lock.check()  # a start removes and writes files of the checkpoint
            if any(sink_of(sink).needs_single_writer for sink in query.sinks):
                self.context.lock.check_start()
            tables, resumes = QueryTables(self, query), self.resumes(query, [sink_of(sink) for sink in query.sinks])
            resuming = ResumePlanner(self.pipeline, query, self.context.state, self.context.accept, resumes=resumes)
            writer = self._writer(query, tables.frame(query.table), tables.sources(), resuming)
            return PreparedQuery(writer, resuming, tables.forget_letters)
        except MillraceError:
            raise
        except Exception as error:
            raise explain(error, place=query.place) from error

    def _writer(
        self, query: Query, table: DataFrame, sources: dict[str, DataFrame], resuming: ResumePlanner
    ) -> DataStreamWriter:
        frame = resuming.with_all_columns(table) if query.sinks else table
        if self.panels:
            from millrace.engine.queries.panels import attach_panels  # imports PySpark

            frame = attach_panels(frame, query, self.panels)
        writers = [sink_of(sink) for sink in query.sinks]
        folder = self.checkpoint(query)
        resumed = folder if resuming.resumes else folder / _NOTHING
        self._report_lost_offsets(query, resumed)
        self._require_same_topics(query, resumed)
        own = sink_contexts(self.context, query, writers, resumed)
        if query.batches and any(writer.needs_single_writer for writer in writers):
            frame = with_deterministic_tasks(frame)
        if not (resumed / "offsets").exists():
            for writer in writers:
                writer.require_new()
        for writer, context in zip(writers, own, strict=True):
            writer.require_newest(context)
        if len(writers) == 1:
            frame = _to_sink_shape(writers[0], frame, query.sinks[0])
        if writers:
            resuming.require(table, frame, sources)
            require_supported(frame, query.mode)
        frame = with_sql_null_keys(frame)
        own = [replace(context, checkpoint=folder) for context in own]
        if not writers:
            writer = self._discard(_without_sink(frame, query).writeStream)
        elif len(writers) == 1:
            writer = writers[0].stream(frame.writeStream, own[0])
        else:
            writer = frame.writeStream.foreachBatch(_MultiSink(list(zip(writers, own, query.sinks, strict=True))))
        writer = writer.outputMode(query.mode).queryName(query.name)
        writer = writer.option("checkpointLocation", location(folder, local=is_local(self.spark.sparkContext.master)))
        return _with_trigger(writer, query.trigger)

    def _clear(self, query: Query) -> None:
        """Remove what a query does not resume from: all, or the empty state that real-time mode makes at its start.

        Not before all queries are prepared: a run that does not begin leaves their checkpoints as they are.
        """
        folder, accepted = self.checkpoint(query), query.name in self.context.accept
        if not self.resumes(query, [sink_of(sink) for sink in query.sinks]):
            remove_folder(folder)
        elif not any((folder / "offsets").glob("[0-9]*")):
            remove_folder(folder / "state")  # else batches would refuse to begin
        elif accepted and query.name not in self.started_queries and is_last_batch_done(folder):
            withdraw_last_batch(folder)

    def _discard(self, rows: DataStreamWriter) -> DataStreamWriter:
        """Compute rows and keep none; dead letters may be kept, so each batch checks a lock that may be lost."""
        if not self.context.checks_ownership_per_batch:
            return rows.format("noop")

        def each(frame: DataFrame, _: int) -> None:
            self.context.check_lock()
            frame.write.format("noop").mode("overwrite").save()

        return rows.foreachBatch(each)

    def release(self, query: Query) -> None:
        """Release what the sinks of a query that has ended hold open; only while the pipeline's name is ours."""
        writers = [sink_of(sink) for sink in query.sinks]
        contexts = sink_contexts(self.context, query, writers, self.checkpoint(query))
        for writer, context in zip(writers, contexts, strict=True):
            writer.release(context)

    def resumes(self, query: Query, writers: list[Sink]) -> bool:
        """Return whether a query resumes: not if its output is not kept, nor if its input cannot be read again."""
        started = query.name in self.started_queries
        kept = started or query.dead_letter_source or any(writer.resumes for writer in writers)
        return bool(kept) and self.rereads(query)

    def rereads(self, query: Query) -> bool:
        """Return whether what a query has read can be read again."""
        return all(reader.resumes for reader in self._readers(query))

    def _report_lost_offsets(self, query: Query, folder: Path) -> None:
        """Report the offsets that are lost where a query continues without them: Spark would not."""
        if any(reader.continues_on_data_loss for reader in self._readers(query)):
            for offsets in lost_offsets(folder, self.context.cluster()):
                self.context.notify(f"query {query.name!r} continues without what is lost: {offsets}")

    def _require_same_topics(self, query: Query, folder: Path) -> None:
        """Raise if a topic was recreated: once it is as long as before, Spark would take it for the old one."""
        readers = self._readers(query)
        named = {name for reader in readers for name in reader.topics()}
        read = {topic for topic, _ in next_offsets(folder)}
        if not named | read:
            return
        identities = TopicIds(self.context.state, query.name, self.context.cluster())
        if read and (others := identities.recreated(read)):
            names = ", ".join(map(repr, others))
            what = f"topic {names} was deleted and created again since query {query.name!r} read it"
            if not any(reader.continues_on_data_loss for reader in readers):
                raise OffsetsGone(
                    what,
                    place=query.place,
                    why="the offsets in the checkpoint are those of other records",
                    hint="start from scratch with another --state, or, to continue at those offsets all the same, set "
                    "`on_data_loss: continue` on the source",
                )
            self.context.notify(f"{what}: it continues at the offsets of its checkpoint")
        identities.save(named | read)

    def _readers(self, query: Query) -> list[Source]:
        """Return the sources that a query follows."""
        sources = self.pipeline.upstream_sources(query.table)
        return [source_of(source) for source in sources if not source.static]

    def checkpoint(self, query: Query) -> Path:
        """Return the checkpoint of a query; that of a query which only feeds panels is kept apart and not resumed."""
        return self.context.state / (CHECKPOINTS if query.lasts else PANEL_CHECKPOINTS) / query.name


def _udf(function: FunctionDef) -> Any:
    """Return the UDF of PySpark that calls a function: for each row, or with Arrow's arrays as they are."""
    from pyspark.sql import functions as F

    if function.kind == PYSPARK:
        return function.function
    if function.kind == ARROW:
        arrow_udf: Any = F.arrow_udf  # its declared types leave this form out
        return arrow_udf(function.function, function.returns)
    return F.udf(function.function, function.returns, useArrow=True)


class _MultiSink:
    """Several sinks for one table: a batch is computed once, kept while it is written, and counts when all have it."""

    def __init__(self, sinks: list[tuple[Sink, RunContext, SinkDef]]) -> None:
        self._sinks = sinks

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._sinks[0][1].lock.check()
            kept = whole_batch(frame)
            inputs = task_inputs(frame)  # which the kept rows do not know any more
            for writer, context, sink in self._sinks:
                writer.write(_to_sink_shape(writer, kept, sink), batch, replace(context, task_inputs=inputs))
        except Exception as error:
            raise to_transport(explain(error)) from None  # else only the text of a Java exception comes back


class QueryTables:
    """Builds the DataFrames of one query, each once."""

    def __init__(self, builder: QueryBuilder, query: Query) -> None:
        self._builder = builder
        self._query = query
        self._built: dict[str, DataFrame] = {}
        self.forget_letters: list[Callable[[], None]] = []
        streams = [source for source in builder.pipeline.upstream_sources(query.table) if not source.static]
        alignment_off = any(dict(source.connection.options).get("alignment") == "off" for source in streams)
        windows = event_time_windows(builder.pipeline, query.table)
        self._late = LateRecords(builder.checkpoint(query), windows, len(streams), alignment_off)
        builder.late_records[query.name] = self._late

    def frame(self, name: str) -> DataFrame:
        """Return a source or table by its name, with all that it needs built."""
        pipeline = self._builder.pipeline
        for upstream in pipeline.upstream(name):
            if upstream in self._built:
                continue
            source, table = pipeline.source(upstream), pipeline.table(upstream)
            if source:
                self._built[upstream] = self._read(source)
            elif table:
                self._built[upstream] = self._made(table)
        return self._built[name]

    def sources(self) -> dict[str, DataFrame]:
        """Return the sources among what was built."""
        return {name: frame for name, frame in self._built.items() if self._builder.pipeline.source(name)}

    def _read(self, source: SourceDef) -> DataFrame:
        builder, query = self._builder, self._query
        context = replace(builder.context, name=source.name, static=source.static, query=query.name)
        context = replace(context, batches=query.batches, trigger_interval_s=query.trigger.seconds or 0.0)
        if builder.resumes(query, [sink_of(sink) for sink in query.sinks]):
            folder = builder.checkpoint(query)
            context = replace(context, checkpoint=folder, next_offsets=next_offsets(folder))
        else:
            context = replace(context, offset_range=None)  # a table in memory begins where the file says, each time
        with explained(source.place):
            reader = source_of(source).resolved(context)
            if not query.dead_letter_source and isinstance(reader, PartitionedSource):
                watermark = source_watermark(builder.pipeline, query.table, source, reader.time_columns())
                context = replace(context, watermark=watermark)
            if isinstance(reader, MessageSource) and source.name in unbatched(builder.pipeline):
                reader = reader.by_spark()
            if query.dead_letter_source and isinstance(reader, KafkaSource):
                reader = replace(reader, max_per_batch=reader.max_per_batch or _MAX_RECORDS_PER_DEAD_LETTER_BATCH)
            rows = self._decoded(reader, context) if isinstance(reader, MessageSource) else reader.load(context)
            return with_watermark(rows, source.watermark)

    def _decoded(self, reader: MessageSource, context: RunContext) -> DataFrame:
        from millrace.engine.queries.decoding import decode_in_jvm, read_rows  # imports PySpark

        if not self._query.batches:
            if reader.keeps_dead_letters and context.name not in self._builder.dead_letter_sources:
                raise InvalidDefinition(
                    f"a query without batches keeps no dead letters of {context.name!r}",
                    why="Spark runs no Python in it, and no other query writes those of a static source",
                    hint="say on_bad: drop or on_bad: fail, or use another trigger",
                )
            return decode_in_jvm(reader, reader.load(context))
        dead = self._builder.dead_letter_counts
        owns = context.name in self._query.buries
        if owns and not context.static and context.name not in dead:
            dead[context.name] = context.spark.sparkContext.accumulator(
                bad_records.DeadLetterCount(), bad_records.DeadLetterCountParam()
            )
        resumes = self._builder.resumes(self._query, [sink_of(sink) for sink in self._query.sinks])
        policy = bad_records.bad_record_policy(
            reader, context, owns=owns, count=dead.get(context.name) if owns else None
        )
        forget = partial(bad_records.forget_repeated_batches, policy.target, resumes=resumes)
        self.forget_letters.append(partial(forget, self._builder.checkpoint(self._query)))
        return read_rows(reader, context, policy, self._event_times(reader, context))

    def _event_times(self, reader: MessageSource, context: RunContext) -> EventTimeCounter | None:
        """Return what counts a source's records by event time; None if the watermark is on none of its columns."""
        pipeline, source = self._builder.pipeline, self._builder.pipeline.source(context.name)
        columns = [field.name for field in (reader.columns() or Schema(())).fields if field.type in TIMESTAMPS]
        if source is None or source.static or reader.decoding != "arrow" or self._query.dead_letter_source:
            return None
        watermark = source_watermark(pipeline, self._query.table, source, columns)
        column = next((name for name in columns if watermark and name.lower() == watermark.column.lower()), None)
        if column is None:
            return None
        counts = context.spark.sparkContext.accumulator({}, EventTimeCountParam())
        self._late.accumulators.append(counts)
        return EventTimeCounter(column, counts)

    def _made(self, table: TableDef) -> DataFrame:
        with explained(table.sql_place or table.place):
            return with_watermark(self._result(table), table.watermark)

    def _result(self, table: TableDef) -> DataFrame:
        from pyspark.sql import DataFrame

        self._builder.register_functions()
        read = {name: self._built[name] for name in table.reads}
        result = table.sql if table.function is None else table.function(**read)
        if table.ranking:
            source = table.reads[0]
            result = table.ranking.sql(source, columns_without_order(read[source].schema))
        if isinstance(result, str):
            with VIEWS:
                for name, frame in read.items():
                    frame.createOrReplaceTempView(name)
                result = self._builder.spark.sql(result)
        if not isinstance(result, DataFrame):
            what = f"table {table.name!r} returned {type(result).__name__}"
            raise InvalidDefinition(what, place=table.place, hint="return a DataFrame, or SQL text")
        return result


def _without_sink(frame: DataFrame, query: Query) -> DataFrame:
    """Return rows that no sink gets: panels see them, or dead letters are all that is made of them.

    For dead letters Spark must compute every row and give none: in one task, since queries without batches hold slots.
    """
    from pyspark.sql import functions as F

    return frame.coalesce(1).filter(F.spark_partition_id() < 0) if query.dead_letter_source else frame


def columns_without_order(schema: StructType) -> list[str]:
    """Return the columns that Spark cannot compare: maps and variants, also within others."""
    return [field.name for field in schema.fields if not _has_order(field.dataType)]


def _has_order(kind: DataType) -> bool:
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return all(_has_order(field.dataType) for field in kind.fields)
    if isinstance(kind, types.ArrayType):
        return _has_order(kind.elementType)
    return not isinstance(kind, types.MapType | types.VariantType | types.CalendarIntervalType)


def with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    """Return the rows with a watermark, if there is one."""
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, f"{round(watermark.seconds * 1000)} milliseconds")


def prepare(pipeline: PipelineDef, context: RunContext) -> None:
    """Create what must exist before anything runs: topics, folders. No Spark is needed."""
    for source in pipeline.sources:
        source_of(source).prepare(replace(context, name=source.name, static=source.static))
    for sink in pipeline.sinks:
        batches = (sink.trigger or pipeline.trigger).kind not in WITHOUT_BATCHES
        sink_of(sink).prepare(replace(context, name=sink.table, mode=sink.mode, batches=batches))


def _to_sink_shape(writer: Sink, frame: DataFrame, sink: SinkDef) -> DataFrame:
    with explained(sink.place):
        return writer.shape(frame)


def _with_trigger(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    length = f"{round((trigger.seconds or 0) * 1000)} milliseconds"
    triggers: dict[str, dict[str, Any]] = {
        "once": {"availableNow": True},
        LAST_BATCH.kind: {"once": True},  # the batch that is planned, and nothing that came meanwhile
        "every": {"processingTime": length},
        "continuous": {"continuous": length},
        "realtime": {"realTime": length if trigger.seconds else "5 minutes"},
    }
    return writer.trigger(**triggers[trigger.kind]) if trigger.kind in triggers else writer


def follow_generations(pipeline: PipelineDef, cluster: Callable[[], Cluster]) -> PipelineDef:
    """Return the pipeline with the sources it means now: the topics of `current: true`, the targets of links.

    A source whose topic or folder has changed is another one: offsets of the old mean nothing in the new. So a query
    that has read the old one does not resume, and says why; it is replayed, or starts from scratch.
    """
    readers = {source.name: make_source(source.connection)[0] for source in pipeline.sources}
    follows_topics = any(isinstance(reader, KafkaSource) and reader.current for reader in readers.values())
    now = leading(aliases(cluster()).values()) if follows_topics else {}
    return replace(pipeline, sources=tuple(_current(source, readers[source.name], now) for source in pipeline.sources))


def _current(source: SourceDef, reader: Source | None, now: Mapping[str, str]) -> SourceDef:
    if isinstance(reader, KafkaSource) and reader.current:
        names = tuple(now.get(name, name) for name in reader.topic)
        return _with_argument(source, "topic", names[0] if len(names) == 1 else names)
    if isinstance(reader, FilesSource) and reader.path.endswith(CURRENT) and Path(reader.path).is_symlink():
        # Spark's log of a folder has the paths of its files as they were written: it finds none through a link.
        return _with_argument(source, "path", str(Path(reader.path).resolve()))
    return source


def _with_argument(source: SourceDef, option: str, value: str | tuple[str, ...]) -> SourceDef:
    old = source.connection
    others = {name: given for name, given in old.options if name != option}
    return replace(source, connection=replace(old, argument=value, options=freeze(others)))
