"""One program is fed a thousand records a second: how long each takes from its sending to the arrival of its result."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from peers.catching_up import PATIENCE, WrongError
from peers.contract import Peer, Place
from peers.jobs.latency import Latency
from peers.process import Watched

RATE = 1000
BEHIND = 5 * RATE
"""Records without a result below which a program has caught up with those that came while it started."""


@dataclass(frozen=True)
class Lived:
    """Milliseconds from a record to its result, and what a second of it costs the processor."""

    p50: float
    p99: float
    cpu: float
    memory: int
    batches: int
    """Micro-batches in the time that was measured; 0 for a program without."""
    seconds: float

    def row(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def run(cluster: Cluster, job: Latency, peer: Peer, mark: str, warm: float, seconds: float) -> Lived:
    """Feed it from its start on, let it warm up, then measure; every record must have its result."""
    source, target = f"in-{mark}", f"out-{mark}"
    topics.create(cluster, source, job.partitions)
    topics.create(cluster, target, 1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Place(job.name, cluster.bootstrap, source, target, Path(folder), Path(folder, "campaigns.json"))
        place.campaigns.touch()
        over, stop = threading.Event(), threading.Event()
        reader = threading.Thread(target=_read, args=(cluster, target, job, over))
        sender = threading.Thread(target=_send, args=(cluster, source, job, stop))
        program = Watched(peer.command(place), place.variables() | peer.variables(place), Path(folder, "log"))
        reader.start()
        sender.start()
        try:
            _wait(program, job, lambda: bool(job.came) and job.missing() < BEHIND, PATIENCE)
            _pass(program, warm)
            since, before = time.time(), _batches(Path(folder))
            began = time.monotonic()
            _pass(program, seconds)
            took_s = time.monotonic() - began
            used = (program.cpu(time.monotonic()) - program.cpu(began)) / took_s
            memory, batches = program.memory(), _batches(Path(folder)) - before
            stop.set()
            sender.join()
            _wait(program, job, lambda: not job.missing(), PATIENCE)
            if job.problem():
                raise WrongError(str(job.problem()))
            took = sorted(job.took(since))
            return Lived(took[len(took) // 2], took[len(took) * 99 // 100], used, memory, batches, took_s)
        finally:
            stop.set()
            over.set()
            program.end()
            reader.join()
            sender.join()
            topics.delete(cluster, [source, target])


def _batches(folder: Path) -> int:
    """How many micro-batches Spark's checkpoints know of: that of the query that has the most."""
    numbers = (int(path.name) for path in folder.glob("**/offsets/*") if path.name.isdigit())
    return max(numbers, default=-1) + 1


def _pass(program: Watched, seconds: float) -> None:
    program.wait(seconds)
    if program.ended() is not None:
        raise WrongError(f"it ended with {program.ended()}: {program.last_words()}")


def _wait(program: Watched, job: Latency, holds: Callable[[], bool], patience: float) -> None:
    limit = time.monotonic() + patience
    while not holds():
        _pass(program, 0.1)
        if time.monotonic() > limit:
            raise WrongError(f"{job.problem()} after {patience:.0f} s; {program.last_words()}")


def _send(cluster: Cluster, topic: str, job: Latency, stop: threading.Event) -> None:
    producer = Producer({**cluster.config(), "linger.ms": 0, "acks": 1})
    due = time.time()
    while not stop.is_set():
        now = time.time()
        if now < due:
            time.sleep(due - now)
            continue
        due += 1 / RATE
        partition, key, value = job.record(now)
        producer.produce(topic, value, key, partition)
        producer.poll(0)
    producer.flush()


def _read(cluster: Cluster, topic: str, job: Latency, over: threading.Event) -> None:
    own = {"group.id": f"look-{topic}", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({**cluster.config(), **own, "fetch.wait.max.ms": 100})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while not over.is_set():
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            job.take(message.value() or b"", time.time())
    consumer.close()
