"""A replay that is killed again and again, and the run that goes on with its generation: each record once."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from cli.conftest import Start
from conftest import CommandLine, committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record

PIPELINE = """
name: killed-TOPIC
sources:
  events: {kafka: TOPIC, format: text, max_per_batch: 250}
tables:
  copied: SELECT value FROM events
sinks:
  - {from: copied, kafka: TOPIC-out, format: text}
"""


def send(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b"%d" % number) for number in numbers])
    producer.close()


def values(cluster: Cluster, topic: str) -> Counter[int]:
    if topic not in cluster.connect().topics:
        return Counter()
    return Counter(int(one.value() or b"-1") for one in committed(cluster, topic))


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_replay_that_is_killed_is_exact_in_the_end(
    millrace: CommandLine, start: Start, cluster: Cluster, topic: str
) -> None:
    (millrace.folder / "pipeline.yaml").write_text(PIPELINE.replace("TOPIC", topic))
    send(cluster, topic, range(10_000))
    out = f"{topic}-out.g2"
    before = 0
    for _ in range(4):
        process = start("replay", "pipeline.yaml", "--from", "earliest")
        while process.poll() is None and sum(values(cluster, out).values()) <= before:
            time.sleep(0.01)
        assert process.poll() is None  # one that had ended would have nothing left to go on with
        process.send_signal(signal.SIGKILL)
        process.wait()
        before = sum(values(cluster, out).values())
    send(cluster, topic, range(10_000, 12_000))
    millrace("replay", "pipeline.yaml", "--resume")
    assert values(cluster, out) == Counter(range(10_000))
    millrace("replay", "pipeline.yaml", "--switch")
    millrace("run", "pipeline.yaml", "--until-caught-up", "--no-dashboard")
    assert values(cluster, out) == Counter(range(12_000))
