"""A part of Kafka's topics: where a query begins, and before which offsets it ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.telemetry.progress import WITHIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Offsets = Mapping[str, Mapping[str, int]]
"""An offset for each partition of topics, as Spark writes them: {"posts": {"0": 23}}."""
_EARLIEST = -2
"""What Spark calls the first offset that there is."""


@dataclass(frozen=True)
class ReplayRange:
    """From some offsets on, up to others."""

    begin: Offsets
    end: Offsets | None = None
    """The first offset of each partition that does not belong to it; None: it has no end."""
    most: int | None = None

    def knows(self, topics: Iterable[str]) -> bool:
        """Return whether it has offsets of one of these topics."""
        return any(topic in self.begin for topic in topics)

    def starting(self, places: Iterable[tuple[str, int]]) -> dict[str, dict[str, int]]:
        """Return where to begin in each of these partitions; at the beginning of those newer than the range."""
        offsets: dict[str, dict[str, int]] = {}
        for topic, number in places:
            offsets.setdefault(topic, {})[str(number)] = self.begin.get(topic, {}).get(str(number), _EARLIEST)
        return offsets

    def part(self, rows: DataFrame, source: str) -> DataFrame:
        """Return the records of a source before the end; Spark reports their number with each batch.

        Spark fixes an end of its own when a query starts, which is later: the records between are left out.
        """
        from pyspark.sql import functions as F

        if self.end is None:
            return rows
        return rows.where(self._within()).observe(f"{WITHIN}{source}", F.count(F.lit(1)).alias("rows"))

    def _within(self) -> Column:
        from pyspark.sql import functions as F

        limit = F.when(F.lit(False), F.lit(0).cast("bigint"))
        for topic, ends in (self.end or {}).items():
            # By partition number; 0 where an end is missing, so that no record is before it.
            offsets = [ends.get(str(number), 0) for number in range(max(map(int, ends), default=-1) + 1)]
            own = F.get(F.array(*(F.lit(offset).cast("bigint") for offset in offsets)), F.col("partition"))
            limit = limit.when(F.col("topic") == topic, own) if offsets else limit
        return F.col("offset") < limit  # nothing, and so left out, for a partition that came later
