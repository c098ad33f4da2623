"""A SELECT over the tables in memory: harmless, of few rows, done within seconds, and leaving nothing behind."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millrace.connectors.memory import MEMORY
from millrace.engine.failures import explain
from millrace.engine.spoken import cause_of, said
from millrace.engine.structured import VIEWS
from millrace.errors import InputError, InvalidQuery, NotReady, UnknownName
from millrace.pipeline.sql import parse_sql, tables_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIMIT = 20.0
"""Seconds that an answer may take."""
_LOOK = 0.1
_PATIENCE = 10.0
_OUTSIDE = frozenset({"reflect", "try_reflect", "java_method", "identifier"})
_OF_DATA = re.compile(r"SQLSTATE: (?:22|42)")
"""The SQL standard's classes of what is wrong with values and with the text, and not with whoever works on them."""


class Questions:
    """Answers one question after another; whoever asks meanwhile is told so."""

    def __init__(self, spark: SparkSession, limit: float = LIMIT) -> None:
        self._spark = spark
        self._limit = limit
        self._busy = threading.Lock()
        self._closing = threading.Event()

    def ask(self, sql: str, most: int) -> dict[str, Any]:
        """The rows of a SELECT, at most so many."""
        if not self._busy.acquire(blocking=False):
            raise NotReady("another question is being answered", hint="ask again in a moment")
        try:
            if self._closing.is_set():
                raise NotReady("the run has ended", hint="start it again")
            with self._watched() as late:
                return self._answered(sql, most, late)
        finally:
            self._busy.release()

    def close(self) -> None:
        """Stop what is being answered, so that Spark is not stopped under it."""
        self._closing.set()
        if self._busy.acquire(timeout=_PATIENCE):
            self._busy.release()

    def _answered(self, sql: str, most: int, late: threading.Event) -> dict[str, Any]:
        try:
            return answer(self._spark, sql, most)
        except InputError:
            raise
        except Exception as error:
            if self._closing.is_set():
                raise NotReady("the run has ended", hint="start it again") from error
            if late.is_set():
                took = f"the answer took longer than {self._limit:g} s and was given up"
                raise InputError(took, hint="ask for less: filter, count, LIMIT") from error
            raise

    @contextmanager
    def _watched(self) -> Iterator[threading.Event]:
        """A time in which Spark's jobs of this thread are stopped when they take too long; the event says so."""
        context, group = self._spark.sparkContext, f"millrace-question-{uuid.uuid4().hex}"
        done, late = threading.Event(), threading.Event()

        def watch() -> None:
            deadline = time.monotonic() + self._limit
            while not done.wait(_LOOK):
                if self._closing.is_set() or time.monotonic() > deadline:
                    late.set()
                    context.cancelJobGroup(group)  # again and again: an answer may be between two jobs

        context.setJobGroup(group, "a question", interruptOnCancel=True)
        watcher = threading.Thread(target=watch, name="question", daemon=True)
        watcher.start()
        try:
            yield late
        finally:
            done.set()
            watcher.join()
            context.setLocalProperty("spark.jobGroup.id", None)  # the thread has other work


def answer(spark: SparkSession, sql: str, most: int) -> dict[str, Any]:
    """The rows of a SELECT over the tables in memory, at most so many."""
    _require_harmless(sql)
    tables = {name: MEMORY.table(_known(name)) for name in tables_read(sql)}
    try:
        frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
        with VIEWS, _named(spark, frames):
            found = spark.sql(sql).limit(most)
        return {"columns": found.columns, "rows": [[_plain(one) for one in row] for row in found.collect()]}
    except Exception as error:
        problem = explain(error)
        if not isinstance(problem, InputError) and _OF_DATA.search(said(error)):
            problem = InvalidQuery(cause_of(error))
        raise problem from error


def _known(name: str) -> str:
    """The table in memory that a query means; Spark's names have no large and small letters."""
    known = {one.lower(): one for one in MEMORY.names()}
    if not known:
        raise InputError("nothing is in memory yet", hint="wait for a first batch; a memory sink puts rows there")
    if name.lower() not in known:
        raise UnknownName.among("table in memory", name, known.values())
    return known[name.lower()]


@contextmanager
def _named(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Names for frames while a query is analysed; a view that has such a name already has it again afterwards."""
    catalog: Any = spark._jsparkSession.sessionState().catalog()
    before = {name: catalog.getRawTempView(name) for name in frames}
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name, view in before.items():
            spark.catalog.dropTempView(name)
            if view.isDefined():
                catalog.createTempView(name, view.get(), True)


def _require_harmless(sql: str) -> None:
    """Refuse what would read more than tables in memory: files named as tables, names made up as it runs, Java."""
    from sqlglot import exp

    tree = parse_sql(sql)
    for table in tree.find_all(exp.Table):
        if table.db or table.catalog:
            raise InputError(f"{table.sql('spark')} is no table in memory", hint="ask for the tables of memory sinks")
    for call in tree.find_all(exp.Anonymous):
        if str(call.this).lower() in _OUTSIDE:
            raise InputError(f"{call.this} cannot be used here", hint="ask for the tables of memory sinks")


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        return {name: _plain(one) for name, one in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value if isinstance(value, str | int | float | bool | None) else str(value)
