"""What is measured beside Spark's own progress.

- `Measurements`: the lag of queries, the growth of topics, what the process uses.
- `ProcessMeter`: what this process and those of Spark use of the machine.
- `OutstandingAnswers`: whether Kafka answers; the one who asks notes it, all others see for how long nothing came back.
- `Sampler`: a thread that calls a function at an interval until it is closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one query; None where it cannot be known, with the reason."""

    records: int | None = None
    seconds: float | None = None
    partitions: Mapping[str, int | None] | None = None
    """Records by `topic/partition`."""
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process, Spark's JVM and its Python workers use."""

    cpu: float | None = None
    """Cores that are busy for all of them together."""
    memory: int | None = None
    jvm_memory: int | None = None
    threads: int | None = None


class Measurements:
    """The newest of each; thread-safe, since each is replaced as a whole."""

    def __init__(self) -> None:
        self._lags: dict[str, Lag] = {}
        self._rates: dict[str, float] = {}
        self.usage = Usage()
        self.doing = ""
        """What a run does before it has queries, in words."""
        self.failure: str | None = None
        """Why the run has failed, when it is not a query that did."""
        self.over = False

    def put_lag(self, query: str, lag: Lag) -> None:
        self._lags[query] = lag

    def put_rates(self, rates: Mapping[str, float]) -> None:
        """Set the records a second that come into each topic."""
        self._rates = dict(rates)

    def lag(self, query: str) -> Lag | None:
        """Return the lag of a query, if it was measured."""
        return self._lags.get(query)

    def rate(self, topic: str) -> float | None:
        """Return the records a second that come into a topic, if they were measured."""
        return self._rates.get(topic)


PROCESS_INTERVAL_S = 1.0
_JVM = "org.apache.spark.deploy.SparkSubmit"
_WORKER_HOST = "millrace.engine.session.worker_host"


class ProcessMeter:
    """Keeps the processes between two calls, since their use of the processor is measured between calls."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements
        self._own = psutil.Process()
        self._own.cpu_percent()
        self._roots: dict[str, psutil.Process] = {}
        """The JVM, and the process that forks its Python workers, by what they run."""
        self._processes: dict[int, psutil.Process] = {}

    def look(self) -> None:
        with suppress(psutil.Error):
            self._find_roots()
            cpu = self._own.cpu_percent() + self._cpu_of_spark()
            memory, threads = self._own.memory_info().rss, self._own.num_threads()
            self._measurements.usage = Usage(round(cpu / 100, 3), memory, self._memory_of_jvm(), threads)

    def _find_roots(self) -> None:
        self._roots = {program: process for program, process in self._roots.items() if process.is_running()}
        if len(self._roots) < len((_JVM, _WORKER_HOST)):
            for child in self._own.children(recursive=True):
                with suppress(psutil.Error):
                    command = child.cmdline()
                    for program in (_JVM, _WORKER_HOST):
                        if program in command:  # a fork has the command of its parent, which comes first
                            self._roots.setdefault(program, child)

    def _cpu_of_spark(self) -> float:
        """Return the use by the JVM and the Python workers, which it or the worker host has started."""
        processes: dict[int, psutil.Process] = {}
        for root in self._roots.values():
            with suppress(psutil.Error):
                processes |= {process.pid: process for process in [root, *root.children(recursive=True)]}
        self._processes = {pid: self._processes.get(pid, process) for pid, process in processes.items()}
        total = 0.0
        for process in self._processes.values():
            with suppress(psutil.Error):
                total += process.cpu_percent()
        return total

    def _memory_of_jvm(self) -> int | None:
        with suppress(psutil.Error):
            return self._roots[_JVM].memory_info().rss if _JVM in self._roots else None
        return None


ANSWER_TIMEOUT_S = 10.0
"""Without an answer for this long, Kafka counts as silent."""


@dataclass(frozen=True, slots=True)
class OverdueAnswer:
    """An answer that has not come."""

    address: str
    seconds: float

    def __str__(self) -> str:
        return f"Kafka at {self.address} has not answered for {self.seconds:.0f} s"


class OutstandingAnswers:
    """Thread-safe: one thread asks Kafka, others look."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] | None = None

    def asked(self, address: str, now: float | None = None) -> None:
        """Note a request; while an earlier one has no answer, the earlier one counts."""
        self._asked = self._asked or (address, time.monotonic() if now is None else now)

    def came(self) -> None:
        """Note that Kafka has answered, also with an error."""
        self._asked = None

    def missing(self, now: float | None = None) -> OverdueAnswer | None:
        """Return the request that has been open for too long."""
        if (asked := self._asked) is None:
            return None
        waited = (time.monotonic() if now is None else now) - asked[1]
        return OverdueAnswer(asked[0], waited) if waited > ANSWER_TIMEOUT_S else None


def answer_change(before: OverdueAnswer | None, now: OverdueAnswer | None) -> str | None:
    """Return the line to print when answers stop, or come again."""
    if now and not before:
        return f"Kafka at {now.address} does not answer; the run waits for it"
    return f"Kafka at {before.address} answers again" if before and not now else None


_CLOSE_TIMEOUT_S = 2.0
_log = logging.getLogger(__name__)


class Sampler:
    """Calls a function at once and then every `every` seconds; what fails is tried again at the next call."""

    def __init__(self, name: str, look: Callable[[], None], every: float, *, last: bool = True) -> None:
        """`last`: call it once more at the end."""
        self._name = name
        self._look = look
        self._every = every
        self._last = last
        self._warned = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler-{name}", daemon=True)

    def start(self) -> Sampler:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop; a call that takes long is not waited for."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        self.call()
        while not self._stop.wait(self._every):
            self.call()
        if self._last:
            self.call()

    def call(self) -> None:
        """Call the function now; a failure is logged."""
        # The figures must not end because one call failed; the run itself does not depend on them.
        try:
            self._look()
        except Exception as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            _log.log(level, "the dashboard's %s cannot be updated: %r", self._name, error)
            self._warned = True
