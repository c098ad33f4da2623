"""Pipelines against hand-written PySpark programs with the same settings, interleaved: catch-up over a full topic.

Each side is a process of its own, from its start to its end, so that what surrounds the queries counts as well.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import orjson
from measure import MILLRACE, Took, broker, median, run

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record

RECORDS = int(os.environ.get("RECORDS", "1000000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
JOBS = Path(__file__).parent / "jobs"


def line(number: int) -> bytes:
    """Eight words out of a thousand."""
    return " ".join(f"word{number * step % 1000}" for step in range(1, 9)).encode()


def event(number: int) -> bytes:
    """A page view of about 175 bytes; a hundred thousand make a minute."""
    seconds = number * 60 // 100_000
    at = f"2026-01-01T00:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{number % 1000:03d}Z"
    return orjson.dumps(
        {
            "id": f"{number:032x}",
            "user": f"user{number % 5000}",
            "page": f"/page/{number % 100}",
            "kind": ("view", "click", "purchase")[number % 3],
            "ip": f"10.0.{number % 250}.{number % 199}",
            "at": at,
        }
    )


def fill(cluster: Cluster, topic: str, make: Callable[[int], bytes]) -> None:
    """A topic of two partitions, full."""
    topics.create(cluster, topic, 2)
    producer = Producer(cluster, topic)
    for start in range(0, RECORDS, 10_000):
        producer.send([Record(make(number)) for number in range(start, min(RECORDS, start + 10_000))])
    producer.close()


def once(job: str, side: str) -> Took:
    """One side of one job, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CHECKPOINT"] = f"{folder}/checkpoint"
        script = JOBS / f"{job}_{side}.py"
        if side == "ours":
            return run(MILLRACE, "run", script, "--until-caught-up", "--no-dashboard", "--state", f"{folder}/state")
        return run(MILLRACE, "exec", "--no-dashboard", "--log", f"{folder}/log", script)


def compare(cluster: Cluster, job: str, make: Callable[[int], bytes]) -> None:
    """Both sides in turn, and the ratio of their medians."""
    os.environ |= {"TOPIC": job, "MILLRACE_KAFKA": cluster.bootstrap}
    fill(cluster, job, make)
    took: dict[str, list[Took]] = {"bare": [], "ours": []}
    for number in range(ROUNDS):
        for side in ("bare", "ours") if number % 2 else ("ours", "bare"):
            took[side].append(once(job, side))
    for measure in ("wall", "cpu"):
        ours, bare = (median([getattr(one, measure) for one in took[side]]) for side in ("ours", "bare"))
        print(
            f"{job}, {RECORDS:,} records, {measure} seconds: ours {ours:.1f}, bare {bare:.1f}, ratio {ours / bare:.2f}"
        )


def main() -> None:
    """Both jobs, or the one that is named."""
    chosen = sys.argv[1:] or ["words", "windows"]
    with broker() as cluster:
        for job, make in (("words", line), ("windows", event)):
            if job in chosen:
                compare(cluster, job, make)


if __name__ == "__main__":
    main()
