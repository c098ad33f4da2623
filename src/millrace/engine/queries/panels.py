"""Panels in Spark: what they need of a table is observed while its rows pass, and reported with the batch's progress.

A panel costs no job, no copy of the batch and no sink: `observe` puts one more operator at the end of the plan, which
keeps the few rows that matter (`max_by` with a limit) and passes all rows on. So nothing that a panel does can fail a
batch, and a checkpoint is the same with and without it.

`ColumnView` is a column as the dashboard can show it: numbers, times, windows, and everything else as short text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from millrace.engine.failures.explain import explained
from millrace.errors import InvalidDefinition, MillraceError
from millrace.pipeline.connector_facts import OptionMistake
from millrace.pipeline.model import Panel
from millrace.pipeline.panels import RunPanel, column_mistakes, parse_order, shown
from millrace.pipeline.plan import Query
from millrace.telemetry.panel_registry import PanelRegistry, RegisteredPanel
from millrace.telemetry.panel_views import Frame, HeatView, NumberView, PanelView, SeriesView, TableView, TopView
from millrace.telemetry.progress import METRICS

_MAX_TEXT_CHARS = 500
_MAX_BINARY_BYTES = 32
_DAY_MS = 86_400_000
_MAX_DAYS = 100_000_000
"""Days before and after 1970 that JavaScript's dates can hold; Spark's go some thousand years further."""
_MAX_BATCH_ROWS = 1000
"""Rows of a batch that a panel may look at, unless it shows more."""
_MAX_POINTS = 2000
_MAX_INFERRED_COLUMNS = 12
_TIMES = ("time", "window")


@dataclass(frozen=True)
class ColumnView:
    """One column: its name, its type on the page (`number`, `time`, `window`, `bool`, `text`, `other`), and Spark's."""

    name: str
    type: str
    spark: str
    column: Column

    def shown(self) -> Column:
        """Return the column as JSON can carry it: short, and without NaN."""
        if self.type in ("number", "bool", *_TIMES):
            return self.sortable()
        text = self._text()
        cut = F.concat(F.substring(text, 1, _MAX_TEXT_CHARS), F.lit("…"))
        return F.when(F.length(text) > _MAX_TEXT_CHARS, cut).otherwise(text)

    @property
    def drawn(self) -> str:
        """What the page takes it for: a window is the time at which it begins."""
        return "time" if self.type == "window" else self.type

    def start(self) -> Column:
        """Return a time, or the beginning of a window, in milliseconds."""
        return self._milliseconds(self.column["start"] if self.type == "window" else self.column)

    def end(self) -> Column:
        """Return the end of a window in milliseconds; a time has none."""
        return self._milliseconds(self.column["end"]) if self.type == "window" else F.lit(None).cast("long")

    def sortable(self) -> Column:
        """The column as rows are sorted by it; NaN, which Spark takes for the largest number, is nothing."""
        if self.type != "number":
            return self.start() if self.type in _TIMES else self.column
        if self.spark in ("float", "double"):
            double = self.column.cast("double")
            return F.when(~F.isnan(double) & (F.abs(double) < F.lit(float("inf"))), double)
        return self.column.cast("double") if self.spark.startswith("decimal") else self.column

    def reversed(self) -> Column:
        """The same from the smallest up. Text cannot be turned round, so of it any rows are taken."""
        return -self.sortable().cast("double") if self.type in ("number", *_TIMES) else F.lit(0)

    def _milliseconds(self, column: Column) -> Column:
        """A moment; nothing where a browser knows none, which is long before Spark can count no further and fails."""
        if "timestamp" not in self.spark:
            return F.when(F.abs(F.unix_date(column)) < _MAX_DAYS, F.unix_millis(column.cast("timestamp")))
        if "timestamp_ntz" in self.spark:
            return F.when(F.abs(F.year(column)) < _MAX_DAYS // 366, F.unix_millis(column.cast("timestamp")))
        moment = F.unix_millis(column)
        return F.when(F.abs(moment) < _MAX_DAYS * _DAY_MS, moment)

    def _text(self) -> Column:
        if self.spark == "binary":
            return F.concat(F.lit("0x"), F.lower(F.hex(F.substring(self.column, 1, _MAX_BINARY_BYTES))))
        if self.spark == "variant":
            return F.to_json(self.column)
        return self.column.cast("string")


def columns_of(frame: DataFrame) -> dict[str, ColumnView]:
    """The columns of a table by their names in small letters; of two that differ in capitals only, the first."""
    columns: dict[str, ColumnView] = {}
    for field in frame.schema.fields:
        quoted = field.name.replace("`", "``")
        view = ColumnView(field.name, _type(field.dataType), field.dataType.simpleString(), F.col(f"`{quoted}`"))
        columns.setdefault(field.name.lower(), view)
    return columns


def _type(kind: Any) -> str:
    if isinstance(kind, types.NumericType):
        return "number"
    if isinstance(kind, types.TimestampType | types.TimestampNTZType | types.DateType):
        return "time"
    if isinstance(kind, types.StructType) and [field.name for field in kind.fields] == ["start", "end"]:
        return "window" if all(_type(field.dataType) == "time" for field in kind.fields) else "other"
    if isinstance(kind, types.BooleanType):
        return "bool"
    return "text" if isinstance(kind, types.StringType) else "other"


@dataclass(frozen=True)
class PanelQuery:
    """What a panel looks at: the columns of its rows, which of them come first, how many, and which view takes them."""

    columns: tuple[Column, ...]
    first: Column | None
    max_rows: int
    view: PanelView

    def metrics(self, name: str) -> tuple[Column, Column]:
        """Return the rows, and of how many they were chosen."""
        row = F.struct(*(column.alias(f"c{index}") for index, column in enumerate(self.columns)))
        rows = F.max_by(row, F.lit(0) if self.first is None else self.first, self.max_rows)
        return rows.alias(name), F.count(F.lit(1)).alias(f"#{name}")


_Options = dict[str, Any]
_Columns = dict[str, ColumnView]


def attach_panels(frame: DataFrame, query: Query, registry: PanelRegistry) -> DataFrame:
    """Return the table of a query, observed by its panels; a panel that cannot be shows why."""
    note = None if query.sinks else "a query of its own reads the source once more for this panel"
    metrics: list[Column] = []
    for panel in query.panels or (inferred_panel(frame, query.table) if query.infers else ()):
        registered = RegisteredPanel(panel, query.name, query.mode)
        try:
            with explained(panel.panel.place):
                panel_query = _panel_query(panel, frame, query.mode)
                panel_metrics = panel_query.metrics(panel.id)
                frame.observe(METRICS, *panel_metrics)  # which analyses it
        except MillraceError as error:
            registry.register(replace(registered, error=error))
            continue
        metrics += panel_metrics
        width = len(panel_query.columns)
        registry.register(replace(registered, view=panel_query.view, width=width, note=note))
    if not query.batches:
        return frame
    # Many sinks do not count what they write, and the dashboard shows how many rows come out.
    return frame.observe(METRICS, *metrics, F.count(F.lit(1)).alias("#"))


def panel_mistakes(panel: Panel, frame: DataFrame) -> Iterator[OptionMistake]:
    """Return what is wrong with the columns that a panel names."""
    return column_mistakes(panel, columns_of(frame).values())


def _panel_query(shown_panel: RunPanel, frame: DataFrame, mode: str) -> PanelQuery:
    """Return how a panel looks at a table whose rows come in a mode."""
    panel, columns = shown_panel.panel, columns_of(frame)
    for mistake in panel_mistakes(panel, frame):
        raise InvalidDefinition(mistake.message, hint=mistake.hint, place=panel.place)
    panel_query = _KINDS[panel.kind](shown_panel.given, columns)
    window = _first_of(columns, "window")
    if panel.kind != "top" or mode == "update" or window is None:
        return panel_query
    # Old windows come again, or many at once: the largest of them must not crowd out the one that is shown.
    return replace(panel_query, first=F.struct(window.start(), panel_query.first or F.lit(0)))


def _series(given: _Options, columns: _Columns) -> PanelQuery:
    time, value = columns[given["time"].lower()], columns[given["value"].lower()]
    key = columns[given["key"].lower()] if given["key"] else None
    frame = Frame(("time", "key", "value"), ("time", key.drawn if key else "text", "number"))
    shown_columns = (time.start(), time.end(), key.shown() if key else F.lit(""), value.shown())
    return PanelQuery(shown_columns, time.start(), _MAX_POINTS, SeriesView(frame))


def _top(given: _Options, columns: _Columns) -> PanelQuery:
    label, value = columns[given["label"].lower()], columns[given["value"].lower()]
    frame = Frame(("label", "value"), (label.drawn, "number"), int(given["limit"]))
    shown_columns = (label.shown(), value.shown(), *_window(columns))
    return PanelQuery(shown_columns, value.sortable(), max(_MAX_BATCH_ROWS, frame.limit), TopView(frame))


def _number(given: _Options, columns: _Columns) -> PanelQuery:
    shown_columns = (columns[given["value"].lower()].shown(), *_window(columns))
    moment = _first_of(columns, *_TIMES)
    view = NumberView(Frame(("value",), ("number",), 1))
    return PanelQuery(shown_columns, moment.start() if moment else None, 100, view)


def _heat(given: _Options, columns: _Columns) -> PanelQuery:
    x, y, value = (columns[given[name].lower()] for name in ("x", "y", "value"))
    frame = Frame(("x", "y", "value"), (x.drawn, y.drawn, "number"))
    first = x.start() if x.type in _TIMES else value.sortable()
    return PanelQuery((x.shown(), y.shown(), value.shown()), first, _MAX_POINTS, HeatView(frame))


def _table(given: _Options, columns: _Columns) -> PanelQuery:
    key = _listed(given["key"])
    order, falling = parse_order(given["order"]) if given["order"] else (None, False)
    wanted = _listed(given["columns"]) or tuple(column.name for column in columns.values())
    hidden = [name for name in (*key, *((order,) if order else ())) if name.lower() not in map(str.lower, wanted)]
    chosen = [columns[name.lower()] for name in (*wanted, *hidden)]
    indexes = {column.name.lower(): index for index, column in reversed(list(enumerate(chosen)))}
    frame = Frame(
        tuple(column.name for column in chosen),
        tuple(column.drawn for column in chosen),
        int(given["limit"]),
        tuple(indexes[name.lower()] for name in key),
        indexes[order.lower()] if order else None,
        falling,
    )
    max_rows = max(_MAX_BATCH_ROWS, frame.limit) if key else frame.limit
    first = _first(columns, order, falling)
    return PanelQuery(tuple(column.shown() for column in chosen), first, max_rows, TableView(frame))


_KINDS: dict[str, Callable[[_Options, _Columns], PanelQuery]] = {
    "series": _series,
    "top": _top,
    "table": _table,
    "heat": _heat,
    "number": _number,
}


def _first(columns: _Columns, order: str | None, falling: bool) -> Column | None:
    """Return by what rows of a batch are taken when there are too many: the order asked for, else the newest."""
    if order is not None:
        column = columns[order.lower()]
        return column.sortable() if falling else column.reversed()
    moment = _first_of(columns, *_TIMES)
    return F.coalesce(moment.start(), F.lit(0)) if moment else None


def _first_of(columns: _Columns, *kinds: str) -> ColumnView | None:
    return next((column for column in columns.values() if column.type in kinds), None)


def _window(columns: _Columns) -> tuple[Column, Column]:
    """Return the start and end of the table's first window, or nothing."""
    window = _first_of(columns, "window")
    return (window.start(), window.end()) if window else (F.lit(None).cast("long"), F.lit(None).cast("long"))


def inferred_panel(frame: DataFrame, table: str) -> tuple[RunPanel, ...]:
    """Return a panel for a table that has none: time and number, label and count, or its rows."""
    columns = columns_of(frame).values()
    times = [column.name for column in columns if column.type in _TIMES]
    numbers = [column.name for column in columns if column.type == "number"]
    texts = [column.name for column in columns if column.type == "text"]
    few = len(columns) <= _MAX_INFERRED_COLUMNS and len(texts) <= 1 and len(numbers) == 1
    kind, options = "table", {}
    if few and times:
        kind, options = "series", {"time": times[0], "value": numbers[0], **({"key": texts[0]} if texts else {})}
    elif few and texts:
        kind, options = "top", {"label": texts[0], "value": numbers[0]}
    return shown((Panel(table, kind, tuple(sorted(options.items()))),), inferred=True)


def _listed(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)
