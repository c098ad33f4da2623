"""Runs the feeds of sources while a pipeline runs: listeners whose records go to the topic that the source reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import SourceFilling
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.base.registry import source_of
from millrace.connectors.kafka.sink import KafkaRecordSink
from millrace.errors import FeedFailed, MillraceError
from millrace.feeds.base.api import FEEDS, Run
from millrace.feeds.base.pump import pump
from millrace.pipeline.model import SourceDef
from millrace.pipeline.plan import Plan


@contextmanager
def run_source_feeds(
    plan: Plan, cluster: Callable[[], Cluster], notify: Callable[[str], None], stop: threading.Event
) -> Iterator[None]:
    """Run the feeds; a feed that cannot start raises, and one that fails sets `stop` and raises at the end.

    A source whose queries all end when they have caught up does not listen: it would be left to chance whether a record
    is read.
    """
    feeders: list[SourceFeeder] = []
    endless = [plan.pipeline.upstream(query.table) for query in plan.queries if query.trigger.kind != "once"]
    try:
        for source in plan.pipeline.sources:
            filling = source_of(source).filling()
            if filling is None:
                continue
            if any(source.name in upstream for upstream in endless):
                feeders.append(SourceFeeder(source, filling, cluster, notify, stop))
                feeders[-1].start()
            else:
                notify(f"source {source.name!r} does not listen at {filling.where}: it is read until it is caught up")
        yield
    finally:
        for feeder in feeders:
            feeder.end()
    for feeder in feeders:
        if feeder.error:
            raise feeder.error


class SourceFeeder:
    """The feed of a source, in a thread."""

    def __init__(
        self,
        source: SourceDef,
        filling: SourceFilling,
        cluster: Callable[[], Cluster],
        notify: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self.error: MillraceError | None = None
        """Why it has ended early."""
        self._source, self._filling, self._cluster, self._stop = source, filling, cluster, stop
        self._started = threading.Event()
        self._run = Run(notify=lambda text: notify(f"source {source.name!r}: {text}"), ready=self._started.set)
        self._thread = threading.Thread(target=self._pump, name=f"filling-{source.name}", daemon=True)

    def start(self) -> None:
        """Start it; return when it listens, or raise its error."""
        self._thread.start()
        self._started.wait()
        if self.error:
            raise self.error

    def end(self) -> None:
        """Stop it, and wait until everything it received is delivered or has failed."""
        self._run.stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _pump(self) -> None:
        try:
            feed = FEEDS.load(self._filling.feed)(**self._filling.options)
            patience = feed.delivery_timeout
            target = SinkTarget(self._filling.topic, cluster=self._cluster, stop=self._run.stop, patience=patience)
            pump(feed, KafkaRecordSink(target), self._run)
        except Exception as exception:  # nobody would see it in this thread
            ended = FeedFailed("the listener ended", why=f"{type(exception).__name__}: {exception}")
            error = exception if isinstance(exception, MillraceError) else ended
            error.place = error.place or self._source.place
            error.message = f"source {self._source.name!r}: {error.message}"
            self.error = error
            self._stop.set()
        finally:
            self._started.set()
