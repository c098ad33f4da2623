"""The figures of a run in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from millrace.telemetry.metrics import Health
from millrace.telemetry.query_status import Phase

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _Figure(NamedTuple):
    name: str
    kind: str
    help: str
    key: str
    factor: float = 1.0


_QUERY = (
    _Figure("batches_total", "counter", "Batches that did something.", "batches"),
    _Figure("input_rows_total", "counter", "Rows read.", "rows"),
    _Figure("restarts_total", "counter", "Restarts after a failure.", "restarts"),
    _Figure("late_rows_total", "counter", "Rows that came after the watermark and were dropped.", "late"),
    _Figure("input_rows_per_second", "gauge", "Rows a second that arrived.", "in_rate"),
    _Figure("processed_rows_per_second", "gauge", "Rows a second that were worked on.", "rate"),
    _Figure("output_rows_per_second", "gauge", "Rows a second that came out.", "out_rate"),
    _Figure("batch_seconds", "gauge", "How long the newest batch took.", "batch_ms", 0.001),
    _Figure(
        "scheduling_delay_seconds", "gauge", "How long the newest batch waited to begin (DStreams).", "waited_ms", 0.001
    ),
    _Figure(
        "total_delay_seconds", "gauge", "From when the newest batch was due to its end (DStreams).", "delay_ms", 0.001
    ),
    _Figure("busy_ratio", "gauge", "Share of the last ten seconds in which batches were at work.", "busy"),
    _Figure("lag_records", "gauge", "Records that wait in Kafka.", "lag"),
    _Figure("lag_seconds", "gauge", "Age of the oldest record that waits in Kafka.", "lag_seconds"),
    _Figure("watermark_gap_seconds", "gauge", "How far the watermark is behind the clock.", "watermark_gap_ms", 0.001),
    _Figure("state_rows", "gauge", "Rows of state.", "state_rows"),
    _Figure("state_bytes", "gauge", "Bytes of state in memory.", "state_bytes"),
)
_PROCESS = (
    _Figure("process_cpu_cores", "gauge", "Cores that this process and Spark keep busy.", "cpu"),
    _Figure("process_memory_bytes", "gauge", "Memory of this process.", "memory"),
    _Figure("jvm_memory_bytes", "gauge", "Memory of Spark's JVM.", "jvm_memory"),
    _Figure("process_threads", "gauge", "Threads of this process.", "threads"),
)


def to_text(state: Mapping[str, Any], health: Health) -> str:
    """Return every figure that is known; one that is not known is left out."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_RunCollector(state, health))
    return generate_latest(registry).decode()


class _RunCollector(Collector):
    def __init__(self, state: Mapping[str, Any], health: Health) -> None:
        self._state = state
        self._health = health

    def collect(self) -> Iterator[Metric]:
        health, queries = self._health, self._state.get("queries", ())
        healthy = "1 while every query works: none has failed or is being restarted."
        yield from _family("healthy", "gauge", healthy, [({}, health.healthy)])
        yield from _family("ready", "gauge", "1 when every query has begun.", [({}, health.ready)])
        phases = [
            ({"query": query["name"], "phase": phase}, query["phase"] == phase) for query in queries for phase in Phase
        ]
        yield from _family("query_phase", "gauge", "1 for the phase in which a query is.", phases)
        for figure in _QUERY:
            values = [({"query": query["name"]}, _scaled(query.get(figure.key), figure.factor)) for query in queries]
            yield from _family(f"query_{figure.name}", figure.kind, figure.help, values)
        dead = [({"source": source}, count) for source, count in self._state.get("dead", {}).items()]
        yield from _family("dead_letters_total", "counter", "Records that could not be used.", dead)
        for figure in _PROCESS:
            value = _scaled(self._state.get("process", {}).get(figure.key), figure.factor)
            yield from _family(figure.name, figure.kind, figure.help, [({}, value)])


def _family(
    name: str, kind: str, meaning: str, values: Iterable[tuple[Mapping[str, str], float | None]]
) -> Iterator[Metric]:
    samples = [(labels, value) for labels, value in values if value is not None]
    if not samples:
        return
    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = make(f"millrace_{name}", meaning, labels=list(samples[0][0]))
    for labels, value in samples:
        family.add_metric(list(labels.values()), float(value))
    yield family


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
