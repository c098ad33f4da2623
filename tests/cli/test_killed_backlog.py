"""A backlog whose partitions are far apart in event time: killed runs and a replay count what one batch would."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from cli.conftest import Start
from conftest import CommandLine, committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record

PIPELINE = """
name: backlog-TOPIC
trigger: 1s  # slow enough to be killed three times before all is read; a run until it has caught up does not wait
sources:
  events: {kafka: TOPIC, schema: "at timestamp", max_per_batch: 1500, watermark: [at, 4 seconds]}
tables:
  counted: SELECT unix_timestamp(window.start) AS start, count(*) AS n FROM events GROUP BY window(at, '10 seconds')
sinks:
  - {from: counted, kafka: TOPIC-out}
"""
COUNT = 20_000
LATE = r" late\b"
"""How the summary of a run reports late rows, however few."""


def send(cluster: Cluster, topic: str) -> Counter[int]:
    """Put events into partitions that are busy in turns; return what a batch query counts, by window."""
    chance, expected, records = random.Random(3), Counter[int](), []
    for number in range(COUNT):
        at = 1_767_225_600 + number / 10 - chance.random() * 1.5
        expected[int(at // 10 * 10)] += 1
        records.append(
            Record(
                json.dumps({"at": datetime.fromtimestamp(at, UTC).isoformat()}).encode(),
                partition=number * 6 // COUNT % 3,
            )
        )
    producer = Producer(cluster, topic, Delivery(idempotence=False))
    producer.send(records)
    producer.close()
    del expected[max(expected)]  # which stays open
    return expected


def counted(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    if topic not in cluster.connect().topics:
        return []
    rows = [json.loads(message.value() or b"{}") for message in committed(cluster, topic)]
    return sorted((row["start"], row["n"]) for row in rows)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_windows_are_exact_after_kills_and_in_a_replay(
    millrace: CommandLine, start: Start, cluster: Cluster, topic: str
) -> None:
    (millrace.folder / "pipeline.yaml").write_text(PIPELINE.replace("TOPIC", topic))
    expected = sorted(send(cluster, topic).items())
    for _ in range(3):
        before = len(counted(cluster, f"{topic}-out"))
        process = start("run", "pipeline.yaml", "--no-dashboard")
        while process.poll() is None and before >= len(counted(cluster, f"{topic}-out")) < len(expected):
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(counted(cluster, f"{topic}-out")) < len(expected), "it was ready before the last kill"
    done = millrace("run", "pipeline.yaml", "--until-caught-up", "--no-dashboard")
    assert counted(cluster, f"{topic}-out") == expected
    assert not re.search(LATE, done.stderr)
    replayed = millrace("replay", "pipeline.yaml", "--from", "earliest")
    assert counted(cluster, f"{topic}-out.g2") == expected
    assert not re.search(LATE, replayed.stderr)
