"""How quantities are read and written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.errors import InvalidOption
from millrace.units import (
    format_bytes,
    format_count,
    format_duration,
    parse_backlog,
    parse_duration,
    parse_heap,
    parse_rate,
    parse_share,
    parse_start,
    parse_time,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ENDLESS = "9" * 400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5), ("2m", 120), ("1h", 3600), ("7d", 604800), ("1h30m", 5400), ("0.5s", 0.5), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "5", "5 s", "s", "-5s", "5parsecs", "5s ", "5s\n", "1.s", ".5s", "5S", "1h 30m", "inf", "٣s", f"{ENDLESS}s"],
)
def test_no_durations(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("500/s", 500), ("500", 500), ("30/m", 0.5), ("36/h", 0.01), ("0.5/s", 0.5)]
)
def test_rates(text: str, rate: float) -> None:
    assert parse_rate(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "foo", "0", "0/s", "-5/s", "5/d", "5/", "/s", "5 /s", "inf", "nan", ENDLESS])
def test_no_rates(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_rate(text)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("0", 0), ("100%", 1), ("1", 1)])
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "101%", "1.1", "-1%", "half", "nan", "inf%", "1%%"])
def test_no_shares(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_share(text)


@pytest.mark.parametrize(("text", "heap"), [("512m", "512m"), ("2g", "2g"), ("1G", "1g"), ("64M", "64m")])
def test_heap_sizes(text: str, heap: str) -> None:
    assert parse_heap(text) == heap


@pytest.mark.parametrize("text", ["", "512", "0m", "-1g", "1.5g", "512mb", "m", "512m\n", "5٣m"])
def test_no_heap_sizes(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_heap(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T13:00:00+01:00", NOON),
        ("1769860800000", NOON),
        ("now", NOON),
        ("5m ago", NOON - timedelta(minutes=5)),
        ("1h30m ago", NOON - timedelta(minutes=90)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert parse_time(text, NOON) == moment


def test_a_time_without_a_zone_is_local() -> None:
    assert parse_time("2026-01-31T12:00:00") == datetime(2026, 1, 31, 12).astimezone()
    assert parse_time("2026-01-31T12:00:00").tzinfo is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noon",
        "5m",
        "ago",
        "5 parsecs ago",
        "2026-02-30",
        "2026-01-31T25:00:00Z",
        "²²²²²",
        "9" * 30,
        "9" * 5000,
        "9" * 12 + "d ago",
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_no_times(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("42", 42),
        ("99999999999", 99_999_999_999),
        ("1769860800000", NOON),
        ("2026-01-31T12:00:00Z", NOON),
    ],
)
def test_places(text: str, place: object) -> None:
    assert parse_start(text) == place


@pytest.mark.parametrize("text", ["", "first", "-1", "1.5", "²", "Earliest"])
def test_no_places(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_start(text)


@pytest.mark.parametrize("parse", [parse_duration, parse_rate, parse_share, parse_heap, parse_time, parse_start])
@given(text=st.one_of(st.text(), st.from_regex(r"[0-9.٣²]{0,20}(ms|s|m|h|d|/s|/m|%|g| ago)?", fullmatch=True)))
@example(text="1e400")
@example(text=ENDLESS)
@example(text=f"{ENDLESS}s ago")
def test_any_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(InvalidOption):
        parse(text)


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=9, minutes=30))])


@given(moment=st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES))
def test_any_iso_time_is_read(moment: datetime) -> None:
    assert parse_time(moment.isoformat()) == moment


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.34, "340 ms"), (12.44, "12.4 s"), (200, "3 m 20 s"), (7500, "2 h 5 m"), (3599.7, "1 h 0 m")],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (3400, "3.4 KB"), (1_200_000_000, "1.2 GB"), (5e15, "5000.0 TB")],
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert format_bytes(count) == text


def test_how_far_behind() -> None:
    assert (parse_backlog("10000").records, parse_backlog("1m30s").seconds) == (10_000, 90.0)
    assert [str(parse_backlog(text)) for text in ("10000", "30s")] == ["10,000 records", "30.0 s"]
    for wrong in ("", "many", "-1", "10 s", ENDLESS):
        with pytest.raises(InvalidOption):
            parse_backlog(wrong)


def test_so_many_of_something() -> None:
    assert [format_count(number, "row") for number in (0, 1, 2, 1234)] == ["0 rows", "1 row", "2 rows", "1,234 rows"]
    assert [format_count(2, noun) for noun in ("batch", "query", "key", "dead letter")] == [
        "2 batches",
        "2 queries",
        "2 keys",
        "2 dead letters",
    ]
