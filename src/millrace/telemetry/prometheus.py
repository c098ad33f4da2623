"""The same figures in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from millrace.telemetry.metrics import Health

TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PHASES = ("starting", "running", "waiting", "restarting", "stopped", "failed")


class _Metric(NamedTuple):
    name: str
    kind: str
    help: str
    key: str
    factor: float = 1.0


_QUERY = (
    _Metric("batches_total", "counter", "Batches that did something.", "batches"),
    _Metric("input_rows_total", "counter", "Rows read.", "rows"),
    _Metric("restarts_total", "counter", "Restarts after a failure.", "restarts"),
    _Metric("late_rows_total", "counter", "Rows that came after the watermark and were dropped.", "late"),
    _Metric("input_rows_per_second", "gauge", "Rows a second that arrived.", "in_rate"),
    _Metric("processed_rows_per_second", "gauge", "Rows a second that were worked on.", "rate"),
    _Metric("output_rows_per_second", "gauge", "Rows a second that came out.", "out_rate"),
    _Metric("batch_seconds", "gauge", "How long the newest batch took.", "batch_ms", 0.001),
    _Metric(
        "scheduling_delay_seconds", "gauge", "How long the newest batch waited to begin (DStreams).", "waited_ms", 0.001
    ),
    _Metric(
        "total_delay_seconds", "gauge", "From when the newest batch was due to its end (DStreams).", "delay_ms", 0.001
    ),
    _Metric("busy_ratio", "gauge", "Share of the last ten seconds in which batches were at work.", "busy"),
    _Metric("lag_records", "gauge", "Records that wait in Kafka.", "lag"),
    _Metric("lag_seconds", "gauge", "Age of the oldest record that waits in Kafka.", "lag_seconds"),
    _Metric("watermark_gap_seconds", "gauge", "How far the watermark is behind the clock.", "watermark_gap_ms", 0.001),
    _Metric("state_rows", "gauge", "Rows of state.", "state_rows"),
    _Metric("state_bytes", "gauge", "Bytes of state in memory.", "state_bytes"),
)
_PROCESS = (
    _Metric("process_cpu_cores", "gauge", "Cores that this process and Spark keep busy.", "cpu"),
    _Metric("process_memory_bytes", "gauge", "Memory of this process.", "memory"),
    _Metric("jvm_memory_bytes", "gauge", "Memory of Spark's JVM.", "jvm_memory"),
    _Metric("process_threads", "gauge", "Threads of this process.", "threads"),
)


def text(state: Mapping[str, Any], health: Health) -> str:
    """Every figure that is known; one that is not known is left out."""
    return "".join(f"{line}\n" for line in _lines(state, health))


def _lines(state: Mapping[str, Any], health: Health) -> Iterator[str]:
    yield from _family(
        "healthy", "gauge", "1 while every query works: none is dead or being restarted.", [({}, int(health.healthy))]
    )
    yield from _family("ready", "gauge", "1 when every query has begun.", [({}, int(health.ready))])
    queries = state.get("queries", ())
    phases = [
        ({"query": one["name"], "phase": phase}, int(one["phase"] == phase)) for one in queries for phase in _PHASES
    ]
    yield from _family("query_phase", "gauge", "1 for the phase in which a query is.", phases)
    for metric in _QUERY:
        labelled = [({"query": one["name"]}, _scaled(one.get(metric.key), metric.factor)) for one in queries]
        yield from _family(f"query_{metric.name}", metric.kind, metric.help, labelled)
    dead = [({"source": source}, count) for source, count in state.get("dead", {}).items()]
    yield from _family("dead_letters_total", "counter", "Records that could not be used.", dead)
    for metric in _PROCESS:
        value = _scaled(state.get("process", {}).get(metric.key), metric.factor)
        yield from _family(metric.name, metric.kind, metric.help, [({}, value)])


def _family(
    name: str, kind: str, meaning: str, values: Iterable[tuple[Mapping[str, str], float | None]]
) -> Iterator[str]:
    known = [(labels, value) for labels, value in values if value is not None]
    if not known:
        return
    yield f"# HELP millrace_{name} {meaning}"
    yield f"# TYPE millrace_{name} {kind}"
    for labels, value in known:
        inside = ",".join(f'{label}="{_escaped(one)}"' for label, one in labels.items())
        yield f"millrace_{name}{{{inside}}} {value}" if inside else f"millrace_{name} {value}"


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value if factor == 1.0 else value * factor


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
