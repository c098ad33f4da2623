"""The run at one moment, as the dashboard, the terminal and Prometheus read it.

- `run_state`: all figures of a run as one dictionary, made from the run status and the measurements.
- `FlowRates`: rows a second into the pipeline and along each of its edges, where that can be known.
- `health`: what `/healthz` and `/readyz` report.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.errors import MillraceError
from millrace.telemetry.channels import error_fields, milliseconds
from millrace.telemetry.idle_reason import IdleFacts, idle_reason
from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.progress import RATE_WINDOW_S, BatchProgress, SourceProgress, batch_end, rates
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.telemetry.topology import Edge, Topology

UNHEALTHY_AFTER = 30.0
"""Seconds without an answer from Spark after which the run counts as ill."""


@dataclass(frozen=True, slots=True)
class Health:
    """A verdict with its reasons."""

    healthy: bool
    ready: bool
    reasons: tuple[str, ...] = ()


def health(run_status: RunStatus, measurements: Measurements, topology: Topology, now: float | None = None) -> Health:
    """Healthy: every query works, none is dead or restarted, Spark and Kafka answer. Ready: every query has begun."""
    statuses = {one.query: one for one in run_status.queries() if topology.query(one.query).writes}
    ill = [
        f"query {one.query} failed: {one.error.message if one.error else 'nobody knows why'}"
        for one in statuses.values()
        if one.phase is Phase.FAILED
    ]
    moment = datetime.now(UTC)
    ill += [f"query {one.query}: {one.restart.sentence(moment)}" for one in statuses.values() if one.restart]
    ill += [
        f"a batch of {one.query} failed: {one.error.message}"
        for one in statuses.values()
        if one.error and not one.phase.idle and not one.restart
    ]
    ill += [measurements.failure] if measurements.failure and not ill else []
    if not measurements.over:
        ended = [one.query for one in statuses.values() if one.phase is Phase.STOPPED]
        ill += [f"query {name} has ended" for name in ended if topology.planned and topology.query(name).lasting]
    alive = any(not one.phase.ended for one in statuses.values())
    now = time.monotonic() if now is None else now
    silent = None if run_status.looked is None else now - run_status.looked
    if alive and silent is not None and silent > UNHEALTHY_AFTER:
        ill.append(f"Spark has not answered for {silent:.0f} s")
    ill += [str(missing)] if alive and (missing := run_status.kafka.missing(now)) else []
    begun = {one.query for one in statuses.values() if one.phase is not Phase.STARTING}
    absent = [one.name for one in topology.queries if one.writes and one.name not in begun]
    absent += [name for name in statuses if name not in begun and name not in absent]
    waiting = [f"query {name} has not begun" for name in absent]
    ready = not ill and not absent and (bool(begun) or not topology.planned)
    return Health(not ill, ready, (*ill, *waiting))


def total_known(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None when nothing is."""
    known = [one for one in values if one is not None]
    return sum(known) if known else None


def most_known(values: Iterable[float | None]) -> float | None:
    """The largest of what is known; None when nothing is."""
    return max((one for one in values if one is not None), default=None)


