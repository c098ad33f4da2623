"""Pipelines written in Python: decorators that only build data.

    trending = Pipeline("trending")
    trending.source("posts", mr.kafka("posts", schema="id string, text string, at timestamp"))

    @trending.table(watermark=("at", "10 seconds"))
    def hashtags(posts):
        return posts.select(...)

Nothing is read and no Spark is needed until the model that comes out of it is run.
"""

from __future__ import annotations

import dis
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from millrace.errors import InputError, InvalidDefinition, SourceLocation
from millrace.pipeline import model
from millrace.pipeline.functions import FunctionDef
from millrace.pipeline.loading.functions import function_def
from millrace.pipeline.python_source import called_text, returned_text
from millrace.pipeline.ranking import LATEST, TOP, ranking
from millrace.pipeline.sql import tables_read, tidy
from millrace.units import parse_interval

F = TypeVar("F", bound=Callable[..., Any])

_collected: ContextVar[list[Pipeline] | None] = ContextVar("pipelines", default=None)


@contextmanager
def collecting() -> Iterator[list[Pipeline]]:
    """Every pipeline that is made meanwhile, in order."""
    pipelines: list[Pipeline] = []
    token = _collected.set(pipelines)
    try:
        yield pipelines
    finally:
        _collected.reset(token)


class Pipeline:
    """A pipeline being written; `model()` is what it says."""

    def __init__(self, name: str, *, trigger: str | None = None) -> None:
        self._place = calling_place()
        self.name = _text(name, "a pipeline's name", self._place)
        self._trigger = as_trigger(trigger, self._place) or model.FASTEST
        self._sources: list[model.SourceDef] = []
        self._tables: list[model.TableDef] = []
        self._sinks: list[model.SinkDef] = []
        self._panels: list[model.Panel] = []
        self._functions: list[FunctionDef] = []
        if (collected := _collected.get()) is not None:
            collected.append(self)

    def source(
        self, name: str, connection: model.Connection, *, watermark: Sequence[str] | None = None, static: bool = False
    ) -> None:
        """Read something under a name: a stream, or with `static` a table that is read whole, for joins."""
        place = calling_place()
        name = _text(name, "a source's name", place)
        _require_connection(connection, f"source {name!r}", place)
        self._sources.append(model.SourceDef(name, connection, as_watermark(watermark, place), static, place))

    @overload
    def table(self, function: F, /) -> F: ...
    @overload
    def table(
        self, _: None = None, /, *, name: str | None = None, watermark: Sequence[str] | None = None
    ) -> Callable[[F], F]: ...
    def table(
        self, function: F | None = None, /, *, name: str | None = None, watermark: Sequence[str] | None = None
    ) -> F | Callable[[F], F]:
        """Make a table of a function. Its parameters name what it reads; it returns a DataFrame, or SQL text."""

        def add(function: F) -> F:
            self._tables.append(_table(function, name, watermark))
            return function

        return add(function) if function else add

    def sql(self, name: str, query: str, *, watermark: Sequence[str] | None = None) -> None:
        """Make a table of a SQL query over the names of sources and other tables."""
        place = calling_place()
        name, query = _text(name, "a table's name", place), _text(query, "a query", place)
        at, marks = called_text(place, query)
        query, waits = tidy(query), as_watermark(watermark, place)
        self._tables.append(model.TableDef(name, read_by(query), query, None, waits, place, at, marks))

    @overload
    def function(self, function: F, /) -> F: ...
    @overload
    def function(self, _: None = None, /, *, name: str | None = None) -> Callable[[F], F]: ...
    def function(self, function: F | None = None, /, *, name: str | None = None) -> F | Callable[[F], F]:
        """Let SQL call a function by its name; type hints, or `mr.arrow_udf`, say the types."""
        place = calling_place()

        def add(function: F) -> F:
            try:
                self._functions.append(function_def(function, name))
            except InvalidDefinition as error:
                error.place = error.place or place
                raise
            return function

        return add(function) if function is not None else add

    def latest(
        self,
        name: str,
        table: str | Callable[..., Any],
        *,
        by: str | Sequence[str],
        order: str | Sequence[str],
        watermark: Sequence[str] | None = None,
    ) -> None:
        """Make a table of the newest row of each key: of the rows with one `by`, the one with the greatest `order`."""
        self._rank(name, table, watermark, LATEST, by, order)

    def top(
        self,
        name: str,
        table: str | Callable[..., Any],
        *,
        n: int,
        order: str | Sequence[str],
        by: str | Sequence[str] = (),
        rank: str | None = None,
        watermark: Sequence[str] | None = None,
    ) -> None:
        """Make a table of the first `n` rows of each group in an order, as `order="count DESC"`."""
        self._rank(name, table, watermark, TOP, by, order, n, rank)

    def _rank(self, name: str, table: Any, watermark: Sequence[str] | None, *form: Any) -> None:
        place = calling_place()
        name, source = _text(name, "a table's name", place), self._named(table, place)
        waits = as_watermark(watermark, place)
        try:
            rows = ranking(*form)
        except InvalidDefinition as error:
            raise InvalidDefinition(error.message, place=place, hint=error.hint, why=error.why) from None
        self._tables.append(model.ranking_table(name, source, rows, waits, place, place))

    def sink(
        self,
        table: str | Callable[..., Any],
        connection: model.Connection,
        *,
        mode: str = "append",
        trigger: str | None = None,
    ) -> None:
        """Write a table's rows somewhere: `append` new ones, `update` changed ones, or the `complete` result."""
        place = calling_place()
        table, mode = self._named(table, place), _text(mode, "a mode", place)
        _require_connection(connection, f"the sink of {table!r}", place)
        self._sinks.append(model.SinkDef(table, connection, mode, as_trigger(trigger, place), place))

    def panel(self, table: str | Callable[..., Any], picture: Any) -> None:
        """Show a table on the page, as `mr.top(label=…, value=…)` and others say."""
        place = calling_place()
        table = self._named(table, place)
        if not isinstance(picture, tuple) or len(picture) != 2:
            message = f"the panel of {table!r} needs a picture, not {type(picture).__name__}"
            raise InvalidDefinition(message, place=place, hint='as mr.top(label="tag", value="count")')
        kind, options = picture
        self._panels.append(model.Panel(table, kind, model.freeze(options), place))

    def _named(self, table: Any, place: SourceLocation) -> str:
        """The name of a table that is given by it, or by the function that makes it."""
        by_function = (own.name for own in self._tables if own.function is not None and own.function is table)
        name = next(by_function, None) or _text(getattr(table, "__name__", table), "a table's name", place)
        if not name:
            raise InvalidDefinition("a table's name is empty", place=place, hint="name a source or a table")
        return name

    def model(self) -> model.PipelineDef:
        """What was written, frozen."""
        sources, tables = tuple(self._sources), tuple(self._tables)
        sinks, panels = tuple(self._sinks), tuple(self._panels)
        functions = tuple(self._functions)
        place = self._place
        return model.PipelineDef(self.name, sources, tables, sinks, panels, self._trigger, place, functions).linked()


