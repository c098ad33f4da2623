"""A run hangs, another goes on in its place, and the first wakes up: it writes nothing more and says why it ends."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson
import psutil
import pytest

from cli.conftest import Start
from conftest import CommandLine, committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.dead_letters.store import letters_in_topics
from millrace.telemetry.query_status import RunStatus

RECORDS = 900
BAD = range(7, RECORDS, 100)
PIPELINE = """
import os, pathlib, sys, time
import millrace as mr
from millrace.connectors.kafka import exactly_once
from millrace.connectors.base.batch_tasks import task_arguments, task_number
from pyspark import TaskContext
from pyspark.cloudpickle import register_pickle_by_value

HALT = os.environ.get("HALT")


def through(frame, ledger):
    write = exactly_once.TransactionalWriter(ledger)

    def rows(batches):
        yield from batches
        task = TaskContext.get()
        if task_arguments(task)["batch"] == 2 and task_number(task)[0] == 1:  # its rows are in an open transaction
            pathlib.Path(HALT, "halted").touch()
            while not pathlib.Path(HALT, "go").exists():
                time.sleep(0.01)

    return frame.mapInArrow(lambda batches: write(rows(batches)), "rows bigint")


if HALT:
    register_pickle_by_value(sys.modules[__name__])
    exactly_once.with_transactional_writer = through

pipeline = mr.Pipeline("NAME")
pipeline.source("events", mr.kafka("TOPIC", schema="id int", max_per_batch=100))
pipeline.sql("copy", "SELECT string(id) AS value FROM events")
pipeline.sink("copy", mr.kafka("TOPIC-out", format="text"))
"""


class Frozen:
    """A run whose processes (ours, Spark's, its workers') all stand still, as on a machine that hangs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._stopped: list[psutil.Process] = []

    def __enter__(self) -> Frozen:
        """Until none is left that was born meanwhile."""
        parent = psutil.Process(self._process.pid)
        while found := [one for one in (parent, *parent.children(recursive=True)) if one not in self._stopped]:
            for one in found:
                one.suspend()
            self._stopped += found
        return self

    def __exit__(self, *_: object) -> None:
        self.thaw()

    def thaw(self) -> None:
        """Let them all go on."""
        for one in self._stopped:
            if one.is_running():
                one.resume()
        self._stopped.clear()


@pytest.fixture
def file(millrace: CommandLine, cluster: Cluster, topic: str) -> Path:
    """A pipeline whose topic is full, with some records that nobody can read."""
    producer = Producer(cluster, topic)
    values = [b"bad %d" % one if one in BAD else orjson.dumps({"id": one}) for one in range(RECORDS)]
    producer.send([Record(value, partition=number % 3) for number, value in enumerate(values)])
    producer.close()
    path = millrace.folder / "pipeline.py"
    path.write_text(PIPELINE.replace("TOPIC", topic).replace("NAME", f"zombie-{topic}"))
    return path


def is_exact(cluster: Cluster, topic: str) -> bool:
    found = Counter(int(one.value() or b"-1") for one in committed(cluster, f"{topic}-out"))
    return found == Counter({*range(RECORDS)} - {*BAD})


@pytest.mark.chaos
@pytest.mark.parametrize("lives", [True, False], ids=["the second still runs", "the second has ended"])
def test_who_wakes_up_writes_nothing(
    start: Start,
    millrace: CommandLine,
    file: Path,
    cluster: Cluster,
    topic: str,
    run_pipeline: Callable[..., RunStatus],
    *,
    lives: bool,
) -> None:
    folder = millrace.folder
    millrace.environment["HALT"] = str(folder)
    first = start("run", file.name, "--no-dashboard", "--state", "state")
    while not (folder / "halted").exists() and first.poll() is None:
        time.sleep(0.02)
    with Frozen(first) as frozen:
        # The disk of a machine that hangs is given to another one, as orchestrators do.
        shutil.copytree(folder / "state", folder / "copied")
        woken = False

        def over() -> bool:
            nonlocal woken
            if not woken and is_exact(cluster, topic):
                (folder / "go").touch()
                frozen.thaw()
                woken = True
            return woken and first.poll() is not None

        run_pipeline(file, folder / "copied", until=over if lives else None)
        assert is_exact(cluster, topic)
        (folder / "go").touch()
        frozen.thaw()
        told = " ".join(first.communicate(timeout=90)[1].decode().split())  # a terminal's lines are broken anywhere
    assert first.returncode == 2, told
    assert "state.mismatch" in told
    # Whichever it meets first: the other run, or what that has written.
    assert "older than what was written" in told or (lives and "runs already" in told)
    assert is_exact(cluster, topic)
    letters = [found.letter.value for found in letters_in_topics(cluster, [f"{topic}.dead"])]
    assert sorted(map(bytes, letters)) == sorted(b"bad %d" % one for one in BAD)
