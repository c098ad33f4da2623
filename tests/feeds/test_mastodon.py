"""A Mastodon server's stream and timeline, spoken by a server on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import FEEDS, Cursor, Run
from millrace.feeds.mastodon import OVERLAP_MS, Mastodon, rewound_id
from millrace.feeds.public_streams.backoff import Backoff

from .servers import Exchange, Site, Timeline, gather, in_turn, quicken, refuse

BEGAN = 1_767_225_600_000


def status(number: int, **more: object) -> dict[str, Any]:
    """A post of so many minutes after the beginning, with an id as Mastodon makes them: its milliseconds come first."""
    return {"id": str((BEGAN + number * 60_000) << 16), "created_at": f"2026-01-01T00:{number:02}:00.000Z", **more}


def ids(*numbers: int) -> list[bytes]:
    return [status(number)["id"].encode() for number in numbers]


def updates(*numbers: int) -> list[tuple[str, object]]:
    return [("update", status(number)) for number in numbers]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(monkeypatch, Mastodon)


def test_is_a_feed() -> None:
    assert FEEDS.load("mastodon") is Mastodon


def test_a_record_is_the_post_as_it_came_with_its_id_and_time() -> None:
    with Site(Timeline([], [updates(3)])) as site:
        [record] = gather(Mastodon(instance=site.url), Run(), 1)
    assert record.value == json.dumps(status(3)).encode()
    assert (record.key, record.timestamp, record.headers) == (ids(3)[0], BEGAN + 180_000, (("event", b"update"),))


def test_edits_and_deletions_say_what_they_are_and_other_events_are_none() -> None:
    edited = status(1, edited_at="2026-01-01T00:09:00.000Z")
    live = [*updates(1), ("status.update", edited), ("announcement", {"id": "1"}), ("delete", status(1)["id"])]
    with Site(Timeline([], [live])) as site:
        _, edit, deletion = gather(Mastodon(instance=site.url), Run(), 3)
    assert (edit.headers, edit.key, edit.timestamp) == ((("event", b"status.update"),), ids(1)[0], BEGAN + 540_000)
    assert (deletion.headers, deletion.key) == ((("event", b"delete"),), ids(1)[0])
    assert json.loads(deletion.value or b"") == {"event": "delete", "id": status(1)["id"]}


def test_what_is_posted_while_there_is_no_connection_is_fetched() -> None:
    timeline = Timeline([status(number) for number in range(8)], [updates(0, 1), updates(5), updates(8)])
    said: list[str] = []
    with Site(timeline) as site:
        records = gather(Mastodon(instance=site.url), Run(notify=said.append), 9)
    # After the first break the timeline has everything up to 7; nothing of it comes twice.
    assert [record.key for record in records] == ids(*range(9))
    assert [record.value for record in records] == [json.dumps(status(number)).encode() for number in range(9)]
    assert sum("connecting again" in line for line in said) == 2


def test_the_next_run_fetches_what_was_posted_since(tmp_path: Path) -> None:
    cursor = Cursor(tmp_path / "cursor")
    timeline = Timeline([], [[*updates(0, 1), ("hold", None)], updates(100)])
    with Site(timeline) as site:
        gather(Mastodon(instance=site.url), Run(cursor=cursor), 2)
        timeline.posts += [status(number) for number in range(2, 100)]
        records = gather(Mastodon(instance=site.url), Run(cursor=cursor), 100)
    # From ten seconds before the last one on, in pages of forty.
    assert [record.key for record in records] == ids(*range(1, 101))
    pages = [request.params["min_id"] for request in site.requests if request.path.startswith("/api/v1/timelines")]
    assert pages[:3] == [rewound_id(status(1)["id"]), status(40)["id"], status(80)["id"]]


def test_the_stream_is_open_before_the_missed_posts_are_fetched(tmp_path: Path) -> None:
    with Site(Timeline([status(0), status(1)], [updates(0), updates(2)])) as site:
        gather(Mastodon(instance=site.url), Run(), 3)
    paths = [request.path.rpartition("/")[2] for request in site.requests]
    assert paths[:4] == ["instance", "public", "public", "public"]
    assert [request.path.split("/")[3] for request in site.requests[1:4]] == ["streaming", "streaming", "timelines"]


def test_only_so_many_missed_posts_are_fetched_and_that_is_told() -> None:
    said: list[str] = []
    timeline = Timeline([status(number) for number in range(200)], [updates(0), updates(300)])
    with Site(timeline) as site:
        records = gather(Mastodon(instance=site.url, backlog=50), Run(notify=said.append), 51)
    assert [record.key for record in records] == ids(*range(50), 300)
    assert any("more than 50 posts were missed" in line for line in said)


def test_a_token_goes_to_the_server_that_the_instance_names() -> None:
    with Site(Timeline([], [updates(1)], token="secret")) as other:
        with Site(Timeline([], [], streaming=other.url.replace("http", "ws"))) as site:
            gather(Mastodon(instance=site.url, token="secret"), Run(), 1)
        assert [request.path for request in other.requests] == ["/api/v1/streaming/public"]
        assert other.requests[0].headers["authorization"] == "Bearer secret"


def test_local_posts_have_places_of_their_own() -> None:
    with Site(Timeline([status(0)], [updates(0), updates(1)])) as site:
        gather(Mastodon(instance=site.url, local=True), Run(), 2)
    assert site.requests[1].path == "/api/v1/streaming/public/local"
    assert site.requests[3].params["local"] == "true"


def test_a_missing_token_is_final_and_says_how_to_get_one() -> None:
    with Site(Timeline([], [], token="secret")) as site, pytest.raises(FeedFailed) as caught:
        gather(Mastodon(instance=site.url, token="wrong"), Run(), 1)
    assert caught.value.why == "Missing access token"
    assert "MILLRACE_MASTODON_TOKEN" in (caught.value.hint or "")
    assert not any(token in line for line in caught.value.lines() for token in ("secret", "wrong"))


def test_other_software_streams_from_where_it_is() -> None:
    def answer(exchange: Exchange) -> None:
        refuse(404)(exchange) if exchange.path == "/api/v2/instance" else Timeline([], [updates(1)])(exchange)

    with Site(answer) as site:
        assert len(gather(Mastodon(instance=site.url), Run(), 1)) == 1


def test_what_passes_is_tried_again() -> None:
    timeline = Timeline([], [updates(1)])

    def stalled(exchange: Exchange) -> None:
        exchange.start()
        exchange.hold()

    said: list[str] = []
    answers = [timeline, refuse(502), refuse(429, retry_after="0"), stalled, timeline]
    with Site(in_turn(*answers)) as site:
        assert len(gather(Mastodon(instance=site.url, idle=0.1), Run(notify=said.append), 1)) == 1
    told = [line for line in said if "connecting again" in line]
    assert all(why in line for why, line in zip(("502", "429", "nothing came"), told, strict=False))


def test_a_timeline_that_fails_is_asked_again_for_what_is_still_missing() -> None:
    posts = [status(number) for number in range(90)]
    timeline = Timeline(posts, [updates(0), [], updates(90)])
    failures = iter([None, refuse(500), refuse(200, {"not": "a list"}), refuse(200, b"<html>")])

    def answer(exchange: Exchange) -> None:
        failure = next(failures, None) if exchange.path.startswith("/api/v1/timelines") else None
        timeline.connections = timeline.connections or [updates(90)]
        (failure or timeline)(exchange)

    timeline.connections = [updates(0), [], [], [], updates(90)]
    with Site(answer) as site:
        records = gather(Mastodon(instance=site.url), Run(), 91)
    assert [record.key for record in records] == ids(*range(91))


def test_a_server_that_is_busy_is_asked_again_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mastodon, "backoff", Backoff())
    said: list[str] = []

    def notify(text: str) -> None:
        said.append(text)
        run.stop.set()

    run = Run(notify=notify)
    with Site(refuse(429, {"error": "Too many requests"}, retry_after="44")) as site:
        assert gather(Mastodon(instance=site.url), run, 1) == []
    assert said[0].endswith("answers 429 (Too many requests); connecting again in 44.0 s")


def test_an_id_of_a_little_earlier() -> None:
    assert int(rewound_id(status(1)["id"])) >> 16 == BEGAN + 60_000 - OVERLAP_MS
    assert rewound_id("AbCdEf123") == "AbCdEf123"


def test_a_wrong_instance_is_told_before_anything_is_read() -> None:
    with pytest.raises(InvalidOption):
        Mastodon(instance="ftp://example.org").batches(Run())


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Mastodon(token="secret"))
