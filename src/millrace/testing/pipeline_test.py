"""Run a pipeline on rows that a test gives.

- `PipelineTest` takes rows step by step, and compares what each table gave with what is expected.
- `QueryUnderTest` runs one query of the pipeline on a stream in memory, a step at a time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import RunContext
from millrace.connectors.base.registry import sink_of, source_of
from millrace.dead_letters.letter import DeadLetter, from_json_line
from millrace.engine.failures.explain import explain, explained
from millrace.engine.queries.builder import QueryBuilder
from millrace.engine.queries.stateful_plans import require_supported, with_sql_null_keys
from millrace.engine.session.session import scratch_folder
from millrace.engine.session.spark_conf import ROCKSDB, has_arbitrary_state
from millrace.errors import InputError, InvalidTest, MillraceError, did_you_mean
from millrace.pipeline.loading.python import Pipeline as PythonPipeline
from millrace.pipeline.loading.python import calling_place
from millrace.pipeline.model import Panel, PipelineDef, SourceDef, TableDef
from millrace.pipeline.plan import Query, make_plan
from millrace.telemetry.progress import BatchProgress
from millrace.testing import compare
from millrace.testing.compare import difference, plain_rows, unexpected_letters, whole_table
from millrace.testing.input_rows import Message, RowEncoder, test_moment
from millrace.testing.memory_source import FedTables, MemorySource, tick_of
from millrace.testing.spark import own_modules, warm_session
from millrace.testing.spec import place_of
from millrace.testing.spec_file import sound_pipeline

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CRASH = "millrace: stopped after the rows of batch"


@dataclass
class StepResult:
    """The rows, late rows and dead letters of a step."""

    rows: pa.Table
    late: int
    dead: dict[str, list[DeadLetter]] = field(default_factory=dict)


class QueryUnderTest:
    """A query on a stream in memory; its rows are collected by the number of their batch."""

    def __init__(
        self,
        builder: QueryBuilder,
        query: Query,
        stream: Any,
        static: Mapping[str, DataFrame],
        ticking: bool,
        chaos: bool,
    ) -> None:
        self.steps: list[StepResult] = []
        self.unstable: list[str] = []
        self.failed = False
        self.query, self._stream, self._chaos = query, stream, chaos
        self._folder = builder.context.state
        self._frame = FedTables(builder, query, stream, static, ticking).frame(query.table)
        for sink in query.sinks:
            with explained(sink.place):
                sink_of(sink).shape(self._frame)  # raises, as in a run, if the sink cannot write these columns
        with explained(query.place):
            require_supported(self._frame, query.mode)
        self._frame = with_sql_null_keys(self._frame)
        self._batches: dict[int, pa.Table] = {}
        self._crashed_batches: set[int] = set()
        self._late = builder.late_records[query.name]
        self._late.checkpoint = self._folder / "checkpoint"
        self._late_rows: dict[int, int] = {}
        self._read_letter_files: set[Path] = set()
        self.streaming_query = self._start()

    def step(self, rows: Any) -> None:
        """Add rows, and wait until the query has processed all of them."""
        before, late_before = len(self._batches), sum(self._late_rows.values())
        self._stream.addData(rows)
        self._process_all()
        batches = [self._batches[number] for number in sorted(self._batches)[before:]]
        self._count_late_rows()
        late = sum(self._late_rows.values()) - late_before
        self.steps.append(StepResult(self._rows_of_step(batches), late, self._new_dead_letters()))

    def _start(self) -> StreamingQuery:
        try:
            writer = self._frame.writeStream.foreachBatch(self._collect).outputMode(self.query.mode)
            return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        except Exception as error:
            raise explain(error, place=self.query.place) from error

    def _collect(self, frame: DataFrame, batch: int) -> None:
        rows: Any = frame.toArrow()
        first = self._batches.get(batch)
        self._batches[batch] = rows
        if first is not None:
            if text := difference(self.query.table, rows, plain_rows(first)):
                self.unstable.append(f"batch {batch} gave other rows when it was run again\n{text}")
        elif self._chaos and batch not in self._crashed_batches:
            self._crashed_batches.add(batch)
            raise RuntimeError(f"{_CRASH} {batch}")

    def _process_all(self) -> None:
        while True:
            try:
                self.streaming_query.processAllAvailable()
                return
            except MillraceError:
                raise
            except Exception as error:
                if not (self._chaos and _CRASH in str(error)):
                    self.failed = True
                    raise explain(error, place=self.query.place) from error
                self._count_late_rows()  # before the progress of these batches is lost
                self.streaming_query = self._start()

    def _rows_of_step(self, batches: list[pa.Table]) -> pa.Table:
        import pyarrow as pa

        if batches:
            return batches[-1] if self.query.mode == "complete" else pa.concat_tables(batches)
        if self._batches:
            return next(iter(self._batches.values())).slice(0, 0)
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._frame.schema, timezone="UTC").empty_table()

    def _count_late_rows(self) -> None:
        """Note the late records of each batch; Spark may report a batch more than once."""
        for reported in self.streaming_query.recentProgress:
            if reported["batchId"] not in self._late_rows:
                progress = self._late.counted(BatchProgress.of(reported.json, self.query.name))
                if progress.executed:
                    self._late_rows[progress.batch] = progress.late_rows

    def _new_dead_letters(self) -> dict[str, list[DeadLetter]]:
        letters: dict[str, list[DeadLetter]] = {}
        for file in sorted(self._folder.glob("dead/*/*.jsonl")):
            if file not in self._read_letter_files:
                self._read_letter_files.add(file)
                letters.setdefault(file.parent.name, []).extend(map(from_json_line, file.read_bytes().splitlines()))
        return letters


Rows = Any
"""Rows for a source: a list of columns or texts, a text of lines, or a file as {"csv": "posts.csv"}."""


class PipelineTest:
    """A test of a pipeline: a file, or what one defines. Files of rows are looked for in the folder.

    A query is started when its table is first asked for, and then gets every step from the first on. With `chaos`,
    every batch is stopped after its rows were written and before its commit, and is run again.
    """

    __test__ = False  # for pytest, which must not collect it

    def __init__(
        self,
        pipeline: str | Path | PipelineDef | PythonPipeline,
        folder: str | Path = ".",
        *,
        moves_watermarks: bool = False,
        chaos: bool = False,
    ) -> None:
        if isinstance(pipeline, str | Path):
            pipeline = sound_pipeline(str(pipeline))
        self.pipeline = pipeline.model() if isinstance(pipeline, PythonPipeline) else pipeline
        self.folder, self._chaos, self._moves_watermarks = Path(folder), chaos, moves_watermarks
        self._spark = warm_session()
        self._encoders = {source.name: RowEncoder(source.name, source_of(source)) for source in self.pipeline.sources}
        carried = {name: kind for encoder in self._encoders.values() for name, kind in encoder.carried.items()}
        self._memory = MemorySource(self._spark, carried)
        self._state = Path(tempfile.mkdtemp(prefix="millrace-trial-", dir=scratch_folder()))
        self._place = calling_place()
        self._expects_something = False
        self._checked_letters: set[tuple[str, int]] = set()
        """Sources and steps whose dead letters the test has asked for."""
        self._steps: list[Any] = []
        self._static: dict[str, DataFrame] = {}
        self._queries: dict[str, QueryUnderTest] = {}
        self._restore = [_choose_state_store(self._spark, self.pipeline)]

    def give(self, rows: Mapping[str, Rows] | None = None, /, **more: Rows) -> None:
        """Add a step: rows by the names of their sources, all in one batch. Static sources get theirs in the first."""
        messages: list[Message] = []
        for name, given in {**(rows or {}), **more}.items():
            try:
                source = self._source(name)
                encoded = self._encoders[source.name].messages(given, self.folder)
                if not source.static:
                    messages += encoded
                elif self._steps:
                    raise InvalidTest(f"{source.name!r} is static", hint="its rows belong to the first step")
                else:
                    self._static[source.name] = self._memory.frame(encoded)
            except InputError as error:
                error.place = error.place or place_of(rows or {}, name)
                raise
        self._steps.append(self._memory.rows(messages))

    def watermark(self, at: Any) -> None:
        """Add a step without rows that moves every watermark to this time."""
        if not self._moves_watermarks:  # running queries cannot: they are stopped, and get every step again
            self._moves_watermarks = True
            self._stop_queries()
        ticks = [
            {"source": tick_of(element.name), "tick": test_moment(at) + timedelta(seconds=element.watermark.seconds)}
            for element in self._elements()
            if element.watermark
        ]
        if not ticks:
            raise InvalidTest("no source and no table of the pipeline has a watermark", place=self.pipeline.place)
        self._steps.append(self._memory.rows(ticks))

    def rows(self, table: str, *, step: int | None = -1, key: Sequence[str] = ()) -> pa.Table:
        """Return a table's rows of a step; of all steps with `step=None`, and then only the newest row of each key."""
        steps = self._results(self._query(table))
        if step is not None:
            return steps[_number(steps, step)].rows
        return whole_table([result.rows for result in steps], self._query(table).mode, key)

    def late(self, table: str, *, step: int | None = -1) -> int:
        """Return how many rows were too late for a table, in a step or in all."""
        steps = self._results(self._query(table))
        return sum(result.late for result in (steps if step is None else [steps[_number(steps, step)]]))

    def dead(self, source: str, *, step: int | None = -1) -> list[DeadLetter]:
        """Return the dead letters of a source, of a step or of all; a test fails if it does not ask for them."""
        name = self._source(source).name
        queries = (*(running.query for running in self._queries.values()), *self._plan())  # prefer one that runs
        query = next((query for query in queries if name in self.pipeline.upstream(query.table)), None)
        steps = self._results(query or self._query(name))
        numbers = range(len(steps)) if step is None else [_number(steps, step)]
        self._checked_letters.update((name, number) for number in numbers)
        return [letter for number in numbers for letter in steps[number].dead.get(name, ())]

    def expect(
        self, table: str, rows: Any, *, step: int | None = -1, key: Sequence[str] = (), place: Any = None
    ) -> None:
        """Raise `Different` unless a table has these rows, in any order, by the columns that they name."""
        expected = compare.expected_rows(rows, self.folder)
        if text := compare.difference(table, self.rows(table, step=step, key=key), expected):
            raise compare.Different(text, place)

    def expect_late(self, table: str, count: int, *, step: int | None = -1) -> None:
        """Raise `Different` unless this many rows were too late."""
        late = self.late(table, step=step)
        if late != count:
            raise compare.Different(compare.late_difference(table, late, count))

    def expect_dead(self, source: str, letters: Any, *, step: int | None = -1) -> None:
        """Raise `Different` unless a source has these dead letters.

        `letters` is their number, a row for each with its `value`, its `reason` or other parts, or "any".
        """
        if text := compare.dead_difference(source, self.dead(source, step=step), letters, self.folder):
            raise compare.Different(text)

    def unstable(self) -> list[str]:
        """Return, for a test with chaos, the differences of batches that were run again."""
        return [text for query in self._queries.values() for text in query.unstable]

    def unexpected(self) -> Iterator[tuple[int, str]]:
        """Yield the step and the description of dead letters that the test did not ask for."""
        checked = set(self._checked_letters)
        for query in self._queries.values():
            if not query.failed:
                self._run_steps(query)
            for number, step in enumerate(query.steps):
                for source, letters in step.dead.items():
                    if (source, number) not in checked:
                        checked.add((source, number))
                        yield number, unexpected_letters(source, letters)

    def conclude(self) -> None:
        """Raise an error if the test has expected nothing, or if there are dead letters that it did not ask for."""
        if self._steps and not self._expects_something:
            hint = "ask for what came: expect, expect_late, expect_dead, rows"
            raise InvalidTest(f"the test of {self.pipeline.name!r} expects nothing", hint=hint, place=self._place)
        for number, text in self.unexpected():
            raise compare.Different(f"step {number}: {text}", self._place)

    def close(self) -> None:
        """Stop the queries and delete their state; the Spark session stays."""
        self._stop_queries()
        while self._restore:
            self._restore.pop()()
        shutil.rmtree(self._state, ignore_errors=True)

    def __enter__(self) -> PipelineTest:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.conclude()
        finally:
            self.close()

    def _elements(self) -> list[SourceDef | TableDef]:
        return [*self.pipeline.sources, *self.pipeline.tables]

    def _plan(self) -> tuple[Query, ...]:
        return make_plan(self.pipeline).queries

    def _query(self, name: str) -> Query:
        """Return the query of a table or of this name; for a table without a sink, one that only reads it."""
        wanted = name.lower()
        for query in self._plan():
            if wanted in (query.name.lower(), query.table.lower()):
                return query
        element = self.pipeline.table(name) or self.pipeline.source(name)
        if element is None:
            names = [element.name for element in self._elements()]
            raise InvalidTest(f"there is no table {name!r}", hint=did_you_mean(name, names))
        with_panel = replace(self.pipeline, panels=(Panel(element.name, "table"),))
        return make_plan(with_panel, panels=True).queries[-1]

    def _results(self, query: Query) -> list[StepResult]:
        """Run every step that a query has not had yet, and return the results of all."""
        self._expects_something = True
        if query.name not in self._queries:
            state = self._state / f"{len(list(self._state.iterdir()))}"
            context = RunContext(state, _no_cluster, pipeline=self.pipeline.name, session=self._spark)
            builder, stream = QueryBuilder(self.pipeline, context), self._memory.stream()
            with own_modules(self._spark, self.pipeline):
                self._queries[query.name] = QueryUnderTest(
                    builder, query, stream, self._static, self._moves_watermarks, self._chaos
                )
        return self._run_steps(self._queries[query.name])

    def _run_steps(self, query: QueryUnderTest) -> list[StepResult]:
        for rows in self._steps[len(query.steps) :]:
            query.step(rows)
        return query.steps

    def _source(self, name: str) -> SourceDef:
        source = self.pipeline.source(name)
        if source is None:
            names = [source.name for source in self.pipeline.sources]
            raise InvalidTest(f"there is no source {name!r}", hint=did_you_mean(name, names))
        return source

    def _stop_queries(self) -> None:
        for query in self._queries.values():
            query.streaming_query.stop()
        self._queries.clear()


def _number(steps: Sequence[StepResult], step: int) -> int:
    if not -len(steps) <= step < len(steps):
        raise InvalidTest(f"there is no step {step}", hint="give rows first")
    return step % len(steps)


def _no_cluster() -> Any:
    raise InvalidTest("a test has no Kafka", hint="give the rows of each source instead")


def _choose_state_store(spark: SparkSession, pipeline: PipelineDef) -> Callable[[], None]:
    """Set the state store that the pipeline needs; return a function that restores the setting."""
    if not has_arbitrary_state(make_plan(pipeline)):
        return lambda: None
    before = spark.conf.get(ROCKSDB.key, None)
    spark.conf.set(ROCKSDB.key, ROCKSDB.value)
    return lambda: spark.conf.unset(ROCKSDB.key) if before is None else spark.conf.set(ROCKSDB.key, before)
