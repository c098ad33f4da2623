"""What a demo writes to Kafka while it runs: the records of its feeds, and lines that the user types."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from millrace.cli.commands.demo.catalog import Demo, DemoFeed
from millrace.cli.output import print_line
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import MillraceError, RunError
from millrace.telemetry.channels import Channels

_POLL_INTERVAL_S = 0.1
_STOP_TIMEOUT_S = 10.0
_WORDS_PRINTED = 8
_PARTITIONS = 2
_COUNTS_PANEL = "counts-top"


@dataclass
class RunningFeed:
    """The result of writing."""

    totals: dict[str, int] = field(default_factory=dict)
    """The number of records in each topic, at the end."""
    failure: MillraceError | None = None


@contextmanager
def running_feeds(
    demo: Demo, cluster: Cluster, channels: Channels, ready: Callable[[], bool], stop: threading.Event
) -> Iterator[RunningFeed]:
    """Write to the demo's topics while the block runs; a failure stops the demo and is raised at the end."""
    from millrace.clients.kafka import topics

    for topic in demo.topics:
        topics.ensure(cluster, topic, _PARTITIONS)
    end, result = threading.Event(), RunningFeed()
    tasks = [partial(_write_feed, feed, cluster, end) for feed in demo.feeds]
    if demo.typed:
        tasks.append(partial(_send_typed_lines, cluster, demo.typed, ready, stop, end))
        tasks.append(partial(_print_counts, channels, end))
    threads = [
        threading.Thread(target=_run_task, args=(task, result, stop), name="demo feed", daemon=True) for task in tasks
    ]
    for thread in threads:
        thread.start()
    try:
        yield result
    finally:
        end.set()
        for thread in threads:
            thread.join(_STOP_TIMEOUT_S)
    with suppress(MillraceError):
        described = topics.describe(cluster, demo.topics)
        result.totals = {topic.name: sum(part.end or 0 for part in topic.partitions) for topic in described}
    if result.failure:
        raise result.failure


def _write_feed(feed: DemoFeed, cluster: Cluster, end: threading.Event) -> None:
    from millrace.connectors.base.record_sink import RECORD_SINKS, SinkTarget
    from millrace.feeds.base.api import FEEDS, Run
    from millrace.feeds.base.pump import pump

    sink = RECORD_SINKS.load("kafka")(SinkTarget(feed.feed, cluster=lambda: cluster))
    options = {"malformed": feed.malformed, "disorder": feed.disorder}
    pump(FEEDS.load(feed.feed)(**options), sink, Run(feed.rate, stop=end))


def _run_task(task: Callable[[], None], result: RunningFeed, stop: threading.Event) -> None:
    try:
        task()
    except Exception as error:  # without its feed the demo would run without input
        unknown = RunError("the feed ended", why=f"{type(error).__name__}: {error}")
        result.failure = error if isinstance(error, MillraceError) else unknown
        stop.set()


def _send_typed_lines(
    cluster: Cluster, topic: str, ready: Callable[[], bool], stop: threading.Event, end: threading.Event
) -> None:
    """Send each line of standard input until its end or until `end`; at a terminal Ctrl-D sets `stop`.

    Lines typed before the queries are `ready` wait: the queries read from the end of the topic when they start.
    """
    from millrace.clients.kafka.producer import Producer
    from millrace.clients.kafka.record import Record

    while not ready():
        if end.wait(_POLL_INTERVAL_S):
            return
    producer = Producer(cluster, topic, stop=end)
    if sys.stdin.isatty():
        print_line("type words; Enter sends a line, and Ctrl-D stops the demo")
    rest = b""
    try:
        # Not by readline, which would still wait for the keyboard when everything else has ended.
        while not end.is_set():
            if not select.select([sys.stdin.fileno()], [], [], _POLL_INTERVAL_S)[0]:
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


def _print_counts(channels: Channels, end: threading.Event) -> None:
    """Print the words with the highest counts whenever they change."""
    slot = channels.slot(f"panel:{_COUNTS_PANEL}")
    printed = ""
    while not end.wait(_POLL_INTERVAL_S):
        rows = (slot.value or {}).get("rows") or ()
        line = ", ".join(f"{label} {value}" for label, value in rows[:_WORDS_PRINTED])
        if line != printed:
            printed = line
            print_line(f"  {line}")
