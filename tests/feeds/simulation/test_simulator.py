"""What every simulation promises, whichever it is."""

import json
from datetime import UTC, datetime
from itertools import islice

import pytest

from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption
from millrace.feeds.ads import Ads
from millrace.feeds.base.api import FEEDS, Run
from millrace.feeds.base.pump import pump
from millrace.feeds.posts import Posts
from millrace.feeds.sensors import Sensors
from millrace.feeds.simulation.simulator import CHUNK, Simulated
from millrace.feeds.trips import Trips
from millrace.feeds.weblogs import Weblogs

START = datetime(2026, 1, 31, 8, tzinfo=UTC)
SIMULATIONS = [Ads, Posts, Sensors, Trips, Weblogs]
every_simulation = pytest.mark.parametrize("kind", SIMULATIONS)


def make(feed: Simulated, count: int, run: Run | None = None) -> list[Record]:
    batches = islice(feed.batches(run or Run()), -(-count // CHUNK))
    return [record for batch in batches for record in batch.records][:count]


def moment(feed: Simulated, record: Record) -> int:
    """A record's event time in milliseconds."""
    text = json.loads(record.value)[feed.moment]
    return int(text) if text.isdigit() else round(datetime.fromisoformat(text).timestamp() * 1000)


def test_all_are_found_by_name():
    found = {name: FEEDS.load(name) for name in ("ads", "posts", "sensors", "trips", "weblogs")}
    assert list(found.values()) == SIMULATIONS
    assert not {"simulated", "malformed", "pump", "chance"} & set(FEEDS.names())


@every_simulation
def test_the_same_options_give_the_same_bytes(kind):
    options = {"seed": 7, "start": START, "pace": 500.0, "malformed": 0.1}
    assert make(kind(**options), 2000) == make(kind(**options), 2000, Run(rate=3.0, count=9))


@every_simulation
def test_another_seed_gives_other_events(kind):
    assert make(kind(seed=1, start=START), 10) != make(kind(seed=2, start=START), 10)


@every_simulation
def test_how_records_are_taken_does_not_change_them(kind, sink, clock):
    feed = kind(seed=7, start=START, pace=1000.0)
    pump(feed, sink, Run(rate=330.0, count=1200), clock=clock)
    assert sink.records == make(feed, 1200)


@every_simulation
def test_every_good_record_fits_its_schema(kind, misfit):
    for record in make(kind(seed=3, start=START, pace=20.0), 4000):
        assert misfit(kind.schema, record.value) is None


@every_simulation
def test_kafka_sets_what_a_simulation_does_not_know(kind):
    record = make(kind(seed=3), 1)[0]
    assert record.key
    assert record == Record(record.value, record.key)


@every_simulation
def test_events_arrive_out_of_order_within_bounds(kind):
    feed = kind(seed=3, start=START, pace=1000.0, disorder=2.0)
    began = START.timestamp() * 1000
    late = [began + i - moment(feed, record) for i, record in enumerate(make(feed, 10_000))]
    assert min(late) == 0
    assert 1500 < max(late) <= 2001


@every_simulation
def test_malformed_records_take_the_place_of_good_ones(kind, misfit):
    good = make(kind(seed=3, start=START), 4000)
    mixed = make(kind(seed=3, start=START, malformed=0.1), 4000)
    changed = [after for before, after in zip(good, mixed, strict=True) if before != after]
    assert 0.08 < len(changed) / 4000 < 0.12
    assert [record.key for record in mixed] == [record.key for record in good]
    schema = kind.schema.replace("event_time string", "event_time digits")
    assert all(misfit(schema, record.value) for record in changed)
    assert not any(misfit(schema, record.value) for record in good)


def test_everything_can_be_malformed(misfit):
    assert all(misfit(Posts.schema, r.value) for r in make(Posts(seed=1, malformed=1.0), 500))


def test_a_seed_of_nobodys_choosing_is_said():
    said: list[str] = []
    records = make(Ads(start=START), 100, Run(notify=said.append))
    word, seed = said[0].split()
    assert word == "seed"
    assert records == make(Ads(seed=int(seed), start=START), 100)


def test_a_given_seed_is_not_repeated_to_the_user():
    said: list[str] = []
    make(Ads(seed=1), 1, Run(notify=said.append))
    assert said == []


def test_events_begin_now():
    before = datetime.now(UTC).timestamp() * 1000
    feed = Posts(seed=1)
    assert before - 1 <= moment(feed, make(feed, 1, Run(rate=10.0, count=500))[0]) <= before + 5000


def test_a_count_without_a_rate_ends_now():
    feed = Posts(seed=1, disorder=0.0)
    first, *_, last = make(feed, 1000, Run(count=1000))
    now = datetime.now(UTC).timestamp() * 1000
    assert moment(feed, last) - moment(feed, first) == 999
    assert now - 5000 <= moment(feed, last) <= now + 1


def test_event_time_keeps_pace_with_the_rate_unless_told_otherwise():
    def span(feed: Posts, run: Run) -> int:
        first, *_, last = make(feed, 101, run)
        return moment(feed, last) - moment(feed, first)

    assert span(Posts(seed=1, start=START, disorder=0.0), Run()) == 100
    assert span(Posts(seed=1, start=START, disorder=0.0), Run(rate=10.0)) == 10_000
    assert span(Posts(seed=1, start=START, disorder=0.0, pace=1.0), Run(rate=10.0)) == 100_000


def test_a_stopped_run_gets_no_more():
    run = Run()
    batches = Posts(seed=1).batches(run)
    next(batches)
    run.stop.set()
    assert list(batches) == []


def test_a_start_beyond_the_calendar_is_refused():
    with pytest.raises(InvalidOption):
        make(Trips(seed=1, start=datetime(9999, 12, 31, tzinfo=UTC)), 1)
    with pytest.raises(InvalidOption):
        make(Trips(seed=1, pace=0.0001), 1, Run(count=10**9))
