"""A plan becomes running queries: sources are read and decoded, tables built, sinks started.

Sources that read what another pipeline writes, in whichever generation counts when they start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import MessageSource, RunContext, Sink, Source, whole_batch
from millrace.connectors.base.batch_tasks import with_deterministic_tasks
from millrace.connectors.base.rdd_lineage import task_inputs
from millrace.connectors.base.registry import make_reader, reader_of, writer_of
from millrace.connectors.files import CURRENT, FilesSource
from millrace.connectors.kafka.generation_alias import aliases, leading
from millrace.connectors.kafka.source import KafkaSource
from millrace.engine.checkpoints.checkpoint import CHECKPOINTS, PANEL_CHECKPOINTS, next_offsets
from millrace.engine.checkpoints.data_loss import TopicIds, lost_offsets
from millrace.engine.checkpoints.resume import ResumePlanner, sink_contexts
from millrace.engine.checkpoints.state_dir import location
from millrace.engine.failures.explain import explain
from millrace.engine.queries.bad_records import DeadLetterCount, DeadLetterCountParam, bad_of, forget_repeated
from millrace.engine.queries.decoding import decoded_on_the_jvm, read_rows
from millrace.engine.queries.panels import attach_panels
from millrace.engine.session.spark_conf import is_local
from millrace.errors import InvalidDefinition, MillraceError, OffsetsGone
from millrace.errors.transport import to_transport
from millrace.object_stores import remove_folder
from millrace.pipeline.model import PipelineDef, SinkDef, SourceDef, TableDef, Trigger, Watermark, freeze
from millrace.pipeline.plan import WITHOUT_BATCHES, Query, unbatched
from millrace.telemetry.panel_registry import PanelRegistry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LETTERS_OF = 100_000
"""Records of which a query that only buries looks for bad ones at once: a run may end before all are looked at."""
VIEWS = threading.Lock()
"""Held while names are given to frames and a query is analysed: names belong to the whole session."""


@dataclass
class QueryBuilder:
    """Where a pipeline's queries are built."""

    pipeline: PipelineDef
    context: RunContext
    """The run's; each connector gets one derived from it."""
    dead_letter_counts: dict[str, Any] = field(default_factory=dict)
    """How many bad records each source had: accumulators."""
    panels: PanelRegistry | None = None
    """Where panels are shown, when somebody can see them."""
    started_queries: set[str] = field(default_factory=set)
    """The queries that were started in this run: another start of one goes on where it failed."""
    dead_letter_sources: Collection[str] = ()
    """Sources whose dead letters a query of their own buries."""

    @property
    def spark(self) -> SparkSession:
        """The run's session."""
        return self.context.spark

    def site(self, name: str, **more: Any) -> RunContext:
        """What a connector may know."""
        return replace(self.context, name=name, **more)

    def start(self, query: Query) -> StreamingQuery:
        """Build a query's table and start writing it."""
        try:
            self.context.lock.check()  # a start removes and writes files of the checkpoint
            tables = QueryTables(self, query)
            running = self._started(query, tables.frame(query.table), tables.sources())
            self.started_queries.add(query.name)
            return running
        except MillraceError:
            raise
        except Exception as error:
            raise explain(error, place=query.place) from error

    def _started(self, query: Query, table: DataFrame, sources: dict[str, DataFrame]) -> StreamingQuery:
        resuming = ResumePlanner(self.pipeline, query, self.context.state, self.context.accept)
        frame = resuming.with_all_columns(table) if query.sinks else table
        if self.panels:
            frame = attach_panels(frame, query, self.panels)
        writers = [writer_of(sink) for sink in query.sinks]
        folder = self.checkpoint(query)
        self._clear(query, writers, folder)
        self._tell_lost(query, folder)
        self._require_same_topics(query, folder)
        own = sink_contexts(self.context, query, writers, folder)
        if query.batches and any(writer.needs_single_writer for writer in writers):
            frame = with_deterministic_tasks(frame)
        if not (folder / "offsets").exists():
            for writer in writers:
                writer.require_new()
        for writer, site in zip(writers, own, strict=True):
            writer.require_newest(site)
        written = _shaped(writers[0], frame, query.sinks[0]) if len(writers) == 1 else frame
        if writers:
            resuming.require(table, written, sources)
        if not writers:
            writer = self._nowhere(_unwritten(frame, query).writeStream)
        elif len(writers) == 1:
            writer = writers[0].stream(written.writeStream, own[0])
        else:
            writer = frame.writeStream.foreachBatch(_MultiSink(list(zip(writers, own, query.sinks, strict=True))))
        writer = writer.outputMode(query.mode).queryName(query.name)
        writer = writer.option("checkpointLocation", location(folder, local=is_local(self.spark.sparkContext.master)))
        return _triggered(writer, query.trigger).start()

    def _clear(self, query: Query, writers: list[Sink], folder: Path) -> None:
        """Remove what a query does not go on with: all, or the empty state that real-time mode makes at its start."""
        if not self.resumes(query, writers):
            remove_folder(folder)
        elif not any((folder / "offsets").glob("[0-9]*")):
            remove_folder(folder / "state")  # else batches would refuse to begin

    def _nowhere(self, rows: DataStreamWriter) -> DataStreamWriter:
        """Rows that are computed and not kept; dead letters may be, so a batch asks where it must."""
        if not self.context.checks_ownership_per_batch:
            return rows.format("noop")

        def each(frame: DataFrame, _: int) -> None:
            self.context.check_lock()
            frame.write.format("noop").mode("overwrite").save()

        return rows.foreachBatch(each)

    def release(self, query: Query) -> None:
        """Let go of what the sinks of a query that has ended hold open; only while the pipeline's name is ours."""
        writers = [writer_of(sink) for sink in query.sinks]
        for writer, site in zip(
            writers, sink_contexts(self.context, query, writers, self.checkpoint(query)), strict=True
        ):
            writer.release(site)

    def resumes(self, query: Query, writers: list[Sink]) -> bool:
        """Whether a query goes on: not when nothing of what it wrote is left, nor when nothing can be read again."""
        kept = query.name in self.started_queries or query.undertakes or any(writer.resumes for writer in writers)
        return bool(kept) and self.rereads(query)

    def rereads(self, query: Query) -> bool:
        """Whether what a query has read can be read again."""
        return all(reader.resumes for reader in self._readers(query))

    def _tell_lost(self, query: Query, folder: Path) -> None:
        """Say what is gone from Kafka where a query goes on all the same: Spark would not."""
        if any(reader.continues_on_data_loss for reader in self._readers(query)):
            for one in lost_offsets(folder, self.context.cluster()):
                self.context.notify(f"query {query.name!r} goes on without what is lost: {one}")

    def _require_same_topics(self, query: Query, folder: Path) -> None:
        """Raise where a topic was made anew: once it is as long as it was, Spark would take it for the old one."""
        readers = self._readers(query)
        named = {name for reader in readers for name in reader.topics()}
        read = {topic for topic, _ in next_offsets(folder)}
        if not named | read:
            return
        identities = TopicIds(self.context.state, query.name, self.context.cluster())
        if read and (others := identities.recreated(read)):
            what = f"topic {', '.join(map(repr, others))} was deleted and made anew since query {query.name!r} read it"
            if not any(reader.continues_on_data_loss for reader in readers):
                raise OffsetsGone(
                    what,
                    place=query.place,
                    why="what the checkpoint knows are offsets of other records",
                    hint="start anew with another --state, or, to go on at those offsets all the same, set "
                    "`on_data_loss: continue` on the source",
                )
            self.context.notify(f"{what}: it goes on at the offsets that it knows")
        identities.save(named | read)

    def _readers(self, query: Query) -> list[Source]:
        """What a query follows."""
        needed = [self.pipeline.source(name) for name in self.pipeline.upstream(query.table)]
        return [reader_of(source) for source in needed if source and not source.static]

    def checkpoint(self, query: Query) -> Path:
        """Where a query remembers; one that only draws begins anew each time, and is no part of what was done."""
        return self.context.state / (CHECKPOINTS if query.lasts else PANEL_CHECKPOINTS) / query.name


