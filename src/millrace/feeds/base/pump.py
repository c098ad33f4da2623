"""Move records from a feed to a sink.

- `pump` runs until the count, the duration, the stop, the end of the feed or a failure of the sink.
- `RateLimiter` keeps a rate exactly over time and smoothly at any moment.
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

_SLICE_S = 0.02
_CATCH_UP_FACTOR = 2.0
_REPORT_INTERVAL_S = 0.25


class Clock:
    """The clock of a run; tests replace it."""

    def now(self) -> float:
        """Return a monotonic time in seconds."""
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Sleep until the time is over or the run stops."""
        stop.wait(seconds)


class RateLimiter:
    """Decides how many records may be sent and when.

    Records are sent in slices of a fiftieth of a second. The time of each is counted from the first, so errors do
    not add up. After a stall of the sink or the origin, slices are sent at twice the rate until it has caught up.
    """

    def __init__(self, rate: float | None, clock: Clock, stop: threading.Event) -> None:
        self._rate = rate
        self._clock = clock
        self._stop = stop
        self._started: float | None = None
        self._earliest = 0.0
        self._sent = 0

    def slice(self, waiting: int) -> int:
        """Return how many of the waiting records may be sent at once."""
        return waiting if self._rate is None else min(waiting, max(1, round(self._rate * _SLICE_S)))

    def wait(self) -> None:
        """Return when the next records are due, or when the run stops."""
        if self._rate is None:
            return
        now = self._clock.now()
        if self._started is None:
            self._started = self._earliest = now
        due = max(self._started + self._sent / self._rate, self._earliest)
        if due > now:
            self._clock.wait(due - now, self._stop)

    def sent(self, count: int) -> None:
        """Count records that were sent."""
        if self._rate is not None:
            self._sent += count
            self._earliest = self._clock.now() + count / self._rate / _CATCH_UP_FACTOR


@dataclass(frozen=True)
class PumpResult:
    """The result of a run, at its end or so far."""

    sent: int
    """Records written to the sink."""
    tally: DeliveryReport
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
    """Send the feed's records to the sink at the run's rate until the run ends; then close the sink.

    A run ends after `run.count` records, after `duration` seconds, when `run.stop` is set, when the feed ends, or
    when the sink reports failed records, whose error is raised once the sink is closed. At the end `run.stop` is set.

    A batch with a callback is always sent completely: its origin waits for an answer. So the last one may exceed
    the count, or follow the stop.
    """
    flow = _Flow(sink, run, clock or Clock(), duration, on_progress)
    try:
        with _stop_after(duration, run.stop):
            flow.drain(feed.batches(run))
    finally:
        run.stop.set()
        tally = sink.close()
    if tally.reason is not None:
        raise tally.reason
    return flow.outcome(tally)


@contextmanager
def _stop_after(duration: float | None, stop: threading.Event) -> Iterator[None]:
    """Stop the run in time even while the feed waits for its origin."""
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
        self._limiter = RateLimiter(run.rate, clock, run.stop)
        self._on_progress = on_progress
        self._started = self._reported = clock.now()
        self._deadline = None if duration is None else self._started + duration
        self._sent = 0
        self._failed = False

    def drain(self, batches: Iterator[Batch]) -> None:
        """Send batches until the run ends; then let the feed clean up."""
        try:
            while not self._over() and (batch := next(batches, None)) is not None:
                self._send(batch)
        finally:
            if isinstance(batches, Generator):
                batches.close()

    def outcome(self, tally: DeliveryReport) -> PumpResult:
        return PumpResult(self._sent, tally, self._clock.now() - self._started)

    def _over(self) -> bool:
        counted = self._run.count is not None and self._sent >= self._run.count
        late = self._deadline is not None and self._clock.now() >= self._deadline
        return self._failed or self._run.stop.is_set() or counted or late

    def _send(self, batch: Batch) -> None:
        if batch.done is not None:
            self._limiter.wait()
            self._write(batch.records, batch.done)
            return
        position, count = 0, self._run.count
        while position < len(batch.records):
            self._limiter.wait()
            if self._over():
                return
            waiting = len(batch.records) - position
            size = self._limiter.slice(waiting if count is None else min(waiting, count - self._sent))
            self._write(batch.records[position : position + size])
            position += size

    def _write(self, records: Sequence[Record], done: Done | None = None) -> None:
        try:
            self._sink.write(records, done)
        except MillraceError as error:
            if done is not None:
                done(error)  # else the origin would wait for ever
            raise
        self._sent += len(records)
        self._limiter.sent(len(records))
        tally, now = self._sink.tally(), self._clock.now()
        self._failed = tally.reason is not None
        if self._on_progress is not None and now - self._reported >= _REPORT_INTERVAL_S:
            self._reported = now
            self._on_progress(self.outcome(tally))
