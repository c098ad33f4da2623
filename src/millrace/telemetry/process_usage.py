"""What this process and Spark's JVM use of the machine."""

from __future__ import annotations

from contextlib import suppress

import psutil

from millrace.telemetry.measurements import Measurements, Usage

PROCESS_INTERVAL_S = 1.0
_SPARK = "org.apache.spark.deploy.SparkSubmit"


class ProcessMeter:
    """Keeps the processes between two calls, since their use of the processor is measured between calls."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements
        self._own = psutil.Process()
        self._own.cpu_percent()
        self._jvm: psutil.Process | None = None
        self._workers: dict[int, psutil.Process] = {}

    def look(self) -> None:
        with suppress(psutil.Error):
            cpu = self._own.cpu_percent() + self._cpu_of_spark()
            memory, threads = self._own.memory_info().rss, self._own.num_threads()
            self._measurements.usage = Usage(round(cpu / 100, 3), memory, self._memory_of_jvm(), threads)

    def _cpu_of_spark(self) -> float:
        """Return the use by the JVM and the Python workers that it has started."""
        if self._jvm is None or not self._jvm.is_running():
            self._jvm = _spark_jvm(self._own)
        if self._jvm is None:
            return 0.0
        processes = {process.pid: process for process in [self._jvm, *self._jvm.children(recursive=True)]}
        self._workers = {pid: self._workers.get(pid, process) for pid, process in processes.items()}
        total = 0.0
        for process in self._workers.values():
            with suppress(psutil.Error):
                total += process.cpu_percent()
        return total

    def _memory_of_jvm(self) -> int | None:
        with suppress(psutil.Error):
            return self._jvm.memory_info().rss if self._jvm else None
        return None


def _spark_jvm(parent: psutil.Process) -> psutil.Process | None:
    for child in parent.children(recursive=True):
        with suppress(psutil.Error):
            if "java" in child.name() and _SPARK in child.cmdline():
                return child
    return None