@dataclass(frozen=True)
class FlowRates:
    """The rates of one moment, out of what is told of the queries."""

    topology: Topology
    queries: list[dict[str, Any]]
    last: Mapping[str, BatchProgress | None]

    def edges(self) -> list[dict[str, Any]]:
        """Each edge with its rate; null between tables, whose rows Spark does not count."""
        return [{"from": one.start, "to": one.end, "rate": self._rate(one)} for one in self.topology.edges]

    def read(self) -> float | None:
        """Rows a second from all sources; what several queries read of one source is counted once."""
        if not self.topology.planned:
            return total_known(one["in_rate"] for one in self.queries)
        sources = dict.fromkeys(source for one in self.topology.queries for source in one.sources)
        whole = total_known(self._read(source) for source in sources)
        return most_known(one["in_rate"] for one in self.queries) if whole is None else whole

    def _rate(self, edge: Edge) -> float | None:
        if edge.query is None:
            return self._read(edge.start)
        known = self._told(edge.query)
        return known["out_rate"] if known else None

    def _read(self, source: str) -> float | None:
        """Rows a second of one source: each query reads for itself, so the largest is what comes."""
        return most_known(self._read_by(one.name, source) for one in self.topology.queries if source in one.sources)

    def _read_by(self, query: str, source: str) -> float | None:
        told, last = self._told(query), self.last.get(query)
        whole: float | None = told["in_rate"] if told else None
        if len(self.topology.query(query).sources) == 1 or whole is None:
            return whole
        topics = set(self.topology.topics.get(source, ()))
        if last is None or not topics:
            return None
        rows = [one.rows for one in last.sources if _topics(one) & topics]
        return whole * sum(rows) / last.input_rows if last.input_rows else 0.0

    def _told(self, query: str) -> dict[str, Any] | None:
        return next((one for one in self.queries if one["name"] == query), None)


def _topics(source: SourceProgress) -> set[str]:
    return set(source.end) if isinstance(source.end, dict) else set()


_CLASSIC = {
    "lag": "DStreams do not tell how far the end of their input is away",
    "lag_seconds": "DStreams do not tell how far the end of their input is away; their delay is shown instead",
    "watermark": "DStreams know no event time",
    "watermark_gap_ms": "DStreams know no event time",
    "state_rows": "DStreams do not count their state",
    "state_bytes": "DStreams do not count their state",
}
"""What is not known of DStreams, and why."""


def run_state(
    run_status: RunStatus, measurements: Measurements, topology: Topology, now: datetime | None = None
) -> dict[str, Any]:
    """Everything about now."""
    at = now or datetime.now(UTC)
    statuses = run_status.queries()
    dead = dict(run_status.dead())
    queries = [_query(one, run_status, measurements, topology, dead, at) for one in statuses]
    phase, reasons = run_phase(statuses, measurements, topology, at)
    flow = FlowRates(
        topology, queries, {one.query: _newest_with_rows(run_status.history(one.query)) for one in statuses}
    )
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
    known = {one.query: one for one in statuses if topology.query(one.query).writes}
    failed = [f"query {one.query} failed: {_message(one.error)}" for one in known.values() if one.phase is Phase.FAILED]
    if measurements.failure and not failed:
        failed.append(measurements.failure)
    if failed:
        return "failed", failed
    again = [f"query {one.query}: {one.restart.sentence(now)}" for one in known.values() if one.restart]
    if again and not measurements.over:
        return "restarting", again
    if measurements.over or (known and all(one.phase is Phase.STOPPED for one in known.values()) and topology.planned):
        return "stopped", ["every query has ended" if known else "the run has ended"]
    waiting = [one.name for one in topology.queries if one.writes and one.name not in known]
    waiting += [one.query for one in known.values() if one.phase is Phase.STARTING]
    if waiting:
        return "starting", [measurements.doing or f"waiting for {', '.join(dict.fromkeys(waiting))}"]
    if not known:
        return "starting", [measurements.doing or "no query has been started yet"]
    return "running", []


def batches_of(history: Iterable[BatchProgress]) -> list[BatchProgress]:
    """The batches that did something."""
    return [one for one in history if one.executed]


