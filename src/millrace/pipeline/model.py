"""A pipeline as data: frozen, the same whether it was written in Python or in YAML.

Everything after this point (check, plan, run, the page) knows only these classes. Each element remembers where it
stands in the user's file; two models are equal when they say the same, wherever they say it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from millrace.errors import InvalidOption, SourceLocation
from millrace.pipeline.functions import FunctionDef
from millrace.pipeline.ranking import Ranking
from millrace.pipeline.secret import guarded
from millrace.units import format_duration, parse_interval

MODES = ("append", "update", "complete")
PANELS = ("series", "top", "table", "heat", "number")

_NOWHERE = SourceLocation("<memory>")


class _Unreadable:
    def __repr__(self) -> str:
        return "<unreadable>"


UNREADABLE = _Unreadable()
"""Stands for a value that could not be read, in a model that `check` looks at all the same."""


@dataclass(frozen=True)
class Trigger:
    """When a query looks for new records: `fastest`, `every`, `once` (what is there now), `continuous`, `realtime`."""

    kind: str = "fastest"
    seconds: float | None = None

    def __str__(self) -> str:
        if self.seconds is None:
            return self.kind
        return f"{'' if self.kind == 'every' else self.kind + ' '}{format_duration(self.seconds)}"


FASTEST = Trigger()


def parse_trigger(text: str) -> Trigger:
    """`fastest`, `5s` (or `every 5s`), `once`, `continuous 1s`, `realtime` (`realtime 5m`: its checkpoints)."""
    kind, _, rest = text.strip().partition(" ")
    if kind in ("fastest", "once") and not rest:
        return Trigger(kind)
    if kind == "realtime":
        return Trigger(kind, parse_interval(rest) if rest else None)
    if kind in ("every", "continuous") and rest:
        return Trigger(kind, parse_interval(rest))
    try:
        return Trigger("every", parse_interval(text))
    except InvalidOption:
        hint = "write fastest, 5s, once, continuous 1s or realtime"
        raise InvalidOption(f"{text!r} is not a trigger", hint=hint) from None


@dataclass(frozen=True)
class Watermark:
    """How long to wait for late events: the column of event time, and seconds behind the newest one seen."""

    column: str
    seconds: float


@dataclass(frozen=True)
class Connection:
    """An outside system by its connector's name, the one thing it is mostly about (a topic, a path), and options."""

    connector: str
    argument: Any = None
    options: tuple[tuple[str, Any], ...] = ()
    place: SourceLocation = field(default=_NOWHERE, compare=False, repr=False)
    places: Mapping[str, SourceLocation] = field(default_factory=dict, compare=False, repr=False)
    """Where each option stands, when that is known."""
    bare: tuple[tuple[str, SourceLocation], ...] = field(default=(), compare=False, repr=False)
    """Secrets that are written in the file itself: their options' names, and where."""

    @property
    def readable(self) -> bool:
        """Whether all of it could be read."""
        return bool(self.connector) and UNREADABLE not in (self.argument, *(value for _, value in self.options))

    def option_place(self, name: str) -> SourceLocation:
        """Where an option stands, or else the connection."""
        return self.places.get(name, self.place)


def connection(connector: str, argument: Any = None, options: Mapping[str, Any] | None = None, **at: Any) -> Connection:
    """A connection whose options are frozen and in order, so that equal ones are equal."""
    given = {name: guarded(name, value) for name, value in (options or {}).items() if value is not None}
    return Connection(connector, freeze(guarded(connector, argument)), freeze(given), **at)


def freeze(value: Any) -> Any:
    """Lists as tuples and mappings as tuples of pairs, all the way down."""
    if isinstance(value, list | tuple):
        return tuple(map(freeze, value))
    if isinstance(value, Mapping):
        return tuple(sorted(((str(name), freeze(item)) for name, item in value.items()), key=lambda pair: pair[0]))
    return value


@dataclass(frozen=True)
class SourceDef:
    """What is read, under the name that tables use. A static one is read whole, for joins, and never waited for."""

    name: str
    connection: Connection
    watermark: Watermark | None = None
    static: bool = False
    place: SourceLocation = field(default=_NOWHERE, compare=False, repr=False)
    included: bool = field(default=False, compare=False, repr=False)
    """Whether it stands in a file that several pipelines include, so that others may read it."""