def calling_place() -> SourceLocation:
    """The line of the user's file that called us."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "millrace":
        frame = frame.f_back
    return SourceLocation(frame.f_code.co_filename, frame.f_lineno)


def as_given(value: Any) -> Any:
    """A connection's argument or option as a YAML file would have it: a path is text, and so is Spark's StructType."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [as_given(item) for item in value]
    if type(value).__name__ == "StructType" and hasattr(value, "fields"):
        return ", ".join(map(_column, value.fields))
    return value


def _column(field: Any) -> str:
    name = str(field.name).replace("`", "``")
    return f"`{name}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"


def as_watermark(given: Sequence[str] | None, place: SourceLocation) -> model.Watermark | None:
    """`("at", "10 seconds")` as a watermark."""
    if given is None:
        return None
    if isinstance(given, str) or len(given) != 2:
        hint = 'write ("at", "10 seconds")'
        raise InvalidDefinition(f"a watermark is a column and a delay, not {given!r}", place=place, hint=hint)
    column, delay = map(str, given)
    try:
        return model.Watermark(column, parse_interval(delay))
    except InputError as error:
        raise InvalidDefinition(f"the watermark's delay: {error.message}", place=place, hint=error.hint) from None


def as_trigger(given: str | None, place: SourceLocation) -> model.Trigger | None:
    """`5s`, `realtime` … as a trigger."""
    if given is None:
        return None
    try:
        return model.parse_trigger(str(given))
    except InputError as error:
        raise InvalidDefinition(error.message, place=place, hint=error.hint) from None


def read_by(query: str, otherwise: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What a query reads; when it does not parse, what is known otherwise (`check` reports it)."""
    try:
        return tables_read(query)
    except InputError:
        return otherwise


def _table(function: Callable[..., Any], given: str | None, watermark: Sequence[str] | None) -> model.TableDef:
    if not inspect.isfunction(function):
        message = f"a table is made of a function, not of {type(function).__name__}"
        raise InvalidDefinition(message, place=calling_place())
    place = SourceLocation(function.__code__.co_filename, function.__code__.co_firstlineno)
    parameters = _parameters(function, place)
    name = given or function.__name__
    waits = as_watermark(watermark, place)
    if _gives_text(function, parameters):
        text = function(*parameters)
        if isinstance(text, str):
            at, marks = returned_text(function, text)
            query = tidy(text)
            return model.TableDef(name, read_by(query, parameters), query, None, waits, place, at, marks, parameters)
    return model.TableDef(name, parameters, None, function, waits, place)


def _parameters(function: Callable[..., Any], place: SourceLocation) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.KEYWORD_ONLY) for each in parameters.values()):
        hint = "write def popular(posts, replies):"
        raise InvalidDefinition("a table's parameters name what it reads, one each", place=place, hint=hint)
    return tuple(parameters)


def _gives_text(function: Callable[..., Any], parameters: Sequence[str]) -> bool:
    """Whether a function can only return SQL text: it does not look at what it is given, or can call nothing."""
    steps = list(dis.get_instructions(function))
    used = any(
        step.argval in parameters and step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "MAKE_CELL"))
        for step in steps
    )
    # Without parameters a call might as well read a table from Spark, which is not there yet.
    return not used and (bool(parameters) or not any("CALL" in step.opname for step in steps))


def _text(given: Any, what: str, place: SourceLocation) -> str:
    if not isinstance(given, str):
        raise InvalidDefinition(f"{what} is text, not {type(given).__name__}", place=place)
    return given


def _require_connection(given: Any, what: str, place: SourceLocation) -> None:
    if not isinstance(given, model.Connection):
        message = f"{what} needs a connection, not {type(given).__name__}"
        raise InvalidDefinition(message, place=place, hint='as mr.kafka("posts", …)')
