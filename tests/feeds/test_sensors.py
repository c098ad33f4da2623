import json
from datetime import UTC, datetime
from itertools import islice
from statistics import mean, median

import pytest

from millrace.feeds.base.api import Run
from millrace.feeds.sensors import Sensors


@pytest.fixture(scope="module")
def day() -> list[dict]:
    """Two days of readings."""
    feed = Sensors(seed=5, start=datetime(2026, 1, 31, tzinfo=UTC), pace=40_000 / (2 * 86_400))
    return [json.loads(r.value) for batch in islice(feed.batches(Run()), 80) for r in batch.records]


def values(readings: list[dict], kind: str, hours: range = range(24)) -> list[float]:
    return [r["value"] for r in readings if r["kind"] == kind and int(r["at"][11:13]) in hours]


def test_the_key_is_the_sensor():
    batch = next(Sensors(seed=1).batches(Run()))
    assert all(json.loads(record.value)["sensor"].encode() == record.key for record in batch.records)


def test_a_sensor_has_one_room_kind_and_unit(day):
    sensors = {r["sensor"] for r in day}
    assert 25 < len(sensors) == len({(r["sensor"], r["room"], r["kind"], r["unit"]) for r in day})
    assert {r["kind"] for r in day} == {"temperature", "humidity", "co2", "motion", "power"}


def test_values_follow_the_hours(day):
    assert mean(values(day, "temperature", range(13, 17))) > mean(values(day, "temperature", range(1, 5))) + 2
    assert mean(values(day, "power", range(19, 21))) > 2 * mean(values(day, "power", range(1, 5)))
    assert mean(values(day, "motion", range(19, 21))) > 3 * mean(values(day, "motion", range(1, 5)))


def test_motion_is_yes_or_no(day):
    assert set(values(day, "motion")) == {0.0, 1.0}


def test_outliers_and_faults_are_rare_and_there(day):
    temperatures = values(day, "temperature")
    assert 18 < median(temperatures) < 23
    hot = sum(value > 35 for value in temperatures)
    broken = sum(value == -127.0 for value in temperatures)
    assert 0 < hot < len(temperatures) / 100
    assert 0 < broken < len(temperatures) / 100


def test_only_what_has_a_battery_reports_one(day):
    assert all((r["battery"] is None) == (r["kind"] in ("co2", "power")) for r in day)
    assert all(1 <= r["battery"] <= 100 for r in day if r["battery"] is not None)