class _MultiSink:
    """Several sinks for one table: a batch is computed once, kept while it is written, and counts when all have it."""

    def __init__(self, outlets: list[tuple[Sink, RunContext, SinkDef]]) -> None:
        self._outlets = outlets

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            self._outlets[0][1].lock.check()
            kept = whole_batch(frame)
            read = task_inputs(frame)  # which the kept rows do not know any more
            for writer, site, sink in self._outlets:
                writer.write(_shaped(writer, kept, sink), batch, replace(site, task_inputs=read))
        except Exception as error:
            raise to_transport(explain(error)) from None  # else the text of a Java exception is all that comes back


class QueryTables:
    """The DataFrames of one query, each built once."""

    def __init__(self, builder: QueryBuilder, query: Query) -> None:
        self._builder = builder
        self._query = query
        self._built: dict[str, DataFrame] = {}

    def frame(self, name: str) -> DataFrame:
        """A source or a table by its name, with all that it needs."""
        pipeline = self._builder.pipeline
        for one in pipeline.upstream(name):
            if one in self._built:
                continue
            source, table = pipeline.source(one), pipeline.table(one)
            if source:
                self._built[one] = self._read(source)
            elif table:
                self._built[one] = self._made(table)
        return self._built[name]

    def sources(self) -> dict[str, DataFrame]:
        """The sources among what was built."""
        return {name: one for name, one in self._built.items() if self._builder.pipeline.source(name)}

    def _read(self, source: SourceDef) -> DataFrame:
        builder, query = self._builder, self._query
        interval = query.trigger.seconds or 0.0
        site = builder.site(
            source.name, static=source.static, batches=query.batches, query=query.name, trigger_interval_s=interval
        )
        if builder.resumes(query, [writer_of(sink) for sink in query.sinks]):
            folder = builder.checkpoint(query)
            site = replace(site, checkpoint=folder, next_offsets=next_offsets(folder))
        else:
            site = replace(site, offset_range=None)  # a table in memory begins where the file says, each time
        try:
            reader = reader_of(source).resolved(site)
            if isinstance(reader, MessageSource) and source.name in unbatched(builder.pipeline):
                reader = reader.by_spark()
            if query.undertakes and isinstance(reader, KafkaSource):
                reader = replace(reader, max_per_batch=reader.max_per_batch or _LETTERS_OF)
            rows = self._decoded(reader, site) if isinstance(reader, MessageSource) else reader.load(site)
            return with_watermark(rows, source.watermark)
        except MillraceError as error:
            error.place = error.place or source.place
            raise
        except Exception as error:
            raise explain(error, place=source.place) from error

    def _decoded(self, reader: MessageSource, site: RunContext) -> DataFrame:
        if not self._query.batches:
            if reader.keeps_dead_letters and site.name not in self._builder.dead_letter_sources:
                raise InvalidDefinition(
                    f"a query without batches keeps no dead letters of {site.name!r}",
                    why="Spark runs no Python in it, and nobody else buries those of a static source",
                    hint="say on_bad: drop or on_bad: fail, or use another trigger",
                )
            return decoded_on_the_jvm(reader, reader.load(site))
        dead = self._builder.dead_letter_counts
        owns = site.name in self._query.buries
        if owns and not site.static and site.name not in dead:
            dead[site.name] = site.spark.sparkContext.accumulator(DeadLetterCount(), DeadLetterCountParam())
        anew = not self._builder.resumes(self._query, [writer_of(sink) for sink in self._query.sinks])
        bad = bad_of(reader, site, owns=owns, count=dead.get(site.name) if owns else None)
        forget_repeated(bad.burial, self._builder.checkpoint(self._query), anew=anew)
        return read_rows(reader, site, bad)

    def _made(self, table: TableDef) -> DataFrame:
        try:
            frame = self._result(table)
            return with_watermark(frame, table.watermark)
        except MillraceError as error:
            error.place = error.place or table.place
            raise
        except Exception as error:
            raise explain(error, place=table.sql_place or table.place) from error

    def _result(self, table: TableDef) -> DataFrame:
        from pyspark.sql import DataFrame

        read = {name: self._built[name] for name in table.reads}
        made = table.sql if table.function is None else table.function(**read)
        if isinstance(made, str):
            with VIEWS:
                for name, frame in read.items():
                    frame.createOrReplaceTempView(name)
                made = self._builder.spark.sql(made)
        if not isinstance(made, DataFrame):
            raise InvalidDefinition(
                f"table {table.name!r} returned {type(made).__name__}",
                place=table.place,
                hint="return a DataFrame, or SQL text",
            )
        return made


