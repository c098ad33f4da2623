"""Wikimedia's EventStreams, spoken by a server on this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import FEEDS, Cursor, Run
from millrace.feeds.public_streams.backoff import Backoff
from millrace.feeds.wikimedia import OVERLAP_MS, Wikimedia, newest_id, rewound_id

from .servers import Exchange, Log, Site, event_stream, gather, in_turn, quicken, refuse

BEGAN = 1_767_225_600_000


def change(number: int, *, millis: int | None = None, domain: str = "en.wikipedia.org") -> dict[str, Any]:
    at = BEGAN + (number * 5000 if millis is None else millis)
    return {"meta": {"id": f"id-{number}", "domain": domain, "dt": f"2026-01-01T00:00:{number % 60:02}Z"}, "at": at}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(monkeypatch, Wikimedia)


def test_is_a_feed() -> None:
    assert FEEDS.load("wikimedia") is Wikimedia


def test_a_record_is_the_event_as_it_came_with_its_id_and_time() -> None:
    with Site(event_stream(Log([change(3)]))) as site:
        [record] = gather(Wikimedia(url=f"{site.url}/v2/stream/"), Run(), 1)
    assert record.value == json.dumps(change(3)).encode()
    assert (record.key, record.timestamp) == (b"id-3", BEGAN + 3000)
    assert site.requests[0].path == "/v2/stream/recentchange"


def test_says_who_it_is() -> None:
    with Site(event_stream(Log([change(1)]))) as site:
        gather(Wikimedia(url=site.url, contact="someone@example.org"), Run(), 1)
    assert site.requests[0].headers["user-agent"].startswith("millrace/")
    assert "(someone@example.org)" in site.requests[0].headers["user-agent"]


def test_canaries_are_left_out_and_what_is_no_json_is_not() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.start()
        for event in (change(1, domain="canary"), change(2)):
            exchange.send(b"data: %s\n\n" % json.dumps(event).encode())
        exchange.send(b"data: not JSON\n\ndata: [1]\n\n")
        exchange.hold()

    with Site(answer) as site:
        records = gather(Wikimedia(url=site.url), Run(), 3)
    assert [(record.key, record.value) for record in records[1:]] == [(None, b"not JSON"), (None, b"[1]")]
    assert records[0].key == b"id-2"


def test_a_broken_connection_loses_nothing_and_repeats_nothing() -> None:
    log = Log([change(number) for number in range(10)], breaks=[3, 2, 4])
    said: list[str] = []
    with Site(event_stream(log)) as site:
        records = gather(Wikimedia(url=site.url), Run(notify=said.append), 10)
    assert [record.key for record in records] == [b"id-%d" % number for number in range(10)]
    resumed = [json.loads(request.headers["last-event-id"])[0]["timestamp"] for request in site.requests[1:]]
    assert resumed == [BEGAN + after * 5000 + 1 - OVERLAP_MS for after in (2, 3, 6)]
    assert sum("connecting again" in line for line in said) == 3


def test_events_of_one_millisecond_are_all_there_though_the_connection_broke_between_them() -> None:
    log = Log([change(number, millis=number // 4) for number in range(8)], breaks=[2, 5])
    with Site(event_stream(log)) as site:
        records = gather(Wikimedia(url=site.url), Run(), 8)
    assert [record.key for record in records] == [b"id-%d" % number for number in range(8)]


def test_the_next_run_goes_on_where_the_sink_had_come(tmp_path: Path) -> None:
    run = Run(cursor=Cursor(tmp_path / "cursor"))
    log = Log([change(number) for number in range(8)])
    with Site(event_stream(log)) as site:
        feed = Wikimedia(url=site.url)
        confirmed = gather(feed, Run(cursor=run.cursor, count=3), 3)
        unconfirmed = next(feed.batches(Run(cursor=run.cursor)))
        rest = gather(feed, run, 5)
    assert len(confirmed) == 3
    # What the sink never confirmed comes again, and so does the last event that it did.
    assert unconfirmed.records[0].key == rest[0].key == b"id-2"
    assert {record.key for record in confirmed + rest} == {b"id-%d" % number for number in range(8)}


def test_the_position_in_another_stream_is_not_used(tmp_path: Path) -> None:
    cursor = Cursor(tmp_path / "cursor")
    with Site(event_stream(Log([change(1)]))) as site:
        gather(Wikimedia(url=site.url), Run(cursor=cursor), 1)
        gather(Wikimedia(url=site.url, stream="page-create"), Run(cursor=cursor), 1)
    assert "last-event-id" not in site.requests[1].headers


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_final(status: int) -> None:
    with Site(refuse(status, {"detail": "because"})) as site, pytest.raises(FeedFailed) as caught:
        gather(Wikimedia(url=site.url), Run(), 1)
    assert caught.value.why == "because"
    assert len(site.requests) == 1


def test_a_server_that_is_busy_is_asked_again_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wikimedia, "backoff", Backoff())
    said: list[str] = []

    def notify(text: str) -> None:
        said.append(text)
        if "connecting again" in text:
            run.stop.set()

    run = Run(notify=notify)
    began = time.monotonic()
    with Site(refuse(429, b"slow down", retry_after="40")) as site:
        assert gather(Wikimedia(url=site.url), run, 1) == []
    assert said == ["wikimedia: Wikimedia answers 429 (slow down); connecting again in 40.0 s"]
    assert time.monotonic() - began < 2.0


def test_what_passes_is_tried_again() -> None:
    def failing(exchange: Exchange) -> None:
        exchange.start()
        exchange.send(b'event: error\ndata: {"message": "Kafka is away"}\n\n')
        exchange.hold()

    def stalled(exchange: Exchange) -> None:
        exchange.start()
        exchange.send(b":ok\n\n")
        exchange.hold()

    answers = [refuse(503), refuse(429, retry_after="0"), failing, stalled, event_stream(Log([change(1)]))]
    said: list[str] = []
    with Site(in_turn(*answers)) as site:
        [record] = gather(Wikimedia(url=site.url, idle=0.1), Run(notify=said.append), 1)
    assert record.key == b"id-1"
    told = [line for line in said if "connecting again" in line]
    assert all(why in line for why, line in zip(("503", "429", "Kafka is away", "nothing came"), told, strict=False))


def test_a_wrong_address_is_told_before_anything_is_read() -> None:
    with pytest.raises(InvalidOption):
        Wikimedia(url="stream.wikimedia.org").batches(Run())


class TestRewinding:
    def test_moves_every_topic_back(self) -> None:
        last = [{"topic": "a", "partition": 0, "timestamp": 9000}, {"topic": "b", "partition": 1, "timestamp": 8000}]
        moved = json.loads(rewound_id(json.dumps(last)))
        assert [place["timestamp"] for place in moved] == [9000 - OVERLAP_MS, 8000 - OVERLAP_MS]
        assert [(place["topic"], place["partition"]) for place in moved] == [("a", 0), ("b", 1)]

    def test_a_topic_that_was_silent_goes_on_from_when_the_last_event_came(self) -> None:
        last = [{"topic": "a", "partition": 0, "timestamp": 9000}, {"topic": "b", "partition": 0, "offset": -1}]
        assert json.loads(rewound_id(json.dumps(last)))[1] == {
            "topic": "b",
            "partition": 0,
            "timestamp": 9000 - OVERLAP_MS,
        }

    @pytest.mark.parametrize("last", ['[{"topic":"a","partition":0,"offset":17}]', "17", "abc", '"a"', "[1]"])
    def test_leaves_alone_what_is_no_time(self, last: str) -> None:
        assert rewound_id(last) == last


class TestPosition:
    def test_never_goes_back_in_any_topic(self) -> None:
        far = '[{"topic":"a","partition":0,"timestamp":9000},{"topic":"b","partition":0,"timestamp":5000}]'
        near = '[{"topic":"a","partition":0,"timestamp":8000},{"topic":"b","partition":0,"timestamp":6000}]'
        reached = json.loads(newest_id(far, near) or "")
        assert [place["timestamp"] for place in reached] == [9000, 6000]

    def test_is_the_latest_where_there_is_nothing_to_compare(self) -> None:
        assert newest_id(None, "[]") == "[]"
        assert newest_id("17", "18") == "18"
        assert newest_id("17", "") == "17"
        assert newest_id(None, "") is None

    def test_is_saved_only_forwards(self, tmp_path: Path) -> None:
        saved: list[int] = []

        class Watched(Cursor):
            def save(self, position: str) -> None:
                saved.append(json.loads(json.loads(position)["position"])[0]["timestamp"])

        log = Log([change(number, millis=number * 100) for number in range(30)], breaks=[9, 15, 12])
        with Site(event_stream(log)) as site:
            gather(Wikimedia(url=site.url), Run(cursor=Watched(tmp_path / "cursor")), 30)
        assert saved == sorted(saved)
        assert saved[-1] == BEGAN + 2900 + 1
