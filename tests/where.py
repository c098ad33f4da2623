"""Where the time of a test run goes: `make test ARGS=--where`.

While a test runs, a thread looks at the test's stack many times a second. The outermost known function says what the
test waits for. The report adds this up for the whole run and for each file.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import FrameType

import pytest

from scheduling import record

_SAMPLE_INTERVAL_S = 0.02
_PROPERTY = "where"
_SLOWEST_FILES = 40
_WAITS: tuple[tuple[str, str, str], ...] = (
    # What it is called, a part of the file's path, and the function (empty: any). The first row that matches counts.
    ("Spark session", "session/session.py", "open_session"),
    ("Spark session", "session/session.py", "close_session"),
    ("class archive", "session/class_archive.py", ""),
    ("command line", "tests/conftest.py", "__call__.millrace"),
    ("broker", "services/kafka.py", ""),
    ("Cassandra", "services/cassandra.py", ""),
    ("Cassandra", "clients/cassandra.py", ""),
    ("Cassandra", "cassandra/cluster.py", ""),
    ("other services", "services/lifecycle.py", ""),
    ("other services", "services/process.py", ""),
    ("other services", "tests/emulator.py", ""),
    ("other services", "tests/standalone.py", ""),
    ("Kafka groups", "checkpoints/run_lease.py", ""),
    ("Kafka groups", "kafka/consumer_groups.py", ""),
    ("Kafka transactions", "kafka/transactions.py", ""),
    ("Kafka, other", "clients/kafka/", ""),
    ("query start", "supervision/supervisor.py", "start"),
    ("batches", "supervision/supervisor.py", "wait"),
    ("DStreams batches", "pyspark/streaming/context.py", ""),
    ("browser", "playwright/", ""),
    ("child processes", "subprocess.py", ""),
    ("Spark calls", "py4j/", ""),
)


class _Sampler(threading.Thread):
    """Counts what a thread waits for, as long as it is `on`."""

    def __init__(self, watched: int) -> None:
        super().__init__(name="where", daemon=True)
        self._watched = watched
        self.on = threading.Event()
        self.counted: Counter[str] = Counter()

    def run(self) -> None:
        while True:
            self.on.wait()
            begun = time.perf_counter()
            time.sleep(_SAMPLE_INTERVAL_S)
            frame = sys._current_frames().get(self._watched)
            self.counted[_waits_for(frame)] += round(1000 * (time.perf_counter() - begun))


def _waits_for(frame: FrameType | None) -> str:
    waits_for = "the test itself"
    while frame is not None:
        waits_for = _known(frame) or waits_for
        frame = frame.f_back
    return waits_for


def _known(frame: FrameType) -> str:
    name, function = frame.f_code.co_filename, frame.f_code.co_name
    for wait, file, wanted in _WAITS:
        if file in name and (not wanted or function == wanted or _is_command_line(frame, wanted)):
            return wait
    return ""


def _is_command_line(frame: FrameType, wanted: str) -> bool:
    own = frame.f_locals.get("self")
    return wanted == "__call__.millrace" and type(own).__name__ == "CommandLine"


class WherePlugin:
    """Measures in each process and reports in the one that a person sees."""

    def __init__(self) -> None:
        self._sampler = _Sampler(threading.get_ident())
        self._sampler.start()
        self._files: dict[str, float] = defaultdict(float)
        self._waits: dict[str, Counter[str]] = defaultdict(Counter)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._sampler.counted.clear()
        self._sampler.on.set()
        try:
            return (yield)
        finally:
            self._sampler.on.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        report.user_properties = [*report.user_properties, (_PROPERTY, dict(self._sampler.counted))]
        self._sampler.counted.clear()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._files[file] += report.duration
        for name, value in report.user_properties:
            if name == _PROPERTY and isinstance(value, dict):
                self._waits[file].update(value)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("where the time goes")
        total: Counter[str] = Counter()
        for waits in self._waits.values():
            total.update(waits)
        for wait, milliseconds in total.most_common():
            write(f"{milliseconds / 1000:8.1f} s  {wait}")
        write("")
        for file, seconds in sorted(self._files.items(), key=lambda each: -each[1])[:_SLOWEST_FILES]:
            most = ", ".join(f"{wait} {ms / 1000:.1f}" for wait, ms in self._waits[file].most_common(3))
            write(f"{seconds:8.1f} s  {file}: {most}")
        if terminalreporter.config.getoption("record_durations"):
            record(self._files)
