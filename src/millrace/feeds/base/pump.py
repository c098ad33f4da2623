"""Moves records from a feed to a sink.

How fast records may go: a rate, kept exactly over time and smoothly at any moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from millrace.clients.kafka.record import Done, Record
from millrace.connectors.base.record_sink import DeliveryReport, RecordSink
from millrace.errors import MillraceError
from millrace.feeds.base.api import Batch, Feed, Run

_TICK = 0.02
_CATCH_UP = 2.0


class Clock:
    """Time as a run sees it; a test puts its own in its place."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Let time pass, but not when the run is over."""
        stop.wait(seconds)


class RateLimiter:
    """Says how many records may go and when.

    Slices are a fiftieth of a second long. Each has its place in time, counted from the first, so no error
    adds up. After a stall, of the sink or of the origin, the slices that are due follow each other at twice
    the rate until the stall is made up for.
    """

    def __init__(self, rate: float | None, clock: Clock, stop: threading.Event) -> None:
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._begun: float | None = None
        self._earliest = 0.0
        self._sent = 0

    def slice(self, waiting: int) -> int:
        """How many of the waiting records may go at a time."""
        return waiting if self._rate is None else min(waiting, max(1, round(self._rate * _TICK)))

    def wait(self) -> None:
        """Return when the next records are due, or when the run is over."""
        if self._rate is None:
            return
        now = self._clock.now()
        if self._begun is None:
            self._begun = self._earliest = now
        due = max(self._begun + self._sent / self._rate, self._earliest)
        if due > now:
            self._clock.wait(due - now, self._stop)

    def sent(self, count: int) -> None:
        """Records have gone."""
        if self._rate is not None:
            self._sent += count
            self._earliest = self._clock.now() + count / self._rate / _CATCH_UP


_REPORT_EVERY = 0.25


@dataclass(frozen=True)
class PumpResult:
    """What a run has come to, at its end or so far."""

    sent: int
    """Records handed to the sink."""
    tally: DeliveryReport
    """What became of them there."""
    seconds: float


Progress = Callable[[PumpResult], None]


def pump(
    feed: Feed,
    sink: RecordSink,
    run: Run,
    *,
    on_progress: Progress | None = None,
    duration: float | None = None,
    clock: Clock | None = None,
) -> PumpResult:
    """Send what the feed gives, at the run's rate, until the run is over; then close the sink.

    A run is over after `run.count` records, after `duration` seconds, when `run.stop` is set, when the feed
    ends, or when the sink says that records failed, which is raised once the sink is closed. In the end
    `run.stop` is set.

    A batch that wants to know when it is safe is sent whole and in any case: its origin waits for an answer.
    So the last one may go beyond the count, or follow the stop.
    """
    flow = _Flow(sink, run, clock or Clock(), duration, on_progress)
    try:
        with _alarm(duration, run.stop):
            flow.drain(feed.batches(run))
    finally:
        run.stop.set()
        tally = sink.close()
    if tally.reason is not None:
        raise tally.reason
    return flow.outcome(tally)


@contextmanager
def _alarm(duration: float | None, stop: threading.Event) -> Iterator[None]:
    """Stop the run in time even if the feed waits for its origin, and so never comes back to look."""
    timer = threading.Timer(min(duration or 0.0, threading.TIMEOUT_MAX), stop.set)
    timer.daemon = True
    if duration is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Flow:
    def __init__(
        self, sink: RecordSink, run: Run, clock: Clock, duration: float | None, on_progress: Progress | None
    ) -> None:
        self._sink = sink
        self._run = run
        self._clock = clock
        self._pace = RateLimiter(run.rate, clock, run.stop)
        self._on_progress = on_progress
        self._begun = self._reported = clock.now()
        self._deadline = None if duration is None else self._begun + duration
        self._sent = 0
        self._failed = False

    def drain(self, batches: Iterator[Batch]) -> None:
        """Send batches until there is a reason not to go on; then let the feed clean up."""
        try:
            while not self._over():
                batch = next(batches, None)
                if batch is None:
                    return
                self._send(batch)
        finally:
            if isinstance(batches, Generator):
                batches.close()

    def outcome(self, tally: DeliveryReport) -> PumpResult:
        """How far it has come."""
        return PumpResult(self._sent, tally, self._clock.now() - self._begun)

    def _over(self) -> bool:
        if self._failed or self._run.stop.is_set():
            return True
        if self._run.count is not None and self._sent >= self._run.count:
            return True
        return self._deadline is not None and self._clock.now() >= self._deadline

    def _send(self, batch: Batch) -> None:
        if batch.done is not None:
            self._pace.wait()
            self._write(batch.records, batch.done)
            return
        position = 0
        while position < len(batch.records):
            self._pace.wait()
            if self._over():
                return
            size = self._pace.slice(self._wanted(len(batch.records) - position))
            self._write(batch.records[position : position + size])
            position += size

    def _wanted(self, waiting: int) -> int:
        return waiting if self._run.count is None else min(waiting, self._run.count - self._sent)

    def _write(self, records: Sequence[Record], done: Done | None = None) -> None:
        try:
            self._sink.write(records, done)
        except MillraceError as error:
            if done is not None:
                done(error)  # whoever waits for these records must not wait for ever
            raise
        self._sent += len(records)
        self._pace.sent(len(records))
        tally = self._sink.tally()
        self._failed = tally.reason is not None
        self._report(tally)

    def _report(self, tally: DeliveryReport) -> None:
        now = self._clock.now()
        if self._on_progress is not None and now - self._reported >= _REPORT_EVERY:
            self._reported = now
            self._on_progress(self.outcome(tally))
