"""What the benchmarks share: a broker for the time of a run, a command with its time and CPU, medians."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.clients.kafka.cluster import Cluster
from millrace.services.kafka import KafkaCluster

MILLRACE = Path(sys.executable).parent / "millrace"


@dataclass(frozen=True)
class Took:
    """Seconds on the clock and on the processor."""

    wall: float
    cpu: float


@contextmanager
def broker() -> Iterator[Cluster]:
    """A new broker in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder, KafkaCluster(Path(folder)) as cluster:
        yield cluster


def run(*command: str | Path) -> Took:
    """Run a command to its end; it must succeed."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(figures: list[float]) -> float:
    """The figure in the middle: one slow run does not count."""
    return statistics.median(figures)
