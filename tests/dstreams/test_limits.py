"""How many records a batch may have: rate limits, and backpressure that learns."""

from __future__ import annotations

from typing import Any, cast

from millrace.dstreams.context_tracker import PidRateEstimator
from millrace.dstreams.kafka_source import record_limits
from millrace.dstreams.pyspark_hooks import BatchCompletedEvent
from millrace.dstreams.source import DStreamBatch


class Settings:
    """As much of a SparkContext as has settings."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self._conf = self

    def get(self, name: str, otherwise: str | None = None) -> str | None:
        return self.settings.get(name.rpartition(".")[2], otherwise)


def batch(rate: float | None = None, **settings: str) -> DStreamBatch:
    return DStreamBatch(0, 2.0, cast("Any", Settings(**settings)), rate)


WAITING = {("t", 0): 300, ("t", 1): 100, ("t", 2): 0}


def test_without_a_limit_everything_is_read() -> None:
    assert record_limits(WAITING, batch()) == WAITING


def test_the_rate_of_a_partition_is_that_of_each_second() -> None:
    assert record_limits(WAITING, batch(maxRatePerPartition="25")) == dict.fromkeys(WAITING, 50)


def test_backpressure_gives_more_to_those_who_wait_longer_within_the_rate_of_a_partition() -> None:
    assert record_limits(WAITING, batch(rate=100.0)) == {("t", 0): 150, ("t", 1): 50, ("t", 2): 1}
    assert record_limits(WAITING, batch(rate=100.0, maxRatePerPartition="20"))["t", 0] == 40


def test_the_rate_of_a_receiver_is_one_for_all_partitions() -> None:
    assert record_limits(WAITING, batch(maxRate="20").with_receiver_limit()) == {
        ("t", 0): 30,
        ("t", 1): 10,
        ("t", 2): 1,
    }
    assert batch(rate=10.0, maxRate="20").with_receiver_limit().rate == 10.0
    assert batch(rate=30.0, maxRate="20").with_receiver_limit().rate == 20.0
    assert batch(maxRate="0").with_receiver_limit().rate is None


def test_the_pace_follows_what_batches_reach() -> None:
    settings = Settings(enabled="true", initialRate="5000")
    pace = PidRateEstimator.of(settings, interval=1.0)
    assert pace
    assert pace.rate == 5000
    pace.update(BatchCompletedEvent(0, True, 2000, processing_s=2.0, delay_s=0.0), records=4000)
    assert pace.rate == 2000
    pace.update(BatchCompletedEvent(0, True, 3000, processing_s=1.0, delay_s=0.5), records=1000)
    assert pace.rate == 1000 - 0.2 * 500  # slower, and what waits is to be made up for
    pace.update(BatchCompletedEvent(0, True, 4000, processing_s=1.0, delay_s=0.0), records=0)
    assert pace.rate == 900


def test_there_is_no_pace_unless_it_is_asked_for() -> None:
    assert PidRateEstimator.of(Settings(), 1.0) is None
