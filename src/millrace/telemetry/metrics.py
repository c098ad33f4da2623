"""The run at one moment, as the dashboard, the terminal and Prometheus read it.

- `run_state`: all figures of a run as one dictionary, made from the run status and the measurements.
- `FlowRates`: rows a second into the pipeline and along each of its edges, where that can be known.
- `health`: what `/healthz` and `/readyz` report.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.telemetry.channels import error_fields, milliseconds
from millrace.telemetry.idle_reason import IdleFacts, idle_reason
from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.progress import RATE_WINDOW_S, BatchProgress, SourceProgress, batch_end, rates
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.telemetry.topology import Edge, Topology

UNHEALTHY_AFTER_S = 30.0
"""Seconds without an answer from Spark after which the run counts as unhealthy."""


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict with its reasons."""

    healthy: bool
    ready: bool
    reasons: tuple[str, ...] = ()


def health(run_status: RunStatus, measurements: Measurements, topology: Topology, now: float | None = None) -> Health:
    """Healthy: every query works, none is dead or restarted, Spark and Kafka answer. Ready: every query has begun."""
    statuses = {query.query: query for query in run_status.queries() if topology.query(query.query).writes}
    problems = [*_failures(statuses.values()), *_pending_restarts(statuses.values(), datetime.now(UTC))]
    problems += [
        f"a batch of {query.query} failed: {query.error.message}"
        for query in statuses.values()
        if query.error and not query.phase.idle and not query.restart
    ]
    problems += [measurements.failure] if measurements.failure and not problems else []
    if not measurements.over:
        ended = [query.query for query in statuses.values() if query.phase is Phase.STOPPED]
        problems += [f"query {name} has ended" for name in ended if topology.planned and topology.query(name).lasting]
    alive = any(not query.phase.ended for query in statuses.values())
    now = time.monotonic() if now is None else now
    silent = None if run_status.looked is None else now - run_status.looked
    if alive and silent is not None and silent > UNHEALTHY_AFTER_S:
        problems.append(f"Spark has not answered for {silent:.0f} s")
    problems += [str(missing)] if alive and (missing := run_status.kafka.missing(now)) else []
    begun = {query.query for query in statuses.values() if query.phase is not Phase.STARTING}
    absent = [query.name for query in topology.queries if query.writes and query.name not in begun]
    absent += [name for name in statuses if name not in begun and name not in absent]
    waiting = [f"query {name} has not begun" for name in absent]
    ready = not problems and not absent and (bool(begun) or not topology.planned)
    return Health(not problems, ready, (*problems, *waiting))


def total_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None when nothing is."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def most_known(values: Iterable[float | None]) -> float | None:
    """Return the largest of the known values; None when nothing is."""
    return max((value for value in values if value is not None), default=None)


@dataclass(frozen=True)
class FlowRates:
    """The rates of one moment, from the figures of the queries."""

    topology: Topology
    queries: list[dict[str, Any]]
    last: Mapping[str, BatchProgress | None]

    def edges(self) -> list[dict[str, Any]]:
        """Each edge with its rate; null between tables, whose rows Spark does not count."""
        return [{"from": edge.start, "to": edge.end, "rate": self._rate(edge)} for edge in self.topology.edges]

    def read(self) -> float | None:
        """Rows a second from all sources; what several queries read of one source is counted once."""
        if not self.topology.planned:
            return total_known(query["in_rate"] for query in self.queries)
        sources = dict.fromkeys(source for query in self.topology.queries for source in query.sources)
        whole = total_known(self._read(source) for source in sources)
        return most_known(query["in_rate"] for query in self.queries) if whole is None else whole

    def _rate(self, edge: Edge) -> float | None:
        if edge.query is None:
            return self._read(edge.start)
        return self._figure(edge.query, "out_rate")

    def _read(self, source: str) -> float | None:
        """Rows a second of one source: each query reads for itself, so the largest is what comes."""
        return most_known(
            self._read_by(query.name, source) for query in self.topology.queries if source in query.sources
        )

    def _read_by(self, query: str, source: str) -> float | None:
        whole, last = self._figure(query, "in_rate"), self.last.get(query)
        if len(self.topology.query(query).sources) == 1 or whole is None:
            return whole
        topics = set(self.topology.topics.get(source, ()))
        if last is None or not topics:
            return None
        rows = [source.rows for source in last.sources if isinstance(source.end, dict) and topics & source.end.keys()]
        return whole * sum(rows) / last.input_rows if last.input_rows else 0.0

    def _figure(self, name: str, key: str) -> float | None:
        return next((query[key] for query in self.queries if query["name"] == name), None)


