"""Feeds that fill what sources read, for as long as a pipeline runs: listeners that others send to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.base.api import SourceFilling
from millrace.connectors.base.record_sink import SinkTarget
from millrace.connectors.base.registry import reader_of
from millrace.connectors.kafka.sink import KafkaRecordSink
from millrace.errors import FeedFailed, MillraceError
from millrace.feeds.base.api import FEEDS, Run
from millrace.feeds.base.pump import pump
from millrace.pipeline.model import SourceDef
from millrace.pipeline.plan import Plan


@contextmanager
def filled(
    plan: Plan, cluster: Callable[[], Cluster], tell: Callable[[str], None], stop: threading.Event
) -> Iterator[None]:
    """A time in which they run; one that cannot begin raises, and one that fails ends the run, which raises then.

    A source whose queries all end when they have caught up does not listen: what comes would be read or left by chance.
    """
    fillers: list[SourceFeeder] = []
    try:
        for source, filling in _wanted(plan):
            if _goes_on(plan, source):
                fillers.append(SourceFeeder(source, filling, cluster, tell, stop))
                fillers[-1].start()
            else:
                tell(f"source {source.name!r} does not listen at {filling.where}: it is read until it is caught up")
        yield
    finally:
        for one in fillers:
            one.end()
    for one in fillers:
        if one.error:
            raise one.error


def _wanted(plan: Plan) -> Iterator[tuple[SourceDef, SourceFilling]]:
    for source in plan.pipeline.sources:
        filling = reader_of(source).filling()
        if filling:
            yield source, filling


def _goes_on(plan: Plan, source: SourceDef) -> bool:
    """Whether a query follows a source without end."""
    names = (plan.pipeline.upstream(query.table) for query in plan.queries if query.trigger.kind != "once")
    return any(source.name in found for found in names)


class SourceFeeder:
    """A feed in a thread, from its source's beginning to its end."""

    def __init__(
        self,
        source: SourceDef,
        filling: SourceFilling,
        cluster: Callable[[], Cluster],
        tell: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self.error: MillraceError | None = None
        """Why it has ended before it was told to."""
        self._source, self._filling, self._cluster, self._stop = source, filling, cluster, stop
        self._settled = threading.Event()
        self._run = Run(notify=lambda text: tell(f"source {source.name!r}: {text}"), ready=self._settled.set)
        self._thread = threading.Thread(target=self._pour, name=f"filling-{source.name}", daemon=True)

    def start(self) -> None:
        """Begin; returns when others may send, and raises when they never will."""
        self._thread.start()
        self._settled.wait()
        if self.error:
            raise self.error

    def end(self) -> None:
        """Take nothing more, and wait until what was taken is safe or has failed."""
        self._run.stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _pour(self) -> None:
        try:
            feed = FEEDS.load(self._filling.feed)(**self._filling.options)
            pump(feed, KafkaRecordSink(self._target(feed.delivery_timeout)), self._run)
        except MillraceError as error:
            self._fail(error)
        except Exception as error:  # in a thread of its own it would be heard by nobody
            self._fail(FeedFailed("the listener ended", why=f"{type(error).__name__}: {error}"))
        finally:
            self._settled.set()

    def _target(self, patience: float | None) -> SinkTarget:
        return SinkTarget(self._filling.topic, cluster=self._cluster, stop=self._run.stop, patience=patience)

    def _fail(self, error: MillraceError) -> None:
        error.place = error.place or self._source.place
        error.message = f"source {self._source.name!r}: {error.message}"
        self.error = error
        self._stop.set()
