"""How many rows a second flow into the pipeline and along each of its edges, where that can be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.telemetry.known import most, total
from millrace.telemetry.outline import Edge, Outline
from millrace.telemetry.progress import Progress, SourceProgress


@dataclass(frozen=True)
class Flow:
    """The rates of one moment, out of what is told of the queries."""

    outline: Outline
    queries: list[dict[str, Any]]
    last: Mapping[str, Progress | None]

    def edges(self) -> list[dict[str, Any]]:
        """Each edge with its rate; null between tables, whose rows Spark does not count."""
        return [{"from": one.start, "to": one.end, "rate": self._rate(one)} for one in self.outline.edges]

    def read(self) -> float | None:
        """Rows a second from all sources; what several queries read of one source is counted once."""
        if not self.outline.planned:
            return total(one["in_rate"] for one in self.queries)
        sources = dict.fromkeys(source for one in self.outline.queries for source in one.sources)
        whole = total(self._read(source) for source in sources)
        return most(one["in_rate"] for one in self.queries) if whole is None else whole

    def _rate(self, edge: Edge) -> float | None:
        if edge.query is None:
            return self._read(edge.start)
        known = self._told(edge.query)
        return known["out_rate"] if known else None

    def _read(self, source: str) -> float | None:
        """Rows a second of one source: each query reads for itself, so the largest is what comes."""
        return most(self._read_by(one.name, source) for one in self.outline.queries if source in one.sources)

    def _read_by(self, query: str, source: str) -> float | None:
        told, last = self._told(query), self.last.get(query)
        whole: float | None = told["in_rate"] if told else None
        if len(self.outline.query(query).sources) == 1 or whole is None:
            return whole
        topics = set(self.outline.topics.get(source, ()))
        if last is None or not topics:
            return None
        rows = [one.rows for one in last.sources if _topics(one) & topics]
        return whole * sum(rows) / last.input_rows if last.input_rows else 0.0

    def _told(self, query: str) -> dict[str, Any] | None:
        return next((one for one in self.queries if one["name"] == query), None)


def _topics(source: SourceProgress) -> set[str]:
    return set(source.end) if isinstance(source.end, dict) else set()
