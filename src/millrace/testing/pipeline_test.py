"""A pipeline on trial: given rows step by step, asked after each for what came out.

One query of a trial: started, given a step at a time, and looked at.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millrace.connectors.base.api import RunContext
from millrace.connectors.base.registry import reader_of, writer_of
from millrace.dead_letters.letter import DeadLetter, from_json_line
from millrace.engine.failures.explain import explain
from millrace.engine.queries.builder import QueryBuilder
from millrace.engine.session.session import scratch_folder
from millrace.engine.session.spark_conf import ROCKSDB, has_arbitrary_state
from millrace.errors import InputError, InvalidTest, MillraceError, did_you_mean
from millrace.pipeline.loading.python import Pipeline as Written
from millrace.pipeline.loading.python import calling_place
from millrace.pipeline.model import Panel, PipelineDef, SinkDef, SourceDef, TableDef, Watermark
from millrace.pipeline.plan import Query, make_plan
from millrace.testing import compare
from millrace.testing.compare import difference, plain_rows, unexpected_letters, whole_table
from millrace.testing.input_rows import Message, RowEncoder, test_moment
from millrace.testing.memory_source import FedTables, MemorySource, tick_of
from millrace.testing.spark import own_modules, warm_session
from millrace.testing.spec import place_of
from millrace.testing.spec_file import sound_pipeline
from millrace.units import format_count

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_CRASH = "millrace: cut off after the rows of batch"


@dataclass
class StepResult:
    """What came of a step."""

    rows: pa.Table
    late: int
    dead: dict[str, list[DeadLetter]] = field(default_factory=dict)


class QueryUnderTest:
    """A query on a stream in memory. Its rows are taken batch by batch, under the number of their batch."""

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
            _require_shape(self._frame, sink)
        self._written: dict[int, pa.Table] = {}
        self._cut: set[int] = set()
        self._counted: dict[int, int] = {}
        self._letters: set[Path] = set()
        self._running = self._started()

    def step(self, rows: Any) -> None:
        """Give rows, and wait until nothing more comes of them."""
        before = len(self._written)
        self._stream.addData(rows)
        self._await()
        batches = [self._written[number] for number in sorted(self._written)[before:]]
        late = self._late()
        self.steps.append(StepResult(self._together(batches), late, self._dead()))

    def stop(self) -> None:
        """End it."""
        self._running.stop()

    def _started(self) -> StreamingQuery:
        try:
            writer = self._frame.writeStream.foreachBatch(self._take).outputMode(self.query.mode)
            return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        except Exception as error:
            raise explain(error, place=self.query.place) from error

    def _take(self, frame: DataFrame, batch: int) -> None:
        rows: Any = frame.toArrow()
        first = self._written.get(batch)
        self._written[batch] = rows
        if first is not None:
            if told := difference(self.query.table, rows, plain_rows(first)):
                self.unstable.append(f"batch {batch} gave other rows when it was run again\n{told}")
        elif self._chaos and batch not in self._cut:
            self._cut.add(batch)
            raise RuntimeError(f"{_CRASH} {batch}")

    def _await(self) -> None:
        while True:
            try:
                self._running.processAllAvailable()
                return
            except MillraceError:
                raise
            except Exception as error:
                if not (self._chaos and _CRASH in str(error)):
                    self.failed = True
                    raise explain(error, place=self.query.place) from error
                self._late()  # of the batches until here
                self._running = self._started()

    def _together(self, batches: list[pa.Table]) -> pa.Table:
        import pyarrow as pa

        if batches:
            return batches[-1] if self.query.mode == "complete" else pa.concat_tables(batches)
        if self._written:
            return next(iter(self._written.values())).slice(0, 0)
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._frame.schema, timezone="UTC").empty_table()

    def _late(self) -> int:
        """How many rows the watermark left out since somebody asked; a batch is told of more than once."""
        new = 0
        for progress in self._running.recentProgress:
            batch = progress["batchId"]
            told = sum(one["numRowsDroppedByWatermark"] for one in progress["stateOperators"])
            new += max(0, told - self._counted.get(batch, 0))
            self._counted[batch] = max(told, self._counted.get(batch, 0))
        return new

    def _dead(self) -> dict[str, list[DeadLetter]]:
        found: dict[str, list[DeadLetter]] = {}
        for file in sorted(self._folder.glob("dead/*/*.jsonl")):
            if file not in self._letters:
                self._letters.add(file)
                found.setdefault(file.parent.name, []).extend(map(from_json_line, file.read_bytes().splitlines()))
        return found


def _require_shape(frame: DataFrame, sink: SinkDef) -> None:
    """A sink's key that is no column is found in a test, not in production."""
    try:
        writer_of(sink).shape(frame)
    except MillraceError as error:
        error.place = error.place or sink.place
        raise
    except Exception as error:
        raise explain(error, place=sink.place) from error


