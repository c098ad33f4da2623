import threading
from collections.abc import Iterator, Sequence

import pytest

from millrace.clients.kafka.record import Done, Record
from millrace.connectors.base.record_sink import DeliveryReport, RecordSink
from millrace.errors import FeedFailed, FileUnusable, KafkaFailed, MillraceError
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.base.pump import Clock, PumpResult, pump


class Listed(Feed):
    """Batches given in advance; it remembers how many were asked for and whether it was closed."""

    def __init__(self, *batches: Batch, failure: Exception | None = None) -> None:
        self.given = list(batches)
        self.failure = failure
        self.taken = 0
        self.closed = False

    def batches(self, run: Run) -> Iterator[Batch]:
        try:
            for batch in self.given:
                self.taken += 1
                yield batch
            if self.failure:
                raise self.failure
        finally:
            self.closed = True


class Silent(Feed):
    """Waits for an origin that never says anything."""

    def batches(self, run: Run) -> Iterator[Batch]:
        run.stop.wait()
        return
        yield


def batch(size: int, done=None) -> Batch:
    return Batch([Record(b"%d" % number) for number in range(size)], done)


def test_everything_is_sent_in_order_and_the_sink_is_closed(sink):
    feed, run = Listed(batch(3), batch(0), batch(4)), Run()
    outcome = pump(feed, sink, run)
    assert sink.records == [*batch(3).records, *batch(4).records]
    assert (outcome.sent, outcome.tally.delivered) == (7, 7)
    assert sink.closed == 1
    assert run.stop.is_set()


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_a_count_is_exact(sink, count):
    assert pump(Listed(*[batch(10)] * 3), sink, Run(count=count)).sent == len(sink.records) == count


def test_no_batch_is_taken_that_is_not_needed(sink):
    feed = Listed(*[batch(10)] * 3)
    pump(feed, sink, Run(count=20))
    assert feed.taken == 2
    assert feed.closed


def test_a_rate_is_kept_in_small_slices(sink, clock):
    outcome = pump(Listed(*[batch(500)] * 20), sink, Run(rate=1000.0), clock=clock)
    assert outcome.seconds == pytest.approx(10.0, abs=0.05)
    assert len(sink.writes) >= 200
    assert max(len(write) for write in sink.writes) <= 20


def test_a_rate_and_a_count_go_together(sink, clock):
    assert pump(Listed(batch(500)), sink, Run(rate=75.0, count=151), clock=clock).sent == 151


def test_a_duration_ends_the_run(sink, clock):
    outcome = pump(Listed(*[batch(500)] * 20), sink, Run(rate=100.0), duration=3.0, clock=clock)
    assert outcome.sent == pytest.approx(300, abs=2)
    assert outcome.seconds == pytest.approx(3.0, abs=0.05)


def test_a_duration_ends_a_feed_that_waits(sink):
    assert pump(Silent(), sink, Run(), duration=0.01).sent == 0
    assert sink.closed == 1


def test_a_stop_ends_a_feed_that_waits(sink):
    run = Run()
    threading.Timer(0.01, run.stop.set).start()
    assert pump(Silent(), sink, run).sent == 0
    assert sink.closed == 1


class StopsWhileWaiting(Clock):
    """A clock on which the run is stopped as soon as something waits."""

    def wait(self, seconds, stop):
        stop.set()
        return super().wait(seconds, stop)


def test_a_stop_ends_a_wait_for_the_rate(sink):
    assert pump(Listed(batch(10)), sink, Run(rate=0.001), clock=StopsWhileWaiting()).sent == 1


def test_what_wants_an_answer_is_passed_whole(sink, clock):
    def done(problem):
        pass

    outcome = pump(Listed(batch(70, done), batch(70, done), batch(1)), sink, Run(rate=10.0, count=100), clock=clock)
    assert [len(write) for write in sink.writes] == [70, 70]
    assert sink.dones == [done, done]
    assert outcome.sent == 140


def test_what_wants_an_answer_is_sent_even_if_the_run_stops_meanwhile(sink):
    feed = Listed(batch(2, print), batch(2, print), batch(2, print))
    assert pump(feed, sink, Run(rate=0.001), clock=StopsWhileWaiting()).sent == 4


def test_records_that_fail_stop_the_run(sink):
    sink.refuse_from, sink.reason = 15, KafkaFailed("full")
    feed = Listed(*[batch(10)] * 5)
    with pytest.raises(KafkaFailed):
        pump(feed, sink, Run())
    assert feed.taken == 2
    assert feed.closed
    assert sink.closed == 1


def test_records_that_fail_at_the_very_end_are_not_forgotten(sink):
    class Late(type(sink)):
        def tally(self):
            self.refuse_from = 5 if self.closed else None
            return super().tally()

    sink.__class__, sink.reason = Late, KafkaFailed("gone")
    with pytest.raises(KafkaFailed):
        pump(Listed(batch(10)), sink, Run())


def test_a_feed_that_fails_is_an_error_after_what_it_gave_is_safe(sink):
    with pytest.raises(FeedFailed):
        pump(Listed(batch(10), failure=FeedFailed("gone")), sink, Run())
    assert len(sink.records) == 10
    assert sink.closed == 1


def test_a_sink_that_raises_is_closed(sink, monkeypatch):
    def refuse(records, done=None):
        raise KafkaFailed("no")

    monkeypatch.setattr(sink, "write", refuse)
    run = Run()
    with pytest.raises(KafkaFailed):
        pump(Listed(batch(10)), sink, run)
    assert sink.closed == 1
    assert run.stop.is_set()


def test_progress_is_told_a_few_times_a_second(sink, clock):
    told: list[PumpResult] = []
    pump(Listed(*[batch(500)] * 4), sink, Run(rate=1000.0), clock=clock, on_progress=told.append)
    assert 7 <= len(told) <= 8
    assert [outcome.sent for outcome in told] == sorted({outcome.sent for outcome in told})
    assert told[0].seconds == pytest.approx(0.25, abs=0.03)


def test_a_write_that_raises_answers_whoever_waits() -> None:
    class Broken(RecordSink):
        delivery_guarantee = "none"

        def __init__(self) -> None:
            pass

        def write(self, records: Sequence[Record], done: Done | None = None) -> None:
            raise FileUnusable("full")

        def tally(self) -> DeliveryReport:
            return DeliveryReport()

        close = tally

    answers: list[MillraceError | None] = []
    with pytest.raises(FileUnusable) as caught:
        pump(Listed(Batch([Record(b"a")], answers.append)), Broken(), Run())
    assert answers == [caught.value]