def _query(
    one: QueryStatus,
    run_status: RunStatus,
    measurements: Measurements,
    topology: Topology,
    dead: Mapping[str, int],
    now: datetime,
) -> dict[str, Any]:
    expected, last = topology.query(one.query), one.last
    done = batches_of(run_status.history(one.query))
    batch = done[-1] if done else None
    lag = measurements.lag(one.query) or Lag(last.lag if last else None)
    burials = sum(dead.get(source, 0) for source in expected.sources)
    return {
        "name": one.query,
        "table": expected.table,
        "phase": one.phase.value,
        "doing": one.doing,
        "batches": one.batches,
        "rows": one.rows,
        "late": one.late_rows,
        **_rates(one, done, measurements, topology, at=now),
        "batch_ms": batch.milliseconds if batch else None,
        "waited_ms": batch.waited if batch else None,
        "delay_ms": batch.delay if batch else None,
        "busy": _busy(one, done, now) if expected.batches else None,
        "lag": lag.records,
        "lag_seconds": lag.seconds,
        "lag_why": lag.why,
        "watermark": milliseconds(last.watermark) if last and last.watermark else None,
        "watermark_gap_ms": _gap(last, now),
        "state_rows": last.state_rows if last else None,
        "state_bytes": last.state_bytes if last else None,
        "sink_rows": batch.sink_rows if batch else None,
        "since": milliseconds(one.since),
        "silence": idle_reason(IdleFacts(one, expected, batch, lag.records, burials, now)),
        "error": error_fields(one.error),
        "restart": one.restart.sentence(now) if one.restart else None,
        "restarts": one.restarts,
        "why": _CLASSIC if batch and batch.waited is not None else {},
    }


def _rates(
    one: QueryStatus, done: list[BatchProgress], measurements: Measurements, topology: Topology, *, at: datetime
) -> dict[str, float | None]:
    """Rows a second: in, worked on, out. Where Spark seldom tells, Kafka's topics do."""
    expected = topology.query(one.query)
    if one.phase.idle:
        return {"in_rate": 0.0, "rate": 0.0, "out_rate": 0.0}
    topics = [edge.topic for edge in topology.edges if edge.query == one.query and edge.topic]
    written = total_known(measurements.rate(topic) for topic in dict.fromkeys(topics))
    if not expected.batches:
        return {
            "in_rate": total_known(map(measurements.rate, topology.read_by(one.query))),
            "rate": None,
            "out_rate": written,
        }
    found = rates(done, at, expected.every)
    out = found.written if found else None
    return {
        "in_rate": found.read if found else None,
        "rate": done[-1].rate if done else None,
        "out_rate": written if out is None else out,
    }


def _busy(one: QueryStatus, done: list[BatchProgress], now: datetime) -> float:
    """The share of the last seconds in which batches were at work, the one that is at work now included."""
    start = now - timedelta(seconds=RATE_WINDOW_S)
    spent = 0.0
    for batch in reversed(done):
        if batch_end(batch) < start:
            break
        spent += max(0.0, (min(batch_end(batch), now) - max(batch.at, start)).total_seconds())
    if one.phase is Phase.RUNNING:
        last = batch_end(done[-1]) if done else one.since
        spent += max(0.0, (now - max(last, start, one.since)).total_seconds())
    return round(min(1.0, spent / RATE_WINDOW_S), 3)


def _gap(last: BatchProgress | None, now: datetime) -> int | None:
    return milliseconds(now) - milliseconds(last.watermark) if last and last.watermark else None


def _message(error: MillraceError | None) -> str:
    return error.message if error else "nobody knows why"


def _newest_with_rows(history: Sequence[BatchProgress]) -> BatchProgress | None:
    """The newest batch that read something: those between, which only move a watermark, tell nothing of the sources."""
    return next((one for one in reversed(history) if one.input_rows), None)


def _figures(
    queries: list[dict[str, Any]], dead: Mapping[str, int], flow: FlowRates, *, failed: bool
) -> dict[str, Any]:
    errors = sum(one["error"] is not None for one in queries)
    return {
        "in_rate": flow.read(),
        "out_rate": total_known(one["out_rate"] for one in queries if flow.topology.query(one["name"]).writes),
        "lag": most_known(one["lag"] for one in queries),
        "lag_seconds": most_known(one["lag_seconds"] for one in queries),
        "watermark_gap_ms": most_known(one["watermark_gap_ms"] for one in queries),
        "errors": errors or int(failed),
        "dead": sum(dead.values()),
        "late": sum(one["late"] for one in queries),
    }
