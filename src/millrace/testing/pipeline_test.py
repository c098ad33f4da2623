"""A pipeline on trial: given rows step by step, asked after each for what came out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from millrace.clients.letters import Letter
from millrace.connectors.stream import Site
from millrace.engine.session import scratch_folder
from millrace.engine.statestore import arbitrary
from millrace.engine.structured import Workshop, reader_of
from millrace.engine.tuning import ROCKSDB
from millrace.errors import InputError, InvalidTest, did_you_mean
from millrace.pipeline.model import Panel, Pipeline, Source, Table, Watermark
from millrace.pipeline.plan import Query, make_plan
from millrace.pipeline.python import Pipeline as Written
from millrace.pipeline.python import calling_place
from millrace.testing import buried, comparing, warm
from millrace.testing.cases import place_of
from millrace.testing.feeding import Mould, tick_of
from millrace.testing.given import Message, Shape, moment
from millrace.testing.loading import sound
from millrace.testing.modules import own_modules
from millrace.testing.playing import Play, Played
from millrace.units import so_many

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Rows = Any
"""Rows for a source: a list of columns or texts, a text of lines, or a file as {"csv": "posts.csv"}."""


def trial(pipeline: str | Path | Pipeline | Written, folder: str | Path = ".", *, chaos: bool = False) -> Trial:
    """A trial of a pipeline: a file, or what one defines. Files of rows are looked for in the folder.

    With `chaos`, every batch is cut off after its rows were written and before it counts, and is run again.
    """
    if isinstance(pipeline, str | Path):
        return Trial(sound(str(pipeline)), Path(folder), chaos=chaos)
    return Trial(pipeline.model() if isinstance(pipeline, Written) else pipeline, Path(folder), chaos=chaos)


class Trial:
    """Queries are started when they are first asked for, and then given every step from the first on."""

    def __init__(
        self, pipeline: Pipeline, folder: Path, *, spark: SparkSession | None = None, ticks: bool = False, chaos: bool
    ) -> None:
        self.pipeline = pipeline
        self.folder, self._chaos, self._ticks = folder, chaos, ticks
        self._spark = spark or warm.session()
        self._shapes = {source.name: Shape(source.name, reader_of(source)) for source in pipeline.sources}
        carried = {name: kind for shape in self._shapes.values() for name, kind in shape.carried.items()}
        self._mould = Mould(self._spark, carried)
        self._state = Path(tempfile.mkdtemp(prefix="millrace-trial-", dir=scratch_folder()))
        self._place = calling_place()
        self._asked = False
        self._accounted: set[tuple[str, int]] = set()
        """Sources and steps whose dead letters somebody has asked for."""
        self._steps: list[Any] = []
        self._static: dict[str, DataFrame] = {}
        self._plays: dict[str, Play] = {}
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
        return comparing.whole([one.rows for one in steps], self._query(table).mode, key)

    def late(self, table: str, *, step: int | None = -1) -> int:
        """How many rows came too late for a table, in a step or in all."""
        self._asked = True
        steps = self._played(self._query(table)).steps
        return sum(one.late for one in (steps if step is None else [steps[_number(steps, step)]]))

    def dead(self, source: str, *, step: int | None = -1) -> list[Letter]:
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
        expected = comparing.expected_rows(rows, self.folder)
        found = comparing.difference(table, self.rows(table, step=step, key=key), expected)
        if found:
            raise comparing.Different(found, place)

    def expect_late(self, table: str, count: int, *, step: int | None = -1) -> None:
        """Require so many rows that came too late."""
        found = self.late(table, step=step)
        if found != count:
            raise comparing.Different(f"{table}: {so_many(found, 'row')} came too late, not {count}")

    def expect_dead(self, source: str, letters: Any, *, step: int | None = -1) -> None:
        """Require dead letters of a source: how many, or a row each with its `value`, its `reason` or other parts.

        "any" are as many as there are.
        """
        found = buried.dead_difference(source, self.dead(source, step=step), letters, self.folder)
        if found:
            raise comparing.Different(found)

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
                        yield number, buried.unexpected(source, letters)

    def conclude(self) -> None:
        """The end of a test: it must have asked for what came, and for the dead letters that there are."""
        if self._steps and not self._asked:
            hint = "ask for what came: expect, expect_late, expect_dead, rows"
            raise InvalidTest(f"the test of {self.pipeline.name!r} expects nothing", hint=hint, place=self._place)
        for number, told in self.unexpected():
            raise comparing.Different(f"step {number}: {told}", self._place)

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

    def _elements(self) -> list[Source | Table]:
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

    def _played(self, query: Query) -> Play:
        """A query that has had every step."""
        play = self._plays.get(query.name)
        if play is None:
            state = self._state / f"{len(list(self._state.iterdir()))}"
            ground = Site(self._spark, self.pipeline.name, "", state, _no_cluster)
            stream = self._mould.stream()
            with own_modules(self._spark, self.pipeline):
                play = Play(Workshop(self.pipeline, ground), query, stream, self._static, self._ticks, self._chaos)
            self._plays[query.name] = play
        for rows in self._steps[len(play.steps) :]:
            play.step(rows)
        return play

    def _source(self, name: str) -> Source:
        found = self.pipeline.source(name)
        if found is None:
            known = [one.name for one in self.pipeline.sources]
            raise InvalidTest(f"there is no source {name!r}", hint=did_you_mean(name, known))
        return found

    def _give_static(self, source: Source, messages: list[Message]) -> None:
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

    return {"source": tick_of(name), "tick": moment(at) + timedelta(seconds=watermark.seconds)}


def _number(steps: Sequence[Played], step: int) -> int:
    if not -len(steps) <= step < len(steps):
        raise InvalidTest(f"there is no step {step}", hint="give rows first")
    return step % len(steps)


def _no_cluster() -> Any:
    raise InvalidTest("a test has no Kafka", hint="give the rows of each source instead")


def _choose_state_store(spark: SparkSession, pipeline: Pipeline) -> Callable[[], None]:
    """The store that the pipeline needs; returns what makes it as it was."""
    if not arbitrary(make_plan(pipeline)):
        return lambda: None
    before = spark.conf.get(ROCKSDB.key, None)
    spark.conf.set(ROCKSDB.key, ROCKSDB.value)
    return lambda: spark.conf.unset(ROCKSDB.key) if before is None else spark.conf.set(ROCKSDB.key, before)
