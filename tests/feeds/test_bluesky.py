"""Bluesky's Jetstream, spoken by a server on this machine."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import FEEDS, Cursor, Run
from millrace.feeds.bluesky import OVERLAP_US, Bluesky, event_id
from millrace.feeds.public_streams.backoff import Backoff

from .servers import Log, gather, jetstream, mute_websocket, quicken

BEGAN = 1_767_225_600_000_000


def commit(number: int, collection: str = "app.bsky.feed.post", operation: str = "create") -> dict[str, Any]:
    about = {"rev": f"r{number}", "operation": operation, "collection": collection, "rkey": f"k{number}"}
    return {"did": "did:plc:a", "time_us": BEGAN + number * 1_000_000, "kind": "commit", "commit": about}


def account(number: int) -> dict[str, Any]:
    at = BEGAN + number * 1_000_000
    return {"did": "did:plc:a", "time_us": at, "kind": "account", "account": {"active": True, "seq": number}}


def keys(*numbers: int) -> list[bytes]:
    return [b"did:plc:a/app.bsky.feed.post/k%d/r%d" % (number, number) for number in numbers]


def cursors(requests: list[str]) -> list[int | None]:
    found = [parse_qs(urlsplit(path).query).get("cursor") for path in requests]
    return [int(values[0]) if values else None for values in found]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(monkeypatch, Bluesky)


def test_is_a_feed() -> None:
    assert FEEDS.load("bluesky") is Bluesky


def test_a_record_is_the_event_as_it_came_with_its_id_and_time() -> None:
    with jetstream(Log([commit(1)])) as (url, requests):
        [record] = gather(Bluesky(url=url), Run(), 1)
    assert record.value == json.dumps(commit(1)).encode()
    assert (record.key, record.timestamp) == (keys(1)[0], BEGAN // 1000 + 1000)
    assert requests == ["/subscribe?wantedCollections=app.bsky.feed.post"]


def test_asks_for_the_collections_that_are_wanted() -> None:
    events = [commit(1), commit(2, "app.bsky.feed.like"), commit(3, "app.bsky.graph.follow")]
    with jetstream(Log(events)) as (url, _):
        records = gather(Bluesky(url=url, collections="app.bsky.feed.like, app.bsky.graph.follow"), Run(), 2)
    assert [record.value for record in records] == [json.dumps(event).encode() for event in events[1:]]


def test_events_about_accounts_come_only_if_asked_for() -> None:
    with jetstream(Log([account(1), commit(2)])) as (url, _):
        assert [record.key for record in gather(Bluesky(url=url), Run(), 1)] == keys(2)
        both = gather(Bluesky(url=url, accounts=True), Run(), 2)
    assert [record.key for record in both] == [b"did:plc:a/account/1", *keys(2)]


def test_the_deletion_of_a_post_is_another_event_than_the_post() -> None:
    post, gone = commit(1), commit(1, operation="delete")
    gone["commit"]["rev"] = "r9"
    assert event_id(post) != event_id(gone)


@pytest.mark.parametrize("event", [{}, {"kind": "commit"}, {"kind": "commit", "commit": {}}, {"kind": 1, "did": "a"}])
def test_what_is_no_event_has_no_identity(event: dict[str, Any]) -> None:
    assert event_id(event) is None


def test_a_broken_connection_loses_nothing_and_repeats_nothing() -> None:
    log = Log([commit(number) for number in range(20)], breaks=[7, 9, 8])
    said: list[str] = []
    with jetstream(log) as (url, requests):
        records = gather(Bluesky(url=url), Run(notify=said.append), 20)
    assert [record.key for record in records] == keys(*range(20))
    # Each connection begins five seconds before the last event of the one before.
    assert cursors(requests) == [None, *(BEGAN + after * 1_000_000 - OVERLAP_US for after in (6, 9, 11))]
    assert sum("connecting again" in line for line in said) == 3


def test_the_next_run_goes_on_where_the_sink_had_come(tmp_path: Path) -> None:
    cursor = Cursor(tmp_path / "cursor")
    with jetstream(Log([commit(number) for number in range(20)])) as (url, requests):
        confirmed = gather(Bluesky(url=url), Run(cursor=cursor, count=12), 12)
        rest = gather(Bluesky(url=url), Run(cursor=cursor), 13)
    assert cursors(requests) == [None, BEGAN + 11 * 1_000_000 - OVERLAP_US]
    assert {record.key for record in confirmed + rest} == set(keys(*range(20)))


def test_a_batch_that_failed_is_not_passed_by_the_position(tmp_path: Path) -> None:
    cursor = Cursor(tmp_path / "cursor")
    with jetstream(Log([commit(number) for number in range(9)])) as (url, _):
        batches = Bluesky(url=url).batches(Run(cursor=cursor))
        done = next(batches).done
        assert done is not None
        failing = threading.Thread(target=done, args=(FeedFailed("the broker is gone"),))
        failing.start()
        failing.join()
    assert cursor.load() is None


def test_another_host_is_tried_when_one_is_away() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"ws://127.0.0.1:{nobody.getsockname()[1]}/subscribe"
        with jetstream(Log([commit(1)])) as (url, _):
            assert len(gather(Bluesky(url=f"{away},{url}"), Run(), 1)) == 1


def test_events_that_the_host_no_longer_has_are_told(tmp_path: Path) -> None:
    cursor, said = Cursor(tmp_path / "cursor"), []
    with jetstream(Log([commit(1)])) as (url, _):
        gather(Bluesky(url=url), Run(cursor=cursor), 1)
    with jetstream(Log([commit(3601)])) as (url, _):
        gather(Bluesky(url=url), Run(cursor=cursor, notify=said.append), 1)
    assert any("1 h 0 m are missing" in line for line in said)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_final(status: int) -> None:
    with jetstream(Log([]), refusals=[(status, {})]) as (url, requests), pytest.raises(FeedFailed):
        gather(Bluesky(url=url), Run(), 1)
    assert len(requests) == 1


def test_what_passes_is_tried_again() -> None:
    with jetstream(Log([commit(1)]), refusals=[(503, {}), (429, {"Retry-After": "0"})]) as (url, requests):
        assert len(gather(Bluesky(url=url), Run(), 1)) == 1
    assert len(requests) == 3


def test_a_server_that_is_busy_is_asked_again_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bluesky, "backoff", Backoff())
    said: list[str] = []

    def notify(text: str) -> None:
        said.append(text)
        run.stop.set()

    run = Run(notify=notify)
    with jetstream(Log([]), refusals=[(429, {"Retry-After": "33"})]) as (url, _):
        assert gather(Bluesky(url=url), run, 1) == []
    assert said == ["bluesky: 127.0.0.1 answers 429; connecting again in 33.0 s"]


def test_a_connection_without_a_sign_of_life_is_given_up() -> None:
    """The server accepts the handshake and then does not even answer a ping."""
    said: list[str] = []
    with jetstream(Log([commit(1)])) as (url, _), mute_websocket() as mute:
        assert len(gather(Bluesky(url=f"{mute},{url}", idle=0.2), Run(notify=said.append), 1)) == 1
    assert any("connecting again" in line for line in said)


def test_stops_at_once_while_nothing_comes() -> None:
    with jetstream(Log([commit(1)])) as (url, _):
        run = Run()
        batches = Bluesky(url=url).batches(run)
        next(batches)
        began = time.monotonic()
        run.stop.set()
        assert list(batches) == []
        assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(
    "options", [{"url": "https://bsky.network"}, {"url": " , "}, {"collections": ",".join(map(str, range(101)))}]
)
def test_options_that_cannot_be_are_told_before_anything_is_read(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        Bluesky(**options).batches(Run())