_UNKNOWN_OF_DSTREAMS = {
    "lag": "DStreams do not report how far the end of their input is away",
    "lag_seconds": "DStreams do not report how far the end of their input is away; their delay is shown instead",
    "watermark": "DStreams know no event time",
    "watermark_gap_ms": "DStreams know no event time",
    "state_rows": "DStreams do not count their state",
    "state_bytes": "DStreams do not count their state",
}
"""What is not known of DStreams, and why."""


def run_state(
    run_status: RunStatus, measurements: Measurements, topology: Topology, now: datetime | None = None
) -> dict[str, Any]:
    """Return all figures of the run."""
    at = now or datetime.now(UTC)
    statuses = run_status.queries()
    dead = dict(run_status.dead())
    queries = [_query(query, run_status, measurements, topology, dead, at) for query in statuses]
    phase, reasons = run_phase(statuses, measurements, topology, at)
    # The newest batches that read something; others only move a watermark.
    newest = {
        query.query: next((batch for batch in reversed(run_status.history(query.query)) if batch.input_rows), None)
        for query in statuses
    }
    flow = FlowRates(topology, queries, newest)
    return {
        "time": milliseconds(at),
        "phase": phase,
        "reasons": reasons,
        "figures": _figures(queries, dead, flow, failed=measurements.failure is not None),
        "queries": queries,
        "edges": flow.edges(),
        "dead": dead,
        "process": asdict(measurements.usage),
    }


def run_phase(
    statuses: Iterable[QueryStatus], measurements: Measurements, topology: Topology, now: datetime
) -> tuple[str, list[str]]:
    """`starting`, `running`, `restarting`, `failed` or `stopped`, and why it is not running."""
    writing = {query.query: query for query in statuses if topology.query(query.query).writes}
    failed = _failures(writing.values())
    if measurements.failure and not failed:
        failed.append(measurements.failure)
    if failed:
        return "failed", failed
    again = _pending_restarts(writing.values(), now)
    if again and not measurements.over:
        return "restarting", again
    if measurements.over or (
        writing and all(query.phase is Phase.STOPPED for query in writing.values()) and topology.planned
    ):
        return "stopped", ["every query has ended" if writing else "the run has ended"]
    waiting = [query.name for query in topology.queries if query.writes and query.name not in writing]
    waiting += [query.query for query in writing.values() if query.phase is Phase.STARTING]
    if waiting:
        return "starting", [measurements.doing or f"waiting for {', '.join(dict.fromkeys(waiting))}"]
    if not writing:
        return "starting", [measurements.doing or "no query has been started yet"]
    return "running", []


def batches_of(history: Iterable[BatchProgress]) -> list[BatchProgress]:
    """The batches that did something."""
    return [batch for batch in history if batch.executed]


def _query(
    query: QueryStatus,
    run_status: RunStatus,
    measurements: Measurements,
    topology: Topology,
    dead: Mapping[str, int],
    now: datetime,
) -> dict[str, Any]:
    expected, last = topology.query(query.query), query.last
    done = batches_of(run_status.history(query.query))
    batch = done[-1] if done else None
    lag = measurements.lag(query.query) or Lag(last.lag if last else None)
    dead_letters = sum(dead.get(source, 0) for source in expected.sources)
    return {
        "name": query.query,
        "table": expected.table,
        "phase": query.phase.value,
        "doing": query.doing,
        "batches": query.batches,
        "rows": query.rows,
        "late": query.late_rows,
        **_rates(query, done, measurements, topology, at=now),
        "batch_ms": batch.milliseconds if batch else None,
        "waited_ms": batch.waited if batch else None,
        "delay_ms": batch.delay if batch else None,
        "busy": _busy(query, done, now) if expected.batches else None,
        "lag": lag.records,
        "lag_seconds": lag.seconds,
        "lag_why": lag.why,
        "watermark": milliseconds(last.watermark) if last and last.watermark else None,
        "watermark_gap_ms": watermark_gap(last, milliseconds(now)),
        "state_rows": last.state_rows if last else None,
        "state_bytes": last.state_bytes if last else None,
        "sink_rows": batch.sink_rows if batch else None,
        "since": milliseconds(query.since),
        "alignment": alignment_sentence(last.sources) if last else None,
        "silence": idle_reason(IdleFacts(query, expected, batch, lag.records, dead_letters, now)),
        "error": error_fields(query.error),
        "restart": query.restart.sentence(now) if query.restart else None,
        "restarts": query.restarts,
        "why": _UNKNOWN_OF_DSTREAMS if batch and batch.waited is not None else {},
    }