Rows = Any
"""Rows for a source: a list of columns or texts, a text of lines, or a file as {"csv": "posts.csv"}."""


def trial(pipeline: str | Path | PipelineDef | Written, folder: str | Path = ".", *, chaos: bool = False) -> Trial:
    """A trial of a pipeline: a file, or what one defines. Files of rows are looked for in the folder.

    With `chaos`, every batch is cut off after its rows were written and before it counts, and is run again.
    """
    if isinstance(pipeline, str | Path):
        return Trial(sound_pipeline(str(pipeline)), Path(folder), chaos=chaos)
    return Trial(pipeline.model() if isinstance(pipeline, Written) else pipeline, Path(folder), chaos=chaos)


class Trial:
    """Queries are started when they are first asked for, and then given every step from the first on."""

    def __init__(
        self,
        pipeline: PipelineDef,
        folder: Path,
        *,
        spark: SparkSession | None = None,
        ticks: bool = False,
        chaos: bool,
    ) -> None:
        self.pipeline = pipeline
        self.folder, self._chaos, self._ticks = folder, chaos, ticks
        self._spark = spark or warm_session()
        self._shapes = {source.name: RowEncoder(source.name, reader_of(source)) for source in pipeline.sources}
        carried = {name: kind for shape in self._shapes.values() for name, kind in shape.carried.items()}
        self._mould = MemorySource(self._spark, carried)
        self._state = Path(tempfile.mkdtemp(prefix="millrace-trial-", dir=scratch_folder()))
        self._place = calling_place()
        self._asked = False
        self._accounted: set[tuple[str, int]] = set()
        """Sources and steps whose dead letters somebody has asked for."""
        self._steps: list[Any] = []
        self._static: dict[str, DataFrame] = {}
        self._plays: dict[str, QueryUnderTest] = {}
        self._restore = [_choose_state_store(self._spark, pipeline)]

    def give(self, rows: Mapping[str, Rows] | None = None, /, **more: Rows) -> None:
        """The next step: rows by their sources' names, all in one batch. Static sources have theirs in the first."""
        messages: list[Message] = []
        for name, given in {**(rows or {}), **more}.items():
            try:
                source = self._source(name)
                found = self._shapes[source.name].messages(given, self.folder)
                if source.static:
                    self._give_static(source, found)
                else:
                    messages += found
            except InputError as error:
                error.place = error.place or place_of(rows or {}, name)
                raise
        self._steps.append(self._mould.rows(messages))

    def watermark(self, at: Any) -> None:
        """The next step: no rows, and event time goes on until every watermark is at this moment."""
        self._move_watermarks()
        ticks = [_tick(one.name, one.watermark, at) for one in self._elements() if one.watermark]
        if not ticks:
            raise InvalidTest("no source and no table of the pipeline has a watermark", place=self.pipeline.place)
        self._steps.append(self._mould.rows(ticks))

    def rows(self, table: str, *, step: int | None = -1, key: Sequence[str] = ()) -> pa.Table:
        """What came out of a table in a step; in all of them with `step=None`, of a key the newest row only."""
        self._asked = True
        steps = self._played(self._query(table)).steps
        if step is not None:
            return steps[_number(steps, step)].rows
        return whole_table([one.rows for one in steps], self._query(table).mode, key)

    def late(self, table: str, *, step: int | None = -1) -> int:
        """How many rows came too late for a table, in a step or in all."""
        self._asked = True
        steps = self._played(self._query(table)).steps
        return sum(one.late for one in (steps if step is None else [steps[_number(steps, step)]]))

    def dead(self, source: str, *, step: int | None = -1) -> list[DeadLetter]:
        """The dead letters of a source, of a step or of all; those that nobody asks for fail a test."""
        self._asked = True
        name = self._source(source).name
        known = (*(play.query for play in self._plays.values()), *self._plan())  # one that runs is asked for free
        query = next((one for one in known if name in self.pipeline.upstream(one.table)), None)
        steps = self._played(query or self._query(name)).steps
        numbers = range(len(steps)) if step is None else [_number(steps, step)]
        self._accounted.update((name, number) for number in numbers)
        return [letter for number in numbers for letter in steps[number].dead.get(name, ())]

    def expect(
        self, table: str, rows: Any, *, step: int | None = -1, key: Sequence[str] = (), place: Any = None
    ) -> None:
        """Require rows of a table, in any order, of the columns that they name; raises `Different`."""
        expected = compare.expected_rows(rows, self.folder)
        found = compare.difference(table, self.rows(table, step=step, key=key), expected)
        if found:
            raise compare.Different(found, place)

    def expect_late(self, table: str, count: int, *, step: int | None = -1) -> None:
        """Require so many rows that came too late."""
        found = self.late(table, step=step)
        if found != count:
            raise compare.Different(f"{table}: {format_count(found, 'row')} came too late, not {count}")

    def expect_dead(self, source: str, letters: Any, *, step: int | None = -1) -> None:
        """Require dead letters of a source: how many, or a row each with its `value`, its `reason` or other parts.

        "any" are as many as there are.
        """
        found = compare.dead_difference(source, self.dead(source, step=step), letters, self.folder)
        if found:
            raise compare.Different(found)

    def unstable(self) -> list[str]:
        """Of a trial with chaos: what came otherwise when a batch was run again, in words."""
        return [sentence for play in self._plays.values() for sentence in play.unstable]

    def unexpected(self) -> Iterator[tuple[int, str]]:
        """The dead letters that nobody has asked for: in which step, and in words."""
        told = set(self._accounted)
        for play in self._plays.values():
            steps = play.steps if play.failed else self._played(play.query).steps
            for number, step in enumerate(steps):
                for source, letters in step.dead.items():
                    if (source, number) not in told:
                        told.add((source, number))
                        yield number, unexpected_letters(source, letters)

    def conclude(self) -> None:
        """The end of a test: it must have asked for what came, and for the dead letters that there are."""
        if self._steps and not self._asked:
            hint = "ask for what came: expect, expect_late, expect_dead, rows"
            raise InvalidTest(f"the test of {self.pipeline.name!r} expects nothing", hint=hint, place=self._place)
        for number, told in self.unexpected():
            raise compare.Different(f"step {number}: {told}", self._place)

    def close(self) -> None:
        """End the queries and forget what they kept; Spark stays."""
        self._end_plays()
        while self._restore:
            self._restore.pop()()
        shutil.rmtree(self._state, ignore_errors=True)

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """The query of a sink's table, or of a query's own name; else one that only looks at the table."""
        wanted = name.lower()
        found = [one for one in self._plan() if wanted in (one.name.lower(), one.table.lower())]
        if found:
            return found[0]
        element = self.pipeline.table(name) or self.pipeline.source(name)
        if element is None:
            known = [one.name for one in self._elements()]
            raise InvalidTest(f"there is no table {name!r}", hint=did_you_mean(name, known))
        looked = replace(self.pipeline, panels=(Panel(element.name, "table"),))
        return make_plan(looked, panels=True).queries[-1]

    def _played(self, query: Query) -> QueryUnderTest:
        """A query that has had every step."""
        play = self._plays.get(query.name)
        if play is None:
            state = self._state / f"{len(list(self._state.iterdir()))}"
            context = RunContext(state, _no_cluster, pipeline=self.pipeline.name, session=self._spark)
            stream = self._mould.stream()
            with own_modules(self._spark, self.pipeline):
                play = QueryUnderTest(
                    QueryBuilder(self.pipeline, context), query, stream, self._static, self._ticks, self._chaos
                )
            self._plays[query.name] = play
        for rows in self._steps[len(play.steps) :]:
            play.step(rows)
        return play

    def _source(self, name: str) -> SourceDef:
        found = self.pipeline.source(name)
        if found is None:
            known = [one.name for one in self.pipeline.sources]
            raise InvalidTest(f"there is no source {name!r}", hint=did_you_mean(name, known))
        return found

    def _give_static(self, source: SourceDef, messages: list[Message]) -> None:
        if self._steps:
            raise InvalidTest(f"{source.name!r} is static", hint="its rows belong to the first step")
        self._static[source.name] = self._mould.frame(messages)

    def _move_watermarks(self) -> None:
        """From now on; queries that run already begin again, and are given every step once more."""
        if not self._ticks:
            self._ticks = True
            self._end_plays()

    def _end_plays(self) -> None:
        for play in self._plays.values():
            play.stop()
        self._plays.clear()


def _tick(name: str, watermark: Watermark, at: Any) -> Message:
    from datetime import timedelta

    return {"source": tick_of(name), "tick": test_moment(at) + timedelta(seconds=watermark.seconds)}


def _number(steps: Sequence[StepResult], step: int) -> int:
    if not -len(steps) <= step < len(steps):
        raise InvalidTest(f"there is no step {step}", hint="give rows first")
    return step % len(steps)


def _no_cluster() -> Any:
    raise InvalidTest("a test has no Kafka", hint="give the rows of each source instead")


def _choose_state_store(spark: SparkSession, pipeline: PipelineDef) -> Callable[[], None]:
    """The store that the pipeline needs; returns what makes it as it was."""
    if not has_arbitrary_state(make_plan(pipeline)):
        return lambda: None
    before = spark.conf.get(ROCKSDB.key, None)
    spark.conf.set(ROCKSDB.key, ROCKSDB.value)
    return lambda: spark.conf.unset(ROCKSDB.key) if before is None else spark.conf.set(ROCKSDB.key, before)
