"""What a demo pours into Kafka while it runs: feeds, and lines that somebody types."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace.cli.demos import Demo, Pouring
from millrace.cli.typed import send_typed, tell_counts
from millrace.errors import MillraceError, RunError

if TYPE_CHECKING:
    from millrace.clients.cluster import Cluster
    from millrace.telemetry.channels import Channels

_PARTITIONS = 2
_PATIENCE = 10.0


@dataclass
class Poured:
    """What became of it."""

    totals: dict[str, int] = field(default_factory=dict)
    """Records that are in each topic, at the end."""
    failure: MillraceError | None = None


@contextmanager
def pouring(
    demo: Demo, cluster: Cluster, channels: Channels, ready: Callable[[], bool], stop: threading.Event
) -> Iterator[Poured]:
    """Pour for the time of a block; what fails ends the demo and is raised at the end."""
    from millrace.clients import topics

    for topic in demo.topics:
        topics.ensure(cluster, topic, _PARTITIONS)
    over, poured = threading.Event(), Poured()
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


def _feed(feed: Pouring, cluster: Cluster, over: threading.Event) -> Callable[[], None]:
    from millrace.connectors.base import SINKS, Target
    from millrace.feeds.base import FEEDS, Run
    from millrace.feeds.pump import pump

    def pour() -> None:
        sink = SINKS.load("kafka")(Target(feed.feed, cluster=lambda: cluster))
        pump(FEEDS.load(feed.feed)(**feed.options), sink, Run(feed.rate, stop=over))

    return pour


def _guarded(work: Callable[[], None], poured: Poured, stop: threading.Event) -> None:
    try:
        work()
    except MillraceError as error:
        poured.failure = error
        stop.set()
    except Exception as error:  # without its feed a demo would run on, empty
        poured.failure = RunError("the feed ended", why=f"{type(error).__name__}: {error}")
        stop.set()
