"""X's filtered stream, spoken by a server on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import FEEDS, Run
from millrace.feeds.x import X, split_rules

from .servers import Exchange, Site, gather, in_turn, quicken, refuse

DISCONNECT = {"errors": [{"title": "operational-disconnect", "detail": "disconnected for operational reasons"}]}
CROWDED = {"title": "ConnectionException", "connection_issue": "TooManyConnections", "detail": "at the limit"}


def post(number: int) -> dict[str, Any]:
    data = {"id": str(number), "text": "hello", "created_at": f"2026-01-01T00:00:{number:02}.000Z"}
    return {"data": data, "matching_rules": [{"id": "1"}]}


def stream(*messages: dict[str, Any], ends: bool = False) -> Callable[[Exchange], None]:
    def answer(exchange: Exchange) -> None:
        exchange.start("application/json")
        exchange.send(b"\r\n")
        for message in messages:
            line = json.dumps(message).encode() + b"\r\n"
            exchange.send(line[:7])
            exchange.send(line[7:] + b"\r\n")
        if ends:
            exchange.send(b'{"data": {"id": "half')
            exchange.drop()
        exchange.hold()

    return answer


def with_rules(
    present: list[str], answer: Callable[[Exchange], None], errors: object = None
) -> Callable[[Exchange], None]:
    def route(exchange: Exchange) -> None:
        if not exchange.path.endswith("/rules"):
            answer(exchange)
        elif exchange.method == "GET":
            exchange.reply(200, {"data": [{"id": "1", "value": rule} for rule in present]} if present else {"meta": {}})
        else:
            exchange.reply(201, {"meta": {"summary": {}}, **({"errors": errors} if errors else {})})

    return route


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(monkeypatch, X)
    monkeypatch.setenv("X_BEARER_TOKEN", "secret")


def test_is_a_feed() -> None:
    assert FEEDS.load("x") is X


def test_a_record_is_the_post_as_it_came_with_its_id_and_time() -> None:
    with Site(stream(post(7))) as site:
        [record] = gather(X(url=site.url), Run(), 1)
    assert record.value == json.dumps(post(7)).encode()
    assert (record.key, record.timestamp) == (b"7", 1_767_225_607_000)
    [request] = site.requests
    assert request.path == "/2/tweets/search/stream"
    assert request.params == {"tweet.fields": "author_id,created_at,lang"}
    assert request.headers["authorization"] == "Bearer secret"


def test_a_post_with_errors_about_parts_of_it_is_a_post() -> None:
    partial = {**post(1), "errors": [{"title": "Not Found Error"}]}
    with Site(stream(partial)) as site:
        assert len(gather(X(url=site.url), Run(), 1)) == 1


def test_rules_that_are_missing_are_added_and_none_is_deleted() -> None:
    with Site(with_rules(["old", "#spark"], stream(post(1)))) as site:
        gather(X(url=site.url, rule='#spark, #kafka lang:en,"a, b"'), Run(), 1)
    posted = [json.loads(request.body) for request in site.requests if request.method == "POST"]
    assert posted == [{"add": [{"value": "#kafka lang:en"}, {"value": '"a, b"'}]}]


def test_rules_that_are_there_are_left_alone_and_set_only_once() -> None:
    answers = in_turn(stream(post(1), ends=True), stream(post(2)))
    with Site(with_rules(["#spark"], answers)) as site:
        gather(X(url=site.url, rule="#spark"), Run(), 2)
    assert [request.path.rpartition("/")[2] for request in site.requests] == ["rules", "stream", "stream"]


def test_a_rule_that_x_does_not_take_is_final() -> None:
    errors = [
        {"title": "DuplicateRule"},
        {"title": "Invalid Rule", "value": "((", "details": ["no viable alternative"]},
    ]
    with Site(with_rules([], stream(), errors)) as site, pytest.raises(FeedFailed) as caught:
        gather(X(url=site.url, rule="(("), Run(), 1)
    assert caught.value.why == "no viable alternative"


def test_a_rule_that_was_there_all_the_same_is_no_error() -> None:
    with Site(with_rules([], stream(post(1)), [{"title": "DuplicateRule"}])) as site:
        assert len(gather(X(url=site.url, rule="a"), Run(), 1)) == 1


def test_a_broken_connection_is_made_again_and_what_is_sent_twice_is_left_out() -> None:
    said: list[str] = []
    answers = in_turn(stream(post(1), post(2), ends=True), stream(post(2), DISCONNECT), stream(post(2), post(3)))
    with Site(answers) as site:
        records = gather(X(url=site.url, backfill_minutes=2), Run(notify=said.append), 3)
    assert [record.key for record in records] == [b"1", b"2", b"3"]
    assert [request.params["backfill_minutes"] for request in site.requests] == ["2", "2", "2"]
    assert any("operational-disconnect: disconnected for operational reasons" in line for line in said)


def test_what_passes_is_tried_again() -> None:
    answers = [refuse(503), refuse(429, CROWDED), stream(CROWDED), stream(), stream(post(1))]
    said: list[str] = []
    with Site(in_turn(*answers)) as site:
        assert len(gather(X(url=site.url, idle=0.1), Run(notify=said.append), 1)) == 1
    told = [line for line in said if "connecting again" in line]
    assert all(why in line for why, line in zip(("503", "429", "at the limit", "nothing came"), told, strict=False))


@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_a_refusal_is_final_and_does_not_show_the_token(status: int) -> None:
    with Site(refuse(status, {"title": "No", "detail": "because"})) as site, pytest.raises(FeedFailed) as caught:
        gather(X(url=site.url), Run(), 1)
    assert caught.value.why == "No: because"
    assert not any("secret" in line for line in caught.value.lines())
    assert len(site.requests) == 1


def test_a_plan_that_is_used_up_is_final_though_it_is_a_429() -> None:
    capped = refuse(429, {"title": "UsageCapExceeded", "detail": "Usage cap exceeded: Monthly product cap"})
    with Site(capped) as site, pytest.raises(FeedFailed, match="used up"):
        gather(X(url=site.url), Run(), 1)


@pytest.mark.parametrize(
    ("answer", "wait"),
    [
        (refuse(503), "5.0 s"),
        (refuse(429), "1 m 0 s"),
        (refuse(429, retry_after="90"), "1 m 30 s"),
        (stream(ends=True), "250 ms"),
        (stream(CROWDED), "1 m 0 s"),
    ],
)
def test_waits_as_long_as_x_documents(
    answer: Callable[[Exchange], None], wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("X_BEARER_TOKEN", "secret")
    said: list[str] = []

    def notify(text: str) -> None:
        said.append(text)
        if "connecting again" in text:
            run.stop.set()

    run = Run(notify=notify)
    with Site(answer) as site:
        assert gather(X(url=site.url), run, 1) == []
    assert said[-1].endswith(f"connecting again in {wait}")


def test_needs_a_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("X_BEARER_TOKEN")
    with pytest.raises(InvalidOption, match="bearer token"):
        X().batches(Run())


@pytest.mark.parametrize("minutes", [-1, 6])
def test_backfill_is_at_most_five_minutes(minutes: int) -> None:
    with pytest.raises(InvalidOption):
        X(backfill_minutes=minutes).batches(Run())


@pytest.mark.parametrize(
    ("text", "rules"),
    [("", []), ("a", ["a"]), (" a , b ,", ["a", "b"]), ('"a,b" c,d', ['"a,b" c', "d"]), ('"a,b', ['"a', "b"])],
)
def test_commas_part_rules(text: str, rules: list[str]) -> None:
    assert split_rules(text) == rules
