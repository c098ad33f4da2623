"""A table's columns as a page can show them: numbers, times, windows, and everything else as short text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LONGEST = 500
"""Characters of a text."""
_BYTES = 32
_DAY = 86_400_000
_DAYS = 100_000_000
"""Days before and after 1970 that JavaScript's dates can hold; Spark's go some thousand years further."""


@dataclass(frozen=True)
class Look:
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


def looks_of(frame: DataFrame) -> dict[str, Look]:
    """The columns of a table by their names in small letters; of two that differ in capitals only, the first."""
    from pyspark.sql import functions as F

    found: dict[str, Look] = {}
    for one in frame.schema.fields:
        quoted = one.name.replace("`", "``")
        look = Look(one.name, _type(one.dataType), one.dataType.simpleString(), F.col(f"`{quoted}`"))
        found.setdefault(one.name.lower(), look)
    return found


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
