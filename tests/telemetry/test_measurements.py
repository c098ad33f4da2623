"""What the run's processes use of the machine."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from millrace.telemetry.measurements import Measurements, ProcessMeter

_HOST = "the worker host of this test"
_HOST_OF_A_BUSY_WORKER = """
import os, signal, sys
workers = []
for busy in (True, False):
    workers.append(os.fork())
    while not workers[-1]:
        busy or signal.pause()
print("started", flush=True)
sys.stdin.read()
for worker in workers:
    os.kill(worker, 9)
    os.wait()
"""


def test_workers_that_the_worker_host_forked_count_as_sparks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no children of the JVM, and have the command of the host: one that is idle must not stand for all."""
    # The Spark of other tests has both, too.
    monkeypatch.setattr("millrace.telemetry.measurements._WORKER_HOST", _HOST)
    monkeypatch.setattr("millrace.telemetry.measurements._JVM", "no JVM")
    measurements = Measurements()
    meter = ProcessMeter(measurements)
    command = [sys.executable, "-c", _HOST_OF_A_BUSY_WORKER, _HOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout
        assert host.stdout.readline()
        deadline = time.monotonic() + 60
        while (measurements.usage.cpu or 0) < 0.2:
            assert time.monotonic() < deadline, measurements.usage
            time.sleep(0.2)
            meter.look()
        host.communicate()
    assert measurements.usage.jvm_memory is None
