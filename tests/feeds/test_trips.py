import csv
import json
from collections import Counter
from datetime import UTC, datetime
from itertools import islice

import pytest

from millrace.errors import InvalidOption
from millrace.feeds.base.api import Run
from millrace.feeds.trips import Trips, parse_format

COLUMNS = [
    *("TripID", "Duration", "StartDate", "StartStation", "StartTerminal", "EndDate", "EndStation", "EndTerminal"),
    *("BikeNo", "SubscriberType", "ZipCode"),
]
SATURDAY, MONDAY = datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC)
OFFICES = {"Central Station", "Exchange Square", "City Hall", "Foundry Park", "Science Quarter", "Bridge Street"}


def values(start: datetime, chunks: int = 20, **options: object) -> list[bytes]:
    feed = Trips(seed=5, start=start, **{"pace": chunks * 500 / 86_400, **options})
    return [record.value for batch in islice(feed.batches(Run()), chunks) for record in batch.records]


@pytest.fixture(scope="module")
def workday() -> list[dict]:
    return [json.loads(value) for value in values(MONDAY)]


def is_trip(value: bytes | None) -> bool:
    """Whether a CSV line can be read as a trip."""
    try:
        (row,) = csv.reader([(value or b"").decode("utf-8")])
        trip = dict(zip(COLUMNS, row, strict=True))
        for name in ("TripID", "Duration", "StartTerminal", "EndTerminal", "BikeNo"):
            int(trip[name])
        for name in ("StartDate", "EndDate"):
            datetime.fromisoformat(trip[name])
    except ValueError:
        return False
    return True


def ended(trips: list[dict], hours: range) -> list[dict]:
    return [trip for trip in trips if int(trip["EndDate"][11:13]) in hours]


def share_to_offices(trips: list[dict]) -> float:
    return sum(trip["EndStation"] in OFFICES for trip in trips) / len(trips)


def test_columns_are_these_in_this_order(workday):
    assert list(workday[0]) == COLUMNS
    assert [column.split()[0] for column in Trips.schema.split(", ")] == COLUMNS


def test_the_key_is_the_terminal_of_the_start():
    batch = next(Trips(seed=1).batches(Run()))
    assert all(json.loads(record.value)["StartTerminal"] == int(record.key) for record in batch.records)


def test_durations_are_the_seconds_between_the_dates(workday):
    for trip in workday:
        took = datetime.fromisoformat(trip["EndDate"]) - datetime.fromisoformat(trip["StartDate"])
        assert took.total_seconds() == trip["Duration"] >= 60


def test_trips_are_numbered_without_gaps(workday):
    assert [trip["TripID"] - workday[0]["TripID"] for trip in workday] == list(range(len(workday)))


def test_a_station_has_one_terminal_whatever_the_seed(workday):
    others = [json.loads(record.value) for record in next(Trips(seed=99).batches(Run())).records]
    pairs = {(trip["StartStation"], trip["StartTerminal"]) for trip in [*workday, *others]}
    pairs |= {(trip["EndStation"], trip["EndTerminal"]) for trip in [*workday, *others]}
    assert len(pairs) == len({name for name, _ in pairs}) == len({terminal for _, terminal in pairs}) == 32


def test_people_ride_to_work_in_the_morning_and_home_in_the_evening(workday):
    morning, evening = ended(workday, range(6, 10)), ended(workday, range(16, 20))
    assert share_to_offices(morning) > 2 * share_to_offices(evening)
    weekend = [json.loads(value) for value in values(SATURDAY)]
    assert share_to_offices(ended(weekend, range(6, 10))) < share_to_offices(morning) / 2


def test_subscribers_ride_more_often_and_shorter(workday):
    kinds = Counter(trip["SubscriberType"] for trip in workday)
    assert set(kinds) == {"Subscriber", "Customer"}
    assert kinds["Subscriber"] > 2 * kinds["Customer"]


def test_csv_has_the_same_values_without_a_header():
    as_json = [json.loads(value) for value in values(MONDAY, 2)]
    as_csv = list(csv.reader(value.decode() for value in values(MONDAY, 2, format="csv")))
    assert as_csv == [[str(value) for value in trip.values()] for trip in as_json]


def test_malformed_csv_lines_are_not_trips():
    good, mixed = values(MONDAY, 4, format="csv"), values(MONDAY, 4, format="csv", malformed=0.2)
    changed = [after for before, after in zip(good, mixed, strict=True) if before != after]
    assert 0.15 < len(changed) / len(good) < 0.25
    assert all(is_trip(value) for value in good)
    assert not any(is_trip(value) for value in changed)


def test_other_formats_are_refused():
    assert parse_format("csv") == "csv"
    with pytest.raises(InvalidOption):
        parse_format("xml")
