"""The figures of a run in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from millrace.telemetry.metrics import Health
from millrace.telemetry.query_status import Phase

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_Kind = Literal["counter", "gauge"]
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class _Figure(NamedTuple):
    name: str
    help: str
    key: str
    factor: float = 1.0
    kind: _Kind = "gauge"


_QUERY = (
    _Figure("batches_total", "Batches that did something.", "batches", kind="counter"),
    _Figure("input_rows_total", "Rows read.", "rows", kind="counter"),
    _Figure("restarts_total", "Restarts after a failure.", "restarts", kind="counter"),
    _Figure("late_rows_total", "Records that came after the watermark and were dropped.", "late", kind="counter"),
    _Figure("input_rows_per_second", "Rows a second that arrived.", "in_rate"),
    _Figure("processed_rows_per_second", "Rows a second that were worked on.", "rate"),
    _Figure("output_rows_per_second", "Rows a second that came out.", "out_rate"),
    _Figure("batch_seconds", "How long the newest batch took.", "batch_ms", 0.001),
    _Figure("scheduling_delay_seconds", "How long the newest batch waited to begin (DStreams).", "waited_ms", 0.001),
    _Figure("total_delay_seconds", "From when the newest batch was due to its end (DStreams).", "delay_ms", 0.001),
    _Figure("busy_ratio", "Share of the last ten seconds in which batches were at work.", "busy"),
    _Figure("lag_records", "Records that wait in Kafka.", "lag"),
    _Figure("lag_seconds", "Age of the oldest record that waits in Kafka.", "lag_seconds"),
    _Figure("watermark_gap_seconds", "How far the watermark is behind the clock.", "watermark_gap_ms", 0.001),
    _Figure("state_rows", "Rows of state.", "state_rows"),
    _Figure("state_bytes", "Bytes of state in memory.", "state_bytes"),
)
_PROCESS = (
    _Figure("process_cpu_cores", "Cores that this process and Spark keep busy.", "cpu"),
    _Figure("process_memory_bytes", "Memory of this process.", "memory"),
    _Figure("jvm_memory_bytes", "Memory of Spark's JVM.", "jvm_memory"),
    _Figure("process_threads", "Threads of this process.", "threads"),
)


def to_text(state: Mapping[str, Any], health: Health) -> str:
    """Return every figure that is known; one that is not known is left out."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_RunCollector(state, health))
    return generate_latest(registry).decode()


@dataclass(eq=False)
class _RunCollector(Collector):
    state: Mapping[str, Any]
    health: Health

    def collect(self) -> Iterator[Metric]:
        queries = self.state.get("queries", ())
        healthy = "1 while every query works: none has failed or is being restarted."
        yield from _family("healthy", healthy, [({}, self.health.healthy)])
        yield from _family("ready", "1 when every query has begun.", [({}, self.health.ready)])
        phases = [
            ({"query": query["name"], "phase": phase}, query["phase"] == phase) for query in queries for phase in Phase
        ]
        yield from _family("query_phase", "1 for the phase in which a query is.", phases)
        for figure in _QUERY:
            values = [({"query": query["name"]}, query.get(figure.key)) for query in queries]
            yield from _family(f"query_{figure.name}", figure.help, values, figure.factor, figure.kind)
        dead = [({"source": source}, count) for source, count in self.state.get("dead", {}).items()]
        yield from _family("dead_letters_total", "Records that could not be used.", dead, kind="counter")
        for figure in _PROCESS:
            value = self.state.get("process", {}).get(figure.key)
            yield from _family(figure.name, figure.help, [({}, value)], figure.factor, figure.kind)


_Values = Iterable[tuple[Mapping[str, str], float | None]]


def _family(name: str, meaning: str, values: _Values, factor: float = 1.0, kind: _Kind = "gauge") -> Iterator[Metric]:
    samples = [(labels, value * factor) for labels, value in values if value is not None]
    if not samples:
        return
    family = _FAMILIES[kind](f"millrace_{name}", meaning, labels=list(samples[0][0]))
    for labels, value in samples:
        family.add_metric(list(labels.values()), float(value))
    yield family
