"""What a demo pours into Kafka while it runs: feeds, and lines that somebody types.

Lines that somebody types become records of a topic, and what is made of them is told below.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from millrace.cli.commands.demo.catalog import Demo, DemoFeed
from millrace.cli.output import say
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import MillraceError, RunError
from millrace.telemetry.channels import Channels

_LOOK = 0.1
_TOLD = 8


def send_typed(
    cluster: Cluster, topic: str, ready: Callable[[], bool], stop: threading.Event, over: threading.Event
) -> None:
    """Send each line of standard input until its end or ours (`over`); at a terminal Ctrl-D ends all (`stop`).

    What is typed before the queries are `ready` waits: they read from where the topic ends when they start.
    """
    from millrace.clients.kafka.producer import Producer
    from millrace.clients.kafka.record import Record

    while not ready():
        if over.wait(_LOOK):
            return
    producer = Producer(cluster, topic, stop=over)
    if sys.stdin.isatty():
        say("type words; each line is sent when you press Enter, and Ctrl-D ends it")
    rest = b""
    try:
        # Not by readline, which would still wait for the keyboard when everything else has ended.
        while not over.is_set():
            if not select.select([sys.stdin.fileno()], [], [], _LOOK)[0]:
                continue
            read = os.read(sys.stdin.fileno(), 65_536)
            *lines, rest = (rest + read).split(b"\n") if read else (rest, b"")
            producer.send([Record(line) for line in lines if line.strip()])
            producer.flush()
            if not read:
                break
        if sys.stdin.isatty():
            stop.set()
    finally:
        producer.close()


def tell_counts(channels: Channels, panel: str, over: threading.Event) -> None:
    """Say the words with the highest counts whenever they change."""
    slot = channels.slot(f"panel:{panel}")
    told = ""
    while not over.wait(_LOOK):
        rows = (slot.value or {}).get("rows") or ()
        line = ", ".join(f"{label} {value}" for label, value in rows[:_TOLD])
        if line != told:
            told = line
            say(f"  {line}")


_PARTITIONS = 2
_PATIENCE = 10.0


@dataclass
class RunningFeed:
    """What became of it."""

    totals: dict[str, int] = field(default_factory=dict)
    """Records that are in each topic, at the end."""
    failure: MillraceError | None = None


@contextmanager
def pouring(
    demo: Demo, cluster: Cluster, channels: Channels, ready: Callable[[], bool], stop: threading.Event
) -> Iterator[RunningFeed]:
    """Pour for the time of a block; what fails ends the demo and is raised at the end."""
    from millrace.clients.kafka import topics

    for topic in demo.topics:
        topics.ensure(cluster, topic, _PARTITIONS)
    over, poured = threading.Event(), RunningFeed()
    threads = [
        threading.Thread(target=_guarded, args=(work, poured, stop), name="pouring", daemon=True)
        for work in (
            *(_feed(feed, cluster, over) for feed in demo.feeds),
            *(_typed(demo.typed, cluster, channels, ready, stop, over) if demo.typed else ()),
        )
    ]
    for thread in threads:
        thread.start()
    try:
        yield poured
    finally:
        over.set()
        for thread in threads:
            thread.join(_PATIENCE)
    with suppress(MillraceError):
        poured.totals = {
            one.name: sum(p.end or 0 for p in one.partitions) for one in topics.describe(cluster, demo.topics)
        }
    if poured.failure:
        raise poured.failure


def _typed(
    topic: str,
    cluster: Cluster,
    channels: Channels,
    ready: Callable[[], bool],
    stop: threading.Event,
    over: threading.Event,
) -> tuple[Callable[[], None], ...]:
    return (
        lambda: send_typed(cluster, topic, ready, stop, over),
        lambda: tell_counts(channels, "counts-top", over),
    )


def _feed(feed: DemoFeed, cluster: Cluster, over: threading.Event) -> Callable[[], None]:
    from millrace.connectors.base.record_sink import SINKS, SinkTarget
    from millrace.feeds.base.api import FEEDS, Run
    from millrace.feeds.base.pump import pump

    def pour() -> None:
        sink = SINKS.load("kafka")(SinkTarget(feed.feed, cluster=lambda: cluster))
        pump(FEEDS.load(feed.feed)(**feed.options), sink, Run(feed.rate, stop=over))

    return pour


def _guarded(work: Callable[[], None], poured: RunningFeed, stop: threading.Event) -> None:
    try:
        work()
    except MillraceError as error:
        poured.failure = error
        stop.set()
    except Exception as error:  # without its feed a demo would run on, empty
        poured.failure = RunError("the feed ended", why=f"{type(error).__name__}: {error}")
        stop.set()
