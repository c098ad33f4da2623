"""A pipeline from Kafka to Kafka that is killed at the worst moments: each record is in the output once."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from cli.conftest import Start
from conftest import CommandLine, committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record

RECORDS = 6_000
QUICK = ("--no-dashboard", "--set", "spark.sql.codegen.wholeStage=false")
PIPELINE = """
import os, signal, sys, time
import millrace as mr
from millrace.clients.kafka.transactions import TransactionalProducer
from millrace.connectors.kafka import exactly_once
from millrace.connectors.kafka.sink import KafkaSink
from pyspark.cloudpickle import register_pickle_by_value

FAULT, DRIVER, WRITE = os.environ.get("FAULT"), os.getpid(), KafkaSink.write
CALL_UNTIL_ANSWERED = TransactionalProducer._call_until_answered
register_pickle_by_value(sys.modules[__name__])


def kill():
    os.kill(DRIVER, signal.SIGKILL)
    while True:
        signal.pause()


def call_or_die(producer, call):
    if call.__class__.__name__ != "partial" and call.__name__ == "commit_transaction":
        kill()
    return CALL_UNTIL_ANSWERED(producer, call)


class Killing(exactly_once.TransactionalWriter):
    def write(self, number, batches, *, repeated):
        if FAULT == "between a note and its commit" and number == 1:
            TransactionalProducer._call_until_answered = call_or_die
        return super().write(number, self.fatal(number, batches), repeated=repeated)

    def fatal(self, number, batches):
        yield from batches
        if FAULT == "before a commit" and number == 1:
            kill()
        while FAULT == "between two commits" and number == 1:
            if self.ledger.committed_batch(0).includes(self.query, self.batch):
                kill()
            time.sleep(0.01)


def write(self, frame, batch, context):
    WRITE(self, frame, batch, context)
    if FAULT == "after all commits":
        kill()


exactly_once.TransactionalWriter, KafkaSink.write = Killing, write

pipeline = mr.Pipeline("killed")
pipeline.source("events", mr.kafka("TOPIC", format="text", max_per_batch=600))
pipeline.sql("copy", "SELECT value FROM events")
pipeline.sink("copy", mr.kafka("TOPIC-out", format="text"))
"""


@pytest.fixture
def pipeline(millrace: CommandLine, cluster: Cluster, topic: str) -> Path:
    """The file of a pipeline whose topic is full: each of its partitions, so that a batch has more than one task."""
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number, partition=number % 3) for number in range(RECORDS)])
    producer.close()
    path = millrace.folder / "pipeline.py"
    path.write_text(PIPELINE.replace("TOPIC", topic))
    return path


def is_exact(cluster: Cluster, topic: str) -> None:
    found = Counter(int(one.value() or b"-1") for one in committed(cluster, topic))
    assert found == Counter(range(RECORDS)), f"{len(found)} of {RECORDS}, {found.most_common(3)}"


@pytest.mark.long
@pytest.mark.usefixtures("pipeline")
def test_killed_at_each_point_of_the_protocol(millrace: CommandLine, cluster: Cluster, topic: str) -> None:
    for fault in ("before a commit", "between two commits", "after all commits"):
        millrace("run", "pipeline.py", *QUICK, code=-signal.SIGKILL, FAULT=fault)
    millrace("run", "pipeline.py", "--until-caught-up", *QUICK)
    is_exact(cluster, f"{topic}-out")


@pytest.mark.chaos
@pytest.mark.usefixtures("pipeline")
def test_killed_between_a_note_and_its_commit(millrace: CommandLine, cluster: Cluster, topic: str) -> None:
    """Where Kafka tells nobody what is noted for as long as the transaction is open."""
    millrace("run", "pipeline.py", *QUICK, code=-signal.SIGKILL, FAULT="between a note and its commit")
    millrace("run", "pipeline.py", "--until-caught-up", *QUICK)
    is_exact(cluster, f"{topic}-out")


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_killed_thirty_times(millrace: CommandLine, start: Start, pipeline: Path, cluster: Cluster, topic: str) -> None:
    text = pipeline.read_text()
    pipeline.write_text(text.replace("max_per_batch=600", "max_per_batch=20"))
    offsets = millrace.folder / ".millrace" / "pipelines" / "killed" / "checkpoints" / "copy" / "offsets"

    def newest() -> int:  # not how many there are: Spark removes the oldest
        return max((int(one.name) for one in offsets.glob("[0-9]*")), default=-1)

    rng = random.Random()
    for _ in range(30):
        before = newest()
        process = start("run", "pipeline.py", *QUICK)
        while newest() == before and process.poll() is None:
            time.sleep(0.02)
        time.sleep(rng.random() / 2)
        assert process.poll() is None, process.communicate()[1].decode()
        process.kill()
        process.communicate(timeout=60)
    pipeline.write_text(text)
    millrace("run", "pipeline.py", "--until-caught-up", *QUICK)
    is_exact(cluster, f"{topic}-out")