def _unwritten(frame: DataFrame, query: Query) -> DataFrame:
    """Rows on their way to nowhere: panels see them, or dead letters are all that is made of them.

    For those, Spark must compute every row and give none: in one task, since queries without batches hold their slots.
    """
    from pyspark.sql import functions as F

    return frame.coalesce(1).filter(F.spark_partition_id() < 0) if query.undertakes else frame


def with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    """The rows, late ones being waited for so long."""
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, f"{round(watermark.seconds * 1000)} milliseconds")


def prepare(pipeline: PipelineDef, context: RunContext) -> None:
    """Make what must be there before anything runs: topics, folders. No Spark is needed."""
    for source in pipeline.sources:
        reader_of(source).prepare(replace(context, name=source.name, static=source.static))
    for sink in pipeline.sinks:
        batches = (sink.trigger or pipeline.trigger).kind not in WITHOUT_BATCHES
        writer_of(sink).prepare(replace(context, name=sink.table, mode=sink.mode, batches=batches))


def _shaped(writer: Sink, frame: DataFrame, sink: SinkDef) -> DataFrame:
    try:
        return writer.shape(frame)
    except MillraceError as error:
        error.place = error.place or sink.place
        raise
    except Exception as error:
        raise explain(error, place=sink.place) from error


def _triggered(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    length = f"{round((trigger.seconds or 0) * 1000)} milliseconds"
    if trigger.kind == "once":
        return writer.trigger(availableNow=True)
    if trigger.kind == "every":
        return writer.trigger(processingTime=length)
    if trigger.kind == "continuous":
        return writer.trigger(continuous=length)
    if trigger.kind == "realtime":
        return writer.trigger(realTime=length if trigger.seconds else "5 minutes")
    return writer


def follow_generations(pipeline: PipelineDef, cluster: Callable[[], Cluster]) -> PipelineDef:
    """The pipeline with what its sources mean: the topics of `current: true`, the folders that links lead to.

    A source whose topic or folder has changed is another one: offsets of the old mean nothing in the new. So a query
    that has read the old one does not resume, and says why; it is replayed, or begins anew.
    """
    readers = {source.name: make_reader(source.connection)[0] for source in pipeline.sources}
    asked = any(isinstance(one, KafkaSource) and one.current for one in readers.values())
    now = leading(aliases(cluster()).values()) if asked else {}
    sources = tuple(_led(source, readers[source.name], now) for source in pipeline.sources)
    return replace(pipeline, sources=sources)


def _led(source: SourceDef, reader: Source | None, now: Mapping[str, str]) -> SourceDef:
    if isinstance(reader, KafkaSource) and reader.current:
        names = tuple(now.get(name, name) for name in reader.topic)
        return _reading(source, "topic", names[0] if len(names) == 1 else names)
    if isinstance(reader, FilesSource) and reader.path.endswith(CURRENT) and Path(reader.path).is_symlink():
        # Spark's log of a folder has the paths of its files as they were written: it finds none through a link.
        return _reading(source, "path", str(Path(reader.path).resolve()))
    return source


def _reading(source: SourceDef, option: str, value: str | tuple[str, ...]) -> SourceDef:
    old = source.connection
    others = {name: one for name, one in old.options if name != option}
    return replace(source, connection=replace(old, argument=value, options=freeze(others)))
