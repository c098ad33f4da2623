"""`millrace demo` shows what arrives and stops what it started."""

from __future__ import annotations

import signal

from conftest import CommandLine
from millrace.services import kafka


def test_runs_for_its_time_and_stops_its_broker(offline_millrace: CommandLine) -> None:
    said = offline_millrace("demo", "--for", "3s", "--rate", "200/s")
    assert "records are in topic 'posts'" in said.stderr
    assert kafka.running(offline_millrace.folder / ".millrace" / "kafka") is None


def test_uses_a_named_cluster_and_ends_on_ctrl_c(millrace: CommandLine) -> None:
    with millrace.start("demo", "--for", "10m") as process:
        assert process.stderr is not None
        while b"records in the topic" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