def _rates(
    query: QueryStatus, done: list[BatchProgress], measurements: Measurements, topology: Topology, *, at: datetime
) -> dict[str, float | None]:
    """Rows a second: in, worked on, out. Where Spark seldom reports, Kafka's topics are measured."""
    expected = topology.query(query.query)
    if query.phase.idle:
        return {"in_rate": 0.0, "rate": 0.0, "out_rate": 0.0}
    topics = [edge.topic for edge in topology.edges if edge.query == query.query and edge.topic]
    written = total_known(measurements.rate(topic) for topic in dict.fromkeys(topics))
    if not expected.batches:
        read = total_known(map(measurements.rate, topology.read_by(query.query)))
        return {"in_rate": read, "rate": None, "out_rate": written}
    recent = rates(done, at, expected.every)
    if recent is None:
        return {"in_rate": None, "rate": None, "out_rate": written}
    out = written if recent.written is None else recent.written
    return {"in_rate": recent.read, "rate": done[-1].rate, "out_rate": out}


def _busy(query: QueryStatus, done: list[BatchProgress], now: datetime) -> float:
    """The share of the last seconds in which batches were at work, the one that is at work now included."""
    start = now - timedelta(seconds=RATE_WINDOW_S)
    spent = 0.0
    for batch in reversed(done):
        if batch_end(batch) < start:
            break
        spent += max(0.0, (min(batch_end(batch), now) - max(batch.at, start)).total_seconds())
    if query.phase is Phase.RUNNING:
        last = batch_end(done[-1]) if done else query.since
        spent += max(0.0, (now - max(last, start, query.since)).total_seconds())
    return round(min(1.0, spent / RATE_WINDOW_S), 3)


def watermark_gap(batch: BatchProgress | None, now: int) -> int | None:
    """Return how far the watermark of a batch is behind a moment, both in milliseconds; None without a watermark."""
    return now - milliseconds(batch.watermark) if batch and batch.watermark else None


def alignment_sentence(sources: Iterable[SourceProgress]) -> str | None:
    """Return how far a backlog is read in event time, and which partitions wait; None where there is no backlog."""
    cuts = [source.alignment for source in sources if source.alignment]
    if not cuts:
        return None
    reached = _moment_text(min(cut.reached_ms for cut in cuts))
    waiting = [partition for cut in cuts for partition in cut.waiting]
    others = f"; {', '.join(waiting)} wait for partitions that are behind" if waiting else ""
    return f"The backlog is read by {cuts[0].by}, up to {reached}{others}."


def _moment_text(time_ms: int) -> str:
    """Return a time as text; records may have any, and Python's calendar ends with the year 9999."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:,} ms after 1970"


def _failures(queries: Iterable[QueryStatus]) -> list[str]:
    failed = [query for query in queries if query.phase is Phase.FAILED]
    return [f"query {query.query} failed: {query.failure}" for query in failed]


def _pending_restarts(queries: Iterable[QueryStatus], now: datetime) -> list[str]:
    return [f"query {query.query}: {query.restart.sentence(now)}" for query in queries if query.restart]


def _figures(
    queries: list[dict[str, Any]], dead: Mapping[str, int], flow: FlowRates, *, failed: bool
) -> dict[str, Any]:
    return {
        "in_rate": flow.read(),
        "out_rate": total_known(query["out_rate"] for query in queries if flow.topology.query(query["name"]).writes),
        **{key: most_known(query[key] for query in queries) for key in ("lag", "lag_seconds", "watermark_gap_ms")},
        "errors": sum(query["error"] is not None for query in queries) or int(failed),
        "dead": sum(dead.values()),
        "late": sum(query["late"] for query in queries),
    }
