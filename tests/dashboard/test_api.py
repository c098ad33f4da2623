"""Questions over HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson

from millrace.dashboard.run_interface import DeadLetterQuery, LetterGroup
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.errors import InputError, KafkaUnreachable, NotReady, RedriveBusy
from millrace.telemetry.channels import Channels
from millrace.telemetry.metrics import Health

Serve = Callable[..., Dashboard]


def test_state_pipeline_and_queries(serve: Serve, channels: Channels) -> None:
    channels.slot("state").set({"phase": "running", "queries": [{"name": "a/b", "rows": 5}]})
    channels.row_buffer("history:a/b", 5).append({"batch": 1, "ms": math.nan})
    address = serve().address
    assert httpx.get(f"{address}api/state").json()["phase"] == "running"
    assert httpx.get(f"{address}api/pipeline").json() == {"name": "test", "actions": True}
    query = httpx.get(f"{address}api/queries/a/b").json()
    assert (query["rows"], query["history"]) == (5, [{"batch": 1, "ms": None}])
    missing = httpx.get(f"{address}api/queries/b")
    assert missing.status_code == 404
    assert "'a/b'" in missing.json()["hint"] or "a/b" in missing.json()["hint"]


def test_before_anything_is_known(serve: Serve) -> None:
    address = serve().address
    assert httpx.get(f"{address}api/state").json() == {}
    assert httpx.get(f"{address}metrics").status_code == 200


def test_health(serve: Serve) -> None:
    ill = Health(False, False, ("query popular failed: no",))
    address = serve(health=lambda: ill).address
    told = httpx.get(f"{address}healthz")
    assert (told.status_code, told.json()) == (503, {"healthy": False, "reasons": ["query popular failed: no"]})
    assert httpx.get(f"{address}readyz").status_code == 503
    assert "millrace_healthy 0.0\n" in httpx.get(f"{address}metrics").text
    assert httpx.get(f"{address}metrics").headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_a_run_without_kafka(serve: Serve) -> None:
    address = serve().address
    for path in ("api/topics", "api/topics/posts", "api/dead", "api/dead/export"):
        told = httpx.get(f"{address}{path}")
        assert told.status_code == 404, path
        assert told.json()["error"] == "this run uses no Kafka"


def test_records(serve: Serve) -> None:
    asked: list[tuple[str, str, int]] = []

    def records(*given: Any) -> list[Mapping[str, Any]]:
        asked.append(given)
        return [{"value": "<b>"}]

    address = serve(records=records).address
    assert httpx.get(f"{address}api/topics/posts?from=earliest&max=7").json() == [{"value": "<b>"}]
    assert httpx.get(f"{address}api/topics/posts").status_code == 200
    assert asked == [("posts", "earliest", 7), ("posts", "newest", 100)]
    assert httpx.get(f"{address}api/topics/posts?max=many").status_code == 400
    assert httpx.get(f"{address}api/topics/posts?max=99999999999999999999").status_code == 200
    assert asked[-1][2] == 1000


def test_a_kafka_that_does_not_answer(serve: Serve) -> None:
    def topics() -> list[Mapping[str, Any]]:
        raise KafkaUnreachable("no broker answers", hint="start it")

    told = httpx.get(f"{serve(topics=topics).address}api/topics")
    assert (told.status_code, told.json()) == (502, {"error": "no broker answers", "hint": "start it", "why": None})


def test_dead_letters_and_their_export(serve: Serve) -> None:
    asked: list[DeadLetterQuery] = []

    def letters(wanted: DeadLetterQuery) -> Iterator[Mapping[str, Any]]:
        asked.append(wanted)
        for number in range(min(wanted.most or 5, 5)):
            yield {"reason": "</script>", "value": "eA==", "n": number}

    address = serve(letters=letters).address
    assert len(httpx.get(f"{address}api/dead?source=posts&reason=a%20b&max=2").json()) == 2
    assert asked == [DeadLetterQuery("posts", "a b", 2)]
    httpx.get(f"{address}api/dead?topic=posts.dead")
    assert asked.pop() == DeadLetterQuery(None, None, 100, "posts.dead")
    exported = httpx.get(f"{address}api/dead/export?source=posts")
    assert exported.headers["content-disposition"].startswith("attachment; filename=")
    assert [orjson.loads(line)["n"] for line in exported.text.splitlines()] == [0, 1, 2, 3, 4]
    assert asked[-1] == DeadLetterQuery("posts", None, None)


def test_sql(serve: Serve) -> None:
    asked: list[tuple[str, int]] = []

    def answer(sql: str, most: int) -> Mapping[str, Any]:
        asked.append((sql, most))
        if not sql.startswith("SELECT"):
            raise InputError("only SELECT", hint="write SELECT")
        return {"columns": ["a"], "rows": [[math.inf], [2**60]]}

    address = serve(sql=answer).address
    told = httpx.post(f"{address}api/sql", json={"sql": "SELECT 1", "rows": 10**9})
    assert told.json() == {"columns": ["a"], "rows": [[None], [str(2**60)]]}
    assert asked == [("SELECT 1", 10_000)]
    refused = httpx.post(f"{address}api/sql", json={"sql": "DROP TABLE x"})
    assert (refused.status_code, refused.json()["hint"]) == (400, "write SELECT")
    wrong = ({"sql": "SELECT 1", "rows": rows} for rows in ("x", -1, 0, None, 1.5, True))
    for body in ({}, {"sql": 5}, [], *wrong):
        assert httpx.post(f"{address}api/sql", json=body).status_code == 400
    assert httpx.post(f"{address}api/sql", json={"sql": "x" * 300_000}).status_code == 413
    assert httpx.get(f"{address}api/sql").status_code == 405


def test_what_is_not_there_is_told_as_json(serve: Serve) -> None:
    address = serve().address
    for status, told in (
        (404, httpx.get(f"{address}api/nosuch")),
        (404, httpx.get(f"{address}api/state/more")),
        (405, httpx.delete(f"{address}api/state")),
    ):
        assert (told.status_code, told.headers["content-type"]) == (status, "application/json")
        assert told.json().keys() == {"error", "hint", "why"}


def test_sql_while_spark_starts_and_read_only(serve: Serve) -> None:
    def answer(sql: str, most: int) -> Mapping[str, Any]:
        raise NotReady("Spark is starting", hint="ask again")

    told = httpx.post(f"{serve(sql=answer).address}api/sql", json={"sql": "SELECT 1"})
    assert (told.status_code, told.json()["error"]) == (503, "Spark is starting")
    address = serve(ServerOptions(port=0, read_only=True), sql=lambda *_: {}).address
    assert httpx.post(f"{address}api/sql", json={"sql": "SELECT 1"}).status_code == 403
    assert httpx.get(f"{address}api/pipeline").json()["actions"] is False


def test_redrive(serve: Serve) -> None:
    asked: list[LetterGroup] = []

    def redrive(group: LetterGroup) -> Mapping[str, Any]:
        asked.append(group)
        if group.letter:
            raise RedriveBusy("letters are being sent again at this moment")
        return {"sent": 3}

    address = f"{serve(redrive=redrive).address}api/dead/redrive"
    told = httpx.post(address, json={"source": "posts", "topic": "posts.dead", "reason": "not JSON"})
    assert (told.status_code, told.json()) == (200, {"sent": 3})
    assert httpx.post(address, json={"source": "posts", "letter": "posts.dead[0]@7"}).status_code == 409
    assert asked == [LetterGroup("posts", "posts.dead", "not JSON"), LetterGroup("posts", letter="posts.dead[0]@7")]
    for body in ({}, [], {"source": 5}, {"source": "posts", "topic": 5}, {"topic": "posts.dead"}):
        assert httpx.post(address, json=body).status_code == 400
    assert httpx.post(address, content=b'{"source": "posts"}').status_code == 415
    foreign = httpx.post(address, json={"source": "posts"}, headers={"origin": "http://elsewhere.example"})
    assert foreign.status_code == 403
    assert httpx.get(address).status_code == 405
    read_only = serve(ServerOptions(port=0, read_only=True), redrive=redrive).address
    assert httpx.post(f"{read_only}api/dead/redrive", json={"source": "posts"}).status_code == 403
    assert len(asked) == 2


def test_the_event_stream_has_the_same_frames(serve: Serve, channels: Channels) -> None:
    ring = channels.row_buffer("events", 5)
    ring.append({"text": "a\n\nb"})
    with httpx.stream("GET", f"{serve().address}api/events?channels=events,nonsense", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line)
        assert orjson.loads(next(lines))["type"] == "hello"
        assert orjson.loads(next(lines))["channel"] == "nonsense"
        first = orjson.loads(next(lines))
        assert first["channels"]["events"]["data"]["columns"]["text"] == ["a\n\nb"]
        ring.append({"text": "c"})
        second = orjson.loads(next(lines))
        assert second["channels"]["events"]["kind"] == "append"


def test_the_page_or_how_to_build_it(serve: Serve, tmp_path: Path) -> None:
    assert "make setup" in httpx.get(serve().address).text
    built = tmp_path / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<title>built</title>")
    (built / "assets" / "main.js").write_text("let a")
    (built / "icon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    address = serve(static=built).address
    assert httpx.get(address).text == "<title>built</title>"
    assert "javascript" in httpx.get(f"{address}assets/main.js").headers["content-type"]
    assert httpx.get(f"{address}icon.svg").status_code == 200
    for path in ("..%2fsecret.txt", "assets/..%2f..%2fsecret.txt", ".env", "nothing"):
        assert httpx.get(f"{address}{path}").status_code == 404, path