@dataclass(frozen=True)
class TableDef:
    """Rows made from other rows: by SQL, or by a function of DataFrames whose parameters are named as what it reads."""

    name: str
    reads: tuple[str, ...]
    sql: str | None = None
    function: Callable[..., Any] | None = None
    watermark: Watermark | None = None
    place: SourceLocation = field(default=_NOWHERE, compare=False, repr=False)
    sql_place: SourceLocation | None = field(default=None, compare=False, repr=False)
    """Where the first line of the SQL stands."""
    sql_marks: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    """When the SQL's lines are not those of the file: how many visible characters stand before each of the file's."""
    parameters: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """The parameters of the Python function that gave the SQL."""
    ranking: Ranking | None = None
    """The newest row of each key, or the best rows of each group: what the SQL was made from."""

    def sql_line(self, line: int, column: int = 1) -> SourceLocation:
        """Where a line of the SQL (and a column of it, both from 1) stands in the user's file."""
        first = self.sql_place or self.place
        if first.line is None or self.sql is None or self.sql_place is None:
            return first
        if self.sql_marks is None:
            return SourceLocation(first.file, first.line + line - 1)
        lines = self.sql.split("\n")
        before = "".join(lines[: line - 1]) + "".join(lines[line - 1 : line])[: max(column - 1, 0)]
        visible = len("".join(before.split()))
        return SourceLocation(first.file, first.line + max(bisect_right(self.sql_marks, visible) - 1, 0))


def ranking_table(
    name: str, source: str, ranking: Ranking, watermark: Watermark | None, place: SourceLocation, at: SourceLocation
) -> TableDef:
    """Return the table of a ranking; all lines of its SQL stand where the ranking does."""
    query = ranking.sql(source)
    return TableDef(name, (source,), query, None, watermark, place, at, (), ranking=ranking)


@dataclass(frozen=True)
class SinkDef:
    """Where a table's rows go, and how: append, update or complete."""

    table: str
    connection: Connection
    mode: str = "append"
    trigger: Trigger | None = None
    place: SourceLocation = field(default=_NOWHERE, compare=False, repr=False)

    @property
    def mode_place(self) -> SourceLocation:
        """Return the location of the mode, or else of the sink."""
        return self.connection.places.get("mode", self.place)


@dataclass(frozen=True)
class Panel:
    """A picture of a table on the page."""

    table: str
    kind: str
    options: tuple[tuple[str, Any], ...] = ()
    place: SourceLocation = field(default=_NOWHERE, compare=False, repr=False)
    places: Mapping[str, SourceLocation] = field(default_factory=dict, compare=False, repr=False)
    """Where each option stands, when that is known."""

    @property
    def readable(self) -> bool:
        """Whether all of it could be read."""
        return not any(value is UNREADABLE for _, value in self.options)

    def option_place(self, name: str) -> SourceLocation:
        """Where an option stands, or else the panel."""
        return self.places.get(name, self.place)


@dataclass(frozen=True)
class PipelineDef:
    """Sources, tables and sinks under one name. Names may still clash or lead nowhere: `check` tells."""

    name: str
    sources: tuple[SourceDef, ...] = ()
    tables: tuple[TableDef, ...] = ()
    sinks: tuple[SinkDef, ...] = ()
    panels: tuple[Panel, ...] = ()
    trigger: Trigger = FASTEST
    place: SourceLocation = field(default=_NOWHERE, compare=False, repr=False)
    functions: tuple[FunctionDef, ...] = ()
    """What SQL may call besides Spark's own functions."""

    @cached_property
    def _sources(self) -> dict[str, SourceDef]:
        return {source.name.lower(): source for source in reversed(self.sources)}  # of two, the first

    @cached_property
    def _tables(self) -> dict[str, TableDef]:
        return {table.name.lower(): table for table in reversed(self.tables)}

    def source(self, name: str) -> SourceDef | None:
        """The source of a name; as in SQL, capitals do not matter."""
        return self._sources.get(name.lower())

    def table(self, name: str) -> TableDef | None:
        """The table of a name; as in SQL, capitals do not matter."""
        return self._tables.get(name.lower())

    def element(self, name: str) -> TableDef | SourceDef | None:
        """The table or source of a name."""
        return self.table(name) or self.source(name)

    def upstream(self, *names: str) -> list[str]:
        """Tables or sources and all that they need, each after what it reads; stops at cycles and unknown names."""
        ordered: list[str] = []
        seen: set[str] = set()
        waiting = [(name, False) for name in reversed(names)]
        while waiting:  # not by recursion: a chain of tables may be long
            name, done = waiting.pop()
            element = self.element(name)
            if element and done:
                ordered.append(element.name)
            elif element and element.name.lower() not in seen:
                seen.add(element.name.lower())
                waiting.append((name, True))
                reads = element.reads if isinstance(element, TableDef) else ()
                waiting.extend((read, False) for read in reversed(reads))
        return ordered

    def upstream_sources(self, name: str) -> list[SourceDef]:
        """The sources that a table needs, or the source itself."""
        return [source for upstream in self.upstream(name) if (source := self.source(upstream))]

    def linked(self) -> PipelineDef:
        """The same with every reference written as the element that it means writes its name."""

        def own(name: str) -> str:
            element = self.element(name)
            return element.name if element else name

        return replace(
            self,
            tables=tuple(replace(table, reads=tuple(map(own, table.reads))) for table in self.tables),
            sinks=tuple(replace(sink, table=own(sink.table)) for sink in self.sinks),
            panels=tuple(replace(panel, table=own(panel.table)) for panel in self.panels),
        )
