"""The page beside `millrace run` and `millrace exec`, as a user starts it."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from conftest import CommandLine

PIPELINE = """\
name: ticking
sources:
  ticks: {rate: 20}
tables:
  numbers: SELECT value FROM ticks
sinks:
  - {from: numbers, memory: numbers}
"""
PROGRAM = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").load()
rows.writeStream.format("noop").queryName("mine").start().awaitTermination()
"""


@contextmanager
def started(millrace: CommandLine, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on beside the test, and not after it."""
    with millrace.start(*arguments) as running:
        try:
            yield running
        finally:
            if running.poll() is None:
                running.kill()


def address(running: subprocess.Popen[bytes]) -> str:
    """Where the page is, as it is told on standard error."""
    assert running.stderr
    for line in running.stderr:
        if line.startswith(b"the dashboard is at "):
            return line.decode().split()[-1]
    raise AssertionError("it ended without a page")


def when(page: str, path: str, **wanted: Any) -> dict[str, Any]:
    """Ask until the answer has what is wanted."""
    while True:
        told: dict[str, Any] = httpx.get(f"{page}{path}", timeout=60).json()
        if all(told.get(name) == value for name, value in wanted.items()):
            return told
        time.sleep(0.1)


def test_a_run_has_a_page_from_its_start_to_its_end(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "p.yaml").write_text(PIPELINE)
    with started(offline_millrace, "run", "p.yaml", "--port", "0") as running:
        page = address(running)
        assert httpx.get(f"{page}api/state").json()["phase"] == "starting"
        assert httpx.post(f"{page}api/sql", json={"sql": "SELECT 1"}).status_code == 503
        assert httpx.get(f"{page}api/pipeline").json()["memory"] == ["numbers"]
        when(page, "readyz", ready=True)
        while not (
            rows := httpx.post(f"{page}api/sql", json={"sql": "SELECT value FROM numbers"}, timeout=60)
        ).is_success:
            time.sleep(0.1)
        assert rows.json()["columns"] == ["value"]
        refused = httpx.post(f"{page}api/sql", json={"sql": "DROP TABLE numbers"}, timeout=60)
        assert refused.status_code == 400
        while not (query := httpx.get(f"{page}api/state").json()["queries"][0])["batches"]:
            time.sleep(0.1)
        history = httpx.get(f"{page}api/queries/numbers").json()["history"]
        assert len(history) >= query["batches"] > 0
        assert query["rows"] == sum(row["input_rows"] for row in history[: query["batches"]])
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
    assert running.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(page)


@pytest.mark.long
def test_a_program_has_a_page_when_it_starts_spark(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "job.py").write_text(PROGRAM)
    with started(offline_millrace, "exec", "--port", "0", "job.py") as running:
        page = address(running)
        told = when(page, "api/state", phase="running")
        assert [one["name"] for one in told["queries"]] == ["mine"]
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)


def test_a_port_in_use_is_told_before_anything_starts(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "p.yaml").write_text(PIPELINE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = offline_millrace("run", "p.yaml", "--port", port, code=2).stderr
    assert "port.in-use" in said
    assert not (offline_millrace.folder / ".millrace").exists()


@pytest.mark.long
def test_without_a_page(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "p.yaml").write_text(PIPELINE)
    said = offline_millrace("run", "p.yaml", "--no-dashboard", "--for", "1s").stderr
    assert "the dashboard is at" not in said


@pytest.mark.parametrize("command", ["run", "exec"])
@pytest.mark.parametrize("option", [("--port", "5000"), ("--host", "0.0.0.0"), ("--open",), ("--all-topics",)])  # noqa: S104
def test_options_of_a_page_that_is_left_out_are_refused(
    offline_run: Callable[..., Any], command: str, option: tuple[str, ...]
) -> None:
    said = offline_run(command, "--no-dashboard", *option, "job.py", code=2).err
    assert f"{option[0]} has no effect with --no-dashboard" in said
