"""Panels in Spark: what they need of a table is observed while its rows pass, and reported with the batch's progress.

A panel costs no job, no copy of the batch and no sink: `observe` puts one more operator at the end of the plan, which
keeps the few rows that matter (`max_by` with a limit) and passes all rows on. So nothing that a panel does can fail a
batch, and a checkpoint is the same with and without it.

`ColumnView` is a column as the dashboard can show it: numbers, times, windows, and everything else as short text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millrace.engine.failures.explain import explain
from millrace.errors import InvalidDefinition, MillraceError
from millrace.pipeline.connector_facts import OptionMistake
from millrace.pipeline.model import Panel
from millrace.pipeline.panels import RunPanel, column_mistakes, parse_order, shown
from millrace.pipeline.plan import Query
from millrace.telemetry.panel_registry import PanelRegistry, RegisteredPanel
from millrace.telemetry.panel_views import Frame, HeatView, NumberView, PanelView, SeriesView, TableView, TopView
from millrace.telemetry.progress import METRICS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LONGEST = 500
"""Characters of a text."""
_BYTES = 32
_DAY = 86_400_000
_DAYS = 100_000_000
"""Days before and after 1970 that JavaScript's dates can hold; Spark's go some thousand years further."""


@dataclass(frozen=True)
class ColumnView:
    """One column: its name, its type on the page (`number`, `time`, `window`, `bool`, `text`, `other`), and Spark's."""

    name: str
    type: str
    spark: str
    column: Column

    def shown(self) -> Column:
        """The column as JSON can carry it: short, and without NaN."""
        if self.type == "number":
            return self.sortable()
        if self.type in ("time", "window"):
            return self.start()
        return self.column if self.type == "bool" else _short(self._text())

    @property
    def drawn(self) -> str:
        """What the page takes it for: a window is the time at which it begins."""
        return "time" if self.type == "window" else self.type

    def start(self) -> Column:
        """A time, or the beginning of a window, in milliseconds."""
        return self._milliseconds(self.column["start"] if self.type == "window" else self.column)

    def end(self) -> Column:
        """The end of a window in milliseconds; a time has none."""
        from pyspark.sql import functions as F

        return self._milliseconds(self.column["end"]) if self.type == "window" else F.lit(None).cast("long")

    def sortable(self) -> Column:
        """The column as rows are sorted by it; NaN, which Spark takes for the largest number, is nothing."""
        from pyspark.sql import functions as F

        if self.type != "number":
            return self.start() if self.type in ("time", "window") else self.column
        if self.spark in ("float", "double"):
            double = self.column.cast("double")
            return F.when(~F.isnan(double) & (F.abs(double) < F.lit(float("inf"))), double)
        return self.column.cast("double") if self.spark.startswith("decimal") else self.column

    def reversed(self) -> Column:
        """The same from the smallest up. Text cannot be turned round, so of it any rows are taken."""
        from pyspark.sql import functions as F

        if self.type in ("number", "time", "window"):
            return -self.sortable().cast("double")
        return F.lit(0)

    def _milliseconds(self, column: Column) -> Column:
        """A moment; nothing where a browser knows none, which is long before Spark can count no further and fails."""
        from pyspark.sql import functions as F

        if "timestamp" not in self.spark:
            return F.when(F.abs(F.unix_date(column)) < _DAYS, F.unix_millis(column.cast("timestamp")))
        if "timestamp_ntz" in self.spark:
            return F.when(F.abs(F.year(column)) < _DAYS // 366, F.unix_millis(column.cast("timestamp")))
        moment = F.unix_millis(column)
        return F.when(F.abs(moment) < _DAYS * _DAY, moment)

    def _text(self) -> Column:
        from pyspark.sql import functions as F

        if self.spark == "binary":
            return F.concat(F.lit("0x"), F.lower(F.hex(F.substring(self.column, 1, _BYTES))))
        if self.spark == "variant":
            return F.to_json(self.column)
        return self.column.cast("string")


def columns_of(frame: DataFrame) -> dict[str, ColumnView]:
    """The columns of a table by their names in small letters; of two that differ in capitals only, the first."""
    from pyspark.sql import functions as F

    views: dict[str, ColumnView] = {}
    for field in frame.schema.fields:
        quoted = field.name.replace("`", "``")
        view = ColumnView(field.name, _type(field.dataType), field.dataType.simpleString(), F.col(f"`{quoted}`"))
        views.setdefault(field.name.lower(), view)
    return views


def _type(kind: Any) -> str:
    from pyspark.sql import types

    if isinstance(kind, types.NumericType):
        return "number"
    if isinstance(kind, types.TimestampType | types.TimestampNTZType | types.DateType):
        return "time"
    if isinstance(kind, types.StructType) and [field.name for field in kind.fields] == ["start", "end"]:
        return "window" if all(_type(field.dataType) == "time" for field in kind.fields) else "other"
    if isinstance(kind, types.BooleanType):
        return "bool"
    return "text" if isinstance(kind, types.StringType) else "other"


def _short(column: Column) -> Column:
    from pyspark.sql import functions as F

    cut = F.concat(F.substring(column, 1, LONGEST), F.lit("…"))
    return F.when(F.length(column) > LONGEST, cut).otherwise(column)


MOST_ROWS = 1000
"""Rows of a batch that a panel may look at, unless it shows more."""
_POINTS = 2000
_INFERRED_COLUMNS = 12


@dataclass(frozen=True)
class PanelQuery:
    """What a panel looks at: the columns of its rows, which of them come first, how many, and who takes them."""

    columns: tuple[Column, ...]
    first: Column | None
    most: int
    picture: PanelView

    def metrics(self, name: str) -> tuple[Column, Column]:
        """The rows, and of how many they were chosen."""
        from pyspark.sql import functions as F

        row = F.struct(*(column.alias(f"c{place}") for place, column in enumerate(self.columns)))
        rows = F.max_by(row, F.lit(0) if self.first is None else self.first, self.most)
        return rows.alias(name), F.count(F.lit(1)).alias(f"#{name}")


def attach_panels(frame: DataFrame, query: Query, registry: PanelRegistry) -> DataFrame:
    """Return the table of a query, observed by its panels; a panel that cannot be shows why."""
    from pyspark.sql import functions as F

    panels = query.panels or (inferred_panel(frame, query.table) if query.infers else ())
    metrics: list[Column] = []
    for one in panels:
        try:
            sight = sight_of(one, frame, query.mode)
            seen = sight.metrics(one.id)
            frame.observe(METRICS, *seen)  # which analyses it
        except MillraceError as error:
            error.place = error.place or one.panel.place
            registry.register(RegisteredPanel(one, query.name, query.mode, error=error))
            continue
        except Exception as error:
            registry.register(RegisteredPanel(one, query.name, query.mode, error=explain(error, place=one.panel.place)))
            continue
        metrics += seen
        note = None if query.sinks else "a query of its own reads the source once more for this panel"
        registry.register(RegisteredPanel(one, query.name, query.mode, sight.picture, len(sight.columns), note=note))
    if not query.batches:
        return frame
    # Many sinks do not count what they write, and the dashboard shows how many rows come out.
    return frame.observe(METRICS, *metrics, F.count(F.lit(1)).alias("#"))


def panel_mistakes(panel: Panel, frame: DataFrame) -> Iterator[OptionMistake]:
    """What is wrong with the columns that a panel names."""
    return column_mistakes(panel, columns_of(frame).values())


def sight_of(one: RunPanel, frame: DataFrame, mode: str = "append") -> PanelQuery:
    """How a panel looks at a table whose rows come in a mode."""
    for mistake in panel_mistakes(one.panel, frame):
        raise InvalidDefinition(mistake.message, hint=mistake.hint, place=one.panel.place)
    made: dict[str, Callable[[dict[str, Any], dict[str, ColumnView]], PanelQuery]] = {
        "series": _series,
        "top": _top,
        "table": _table,
        "heat": _heat,
        "number": _number,
    }
    sight = made[one.panel.kind](one.given, columns_of(frame))
    return _newest_windows_first(sight, columns_of(frame)) if one.panel.kind == "top" and mode != "update" else sight


def _newest_windows_first(sight: PanelQuery, looks: dict[str, ColumnView]) -> PanelQuery:
    """Where old windows come again, or many at once, the largest of them must not crowd out the one that is shown."""
    from pyspark.sql import functions as F

    window = next((one for one in looks.values() if one.type == "window"), None)
    return sight if window is None else replace(sight, first=F.struct(window.start(), sight.first or F.lit(0)))


def _series(given: dict[str, Any], looks: dict[str, ColumnView]) -> PanelQuery:
    from pyspark.sql import functions as F

    time, value = looks[given["time"].lower()], looks[given["value"].lower()]
    key = looks[given["key"].lower()] if given["key"] else None
    frame = Frame(("time", "key", "value"), ("time", key.drawn if key else "text", "number"))
    columns = (time.start(), time.end(), key.shown() if key else F.lit(""), value.shown())
    return PanelQuery(columns, time.start(), _POINTS, SeriesView(frame))


def _top(given: dict[str, Any], looks: dict[str, ColumnView]) -> PanelQuery:
    label, value = looks[given["label"].lower()], looks[given["value"].lower()]
    frame = Frame(("label", "value"), (label.drawn, "number"), int(given["limit"]))
    return PanelQuery(
        (label.shown(), value.shown(), *_window(looks)), value.sortable(), max(MOST_ROWS, frame.limit), TopView(frame)
    )


def _number(given: dict[str, Any], looks: dict[str, ColumnView]) -> PanelQuery:
    value = looks[given["value"].lower()]
    moment = next((one for one in looks.values() if one.type in ("window", "time")), None)
    first = moment.start() if moment else None
    return PanelQuery((value.shown(), *_window(looks)), first, 100, NumberView(Frame(("value",), ("number",), 1)))


def _heat(given: dict[str, Any], looks: dict[str, ColumnView]) -> PanelQuery:
    x, y, value = (looks[given[name].lower()] for name in ("x", "y", "value"))
    timed = x.type in ("time", "window")
    frame = Frame(("x", "y", "value"), (x.drawn, y.drawn, "number"))
    first = x.start() if timed else value.sortable()
    columns = (x.start() if timed else x.shown(), y.shown(), value.shown())
    return PanelQuery(columns, first, _POINTS, HeatView(frame))


def _table(given: dict[str, Any], looks: dict[str, ColumnView]) -> PanelQuery:
    key = _listed(given["key"])
    order, falling = parse_order(given["order"]) if given["order"] else (None, False)
    wanted = _listed(given["columns"]) or tuple(one.name for one in looks.values())
    hidden = [name for name in (*key, *((order,) if order else ())) if name.lower() not in map(str.lower, wanted)]
    chosen = [looks[name.lower()] for name in (*wanted, *hidden)]
    places = {look.name.lower(): place for place, look in reversed(list(enumerate(chosen)))}
    frame = Frame(
        tuple(look.name for look in chosen),
        tuple(look.drawn for look in chosen),
        int(given["limit"]),
        tuple(places[name.lower()] for name in key),
        places[order.lower()] if order else None,
        falling,
    )
    most = max(MOST_ROWS, frame.limit) if key else frame.limit
    return PanelQuery(tuple(look.shown() for look in chosen), _first(looks, order, falling), most, TableView(frame))


def _first(looks: dict[str, ColumnView], order: str | None, falling: bool) -> Column | None:
    """Which rows of a batch are taken when there are too many: by the order asked for, else the newest."""
    from pyspark.sql import functions as F

    if order is not None:
        look = looks[order.lower()]
        return look.sortable() if falling else look.reversed()
    moment = next((one for one in looks.values() if one.type in ("time", "window")), None)
    return F.coalesce(moment.start(), F.lit(0)) if moment else None


def _window(looks: dict[str, ColumnView]) -> tuple[Column, Column]:
    """The start and end of the table's first window, or nothing."""
    from pyspark.sql import functions as F

    window = next((one for one in looks.values() if one.type == "window"), None)
    return (window.start(), window.end()) if window else (F.lit(None).cast("long"), F.lit(None).cast("long"))


def inferred_panel(frame: DataFrame, table: str) -> tuple[RunPanel, ...]:
    """A panel for a table of which nobody said how to show it: time and number, label and count, or its rows."""
    looks = list(columns_of(frame).values())
    times = [one for one in looks if one.type in ("time", "window")]
    numbers = [one for one in looks if one.type == "number"]
    words = [one for one in looks if one.type == "text"]
    few = len(looks) <= _INFERRED_COLUMNS and len(words) <= 1 and len(numbers) == 1
    options: dict[str, Any] = {}
    kind = "table"
    if few and times:
        kind = "series"
        options = {"time": times[0].name, "value": numbers[0].name, **({"key": words[0].name} if words else {})}
    elif few and words:
        kind, options = "top", {"label": words[0].name, "value": numbers[0].name}
    return shown((Panel(table, kind, tuple(sorted(options.items()))),), inferred=True)


def _listed(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)
