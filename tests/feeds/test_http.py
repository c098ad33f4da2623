"""The HTTP endpoint, asked as clients do."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Queue
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed, InvalidOption, NotDelivered, PortInUse
from millrace.feeds.base.api import FEEDS, Batch, Run
from millrace.feeds.base.pump import pump
from millrace.feeds.http import Http
from millrace.feeds.listeners import http_server
from millrace.feeds.listeners.json_payloads import Malformed, elements, from_json, from_ndjson

from .conftest import MemorySink

NDJSON = {"content-type": "application/x-ndjson"}
JSON = {"content-type": "application/json"}


class Endpoint:
    """A feed that runs in a thread; what it gives is confirmed at once, or left in `held` for the test to settle."""

    def __init__(self, feed: Http, *, confirm: bool) -> None:
        self.records: list[Record] = []
        self.held: Queue[Batch] = Queue()
        self.run = Run(notify=self._heard)
        self._confirm = confirm
        self._address = Queue[str]()
        self._thread = threading.Thread(target=self._consume, args=(feed,))
        self._thread.start()
        self.client = httpx.Client(base_url=self._address.get(timeout=5), timeout=10)

    def _heard(self, text: str) -> None:
        self._address.put(text.removeprefix("listening at "))

    def _consume(self, feed: Http) -> None:
        for batch in feed.batches(self.run):
            self.records += batch.records
            if self._confirm and batch.done:
                batch.done(None)
            else:
                self.held.put(batch)
            del batch

    def stop(self) -> None:
        self.run.stop.set()
        self._thread.join()


def end_of_the_server(client: httpx.Client) -> None:
    for thread in threading.enumerate():
        if thread.name == f"millrace-feed-http-{client.base_url.port}":
            thread.join(5)
            assert not thread.is_alive()


@contextmanager
def listening(*, confirm: bool = True, **options: Any) -> Iterator[Endpoint]:
    endpoint = Endpoint(Http(**options), confirm=confirm)
    try:
        yield endpoint
    finally:
        endpoint.stop()
        endpoint.client.close()
        while not endpoint.held.empty():
            endpoint.held.get()
        end_of_the_server(endpoint.client)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    """For requests that leave nothing behind."""
    with listening(max_bytes=1000) as endpoint:
        yield endpoint


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_is_a_feed() -> None:
    assert FEEDS.load("http") is Http


@pytest.mark.parametrize(
    ("headers", "body", "taken"),
    [
        (JSON, b' {"a": 1}\n', [b'{"a": 1}']),
        ({"content-type": "Application/JSON; charset=utf-8"}, b'{"a":"\xc3\xa9"}', [b'{"a":"\xc3\xa9"}']),
        (JSON, b'[{"a": 1}, {"b": [1, 2]} ]', [b'{"a": 1}', b'{"b": [1, 2]}']),
        (JSON, b"[]", []),
        (NDJSON, b'{"a":1}\n\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
        ({"content-type": "application/jsonl"}, b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (NDJSON, b"\n", []),
        (JSON, b'{"n": 123456789012345678901234567890.10}', [b'{"n": 123456789012345678901234567890.10}']),
    ],
)
def test_takes_json_as_it_is(endpoint: Endpoint, headers: dict[str, str], body: bytes, taken: list[bytes]) -> None:
    endpoint.records.clear()
    answer = endpoint.client.post("/", content=body, headers=headers)
    assert (answer.status_code, answer.json()) == (200, {"accepted": len(taken)})
    assert values(endpoint.records) == taken


@pytest.mark.parametrize(
    ("headers", "body", "where", "why"),
    [
        (JSON, b"", {}, "not JSON"),
        (JSON, b"{", {}, "not JSON"),
        (JSON, b"3", {}, "not a JSON object"),
        (JSON, b'{"a": NaN}', {}, "not JSON"),
        (JSON, b'{"a": "\xff"}', {}, "not JSON"),
        (JSON, b'[{"a": 1}, 2, 3]', {"element": 2}, "not a JSON object"),
        (NDJSON, b'{"a": 1}\n\n{"b"\n{"c": 1}\n', {"line": 3}, "not JSON"),
        (NDJSON, b'{"a": 1}\n[]\n', {"line": 2}, "not a JSON object"),
    ],
)
def test_says_what_is_wrong_and_takes_nothing_of_it(
    endpoint: Endpoint, headers: dict[str, str], body: bytes, where: dict[str, int], why: str
) -> None:
    endpoint.records.clear()
    answer = endpoint.client.post("/", content=body, headers=headers)
    told = answer.json()
    assert answer.status_code == 400
    assert why in told.pop("error")
    assert told == where
    assert endpoint.records == []


def test_what_is_nested_too_deeply_is_told(endpoint: Endpoint) -> None:
    depth = 490
    body = b"[" * depth + b"]" * depth
    assert endpoint.client.post("/", content=body, headers=JSON).status_code == 400


@pytest.mark.parametrize(
    "headers", [{}, {"content-type": "text/plain"}, {**JSON, "content-encoding": "gzip"}, {"content-type": "text/json"}]
)
def test_another_content_type_is_not_taken(endpoint: Endpoint, headers: dict[str, str]) -> None:
    assert endpoint.client.post("/", content=b"{}", headers=headers).status_code == 415


def test_a_body_that_is_too_big_is_not_taken(endpoint: Endpoint) -> None:
    fits = b'{"a": "%s"}' % (b"a" * 991)
    assert endpoint.client.post("/", content=fits, headers=JSON).status_code == 200
    assert endpoint.client.post("/", content=fits + b" ", headers=JSON).status_code == 413


def test_a_body_of_unknown_length_is_read_only_as_far_as_it_may_go(endpoint: Endpoint) -> None:
    pieces = iter([b"x" * 600] * 1000)
    assert endpoint.client.post("/", content=pieces, headers=JSON).status_code == 413
    assert endpoint.client.post("/", content=iter([b'{"a":', b"1}"]), headers=JSON).status_code == 200


def test_other_places_and_methods(endpoint: Endpoint) -> None:
    client = endpoint.client
    assert client.get("/healthz").status_code == 200
    assert [client.get("/").status_code, client.post("/elsewhere").status_code] == [405, 404]


class TestKeys:
    @pytest.mark.parametrize(
        ("value", "key"),
        [
            ('"é"', "é".encode()),
            ("17", b"17"),
            ("1.50", b"1.50"),
            ("123456789012345678901234567890", b"123456789012345678901234567890"),
            ("true", b"true"),
        ],
    )
    def test_are_the_values_of_a_field(self, endpoint: Endpoint, value: str, key: bytes) -> None:
        endpoint.records.clear()
        endpoint.client.post("/?key=id", content=f'{{"id": {value}}}'.encode(), headers=JSON)
        assert [record.key for record in endpoint.records] == [key]

    @pytest.mark.parametrize("body", [b"{}", b'{"id": null}', b'{"id": [1]}'])
    def test_must_be_there(self, endpoint: Endpoint, body: bytes) -> None:
        answer = endpoint.client.post("/?key=id", content=b'{"id": 1}\n' + body, headers=NDJSON)
        assert (answer.status_code, answer.json()["line"]) == (400, 2)
        assert "'id'" in answer.json()["error"]

    def test_of_a_request_come_before_those_of_the_feed(self) -> None:
        with listening(key="a") as endpoint:
            for path in ("/", "/?key=b"):
                endpoint.client.post(path, json={"a": "x", "b": "y"})
        assert [record.key for record in endpoint.records] == [b"x", b"y"]


class TestTokens:
    def test_are_asked_for(self) -> None:
        with listening(token="sésame") as endpoint:
            client = endpoint.client
            wrong = ["", "Bearer", "Bearer wrong", "Basic sésame", "sésame"]
            answers = [client.post("/", json={}, headers={"authorization": text.encode()}) for text in wrong]
            assert [answer.status_code for answer in answers] == [401] * 5
            assert answers[0].headers["www-authenticate"] == "Bearer"
            assert endpoint.records == []
            assert client.get("/healthz").status_code == 200
            right = {"authorization": "bearer sésame".encode()}
            assert client.post("/", json={}, headers=right).status_code == 200

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - refused, as it should be
    def test_are_needed_beyond_this_machine(self, host: str) -> None:
        with pytest.raises(InvalidOption, match="token"):
            next(Http(host=host).batches(Run()))

    def test_are_not_shown(self) -> None:
        assert "secret" not in repr(Http(token="secret"))


class TestAddresses:
    def test_a_port_in_use_is_told(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(PortInUse):
            next(Http(port=other.getsockname()[1]).batches(Run()))

    @pytest.mark.parametrize(
        "options",
        [
            {"port": 70000},
            {"port": -1},
            {"host": "no such host"},
            {"max_bytes": 0},
            {"host": "192.0.2.1", "token": "t"},
        ],
    )
    def test_that_cannot_be_are_told(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption):
            next(Http(**options).batches(Run()))

    def test_of_the_next_generation(self) -> None:
        with listening(host="::1") as endpoint:
            assert str(endpoint.client.base_url).startswith("http://[::1]:")
            assert endpoint.client.post("/", json={}).status_code == 200


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as pool:
        yield pool


def posting(pool: ThreadPoolExecutor, endpoint: Endpoint, **body: object) -> Future[httpx.Response]:
    return pool.submit(endpoint.client.post, "/", json=body)


class TestAnswers:
    def test_wait_for_the_sink(self, pool: ThreadPoolExecutor) -> None:
        with listening(confirm=False) as endpoint:
            answer = posting(pool, endpoint, a=1)
            batch = endpoint.held.get(timeout=5)
            assert not answer.done()
            assert batch.done
            batch.done(None)
            assert answer.result(5).json() == {"accepted": 1}

    def test_tell_that_the_sink_failed(self, pool: ThreadPoolExecutor) -> None:
        with listening(confirm=False) as endpoint:
            answer = posting(pool, endpoint, a=1)
            done = endpoint.held.get(timeout=5).done
            assert done
            done(NotDelivered("1 record was not delivered", why="the broker is away"))
            done(None)
            assert answer.result(5).status_code == 503
            assert answer.result().json() == {
                "error": "1 record was not delivered",
                "why": "the broker is away",
                "condition": "kafka.not-delivered",
            }

    def test_tell_that_the_sink_gave_no_answer_at_all(self, pool: ThreadPoolExecutor) -> None:
        with listening(confirm=False) as endpoint:
            answer = posting(pool, endpoint, a=1)
            endpoint.held.get(timeout=5)
            assert answer.result(5).status_code == 503

    def test_are_true_after_the_stop(self, pool: ThreadPoolExecutor) -> None:
        """What the sink has is answered by what it says; that is after the feed has ended."""
        with listening(confirm=False) as endpoint:
            answers = [posting(pool, endpoint, number=number) for number in range(3)]
            batches = [endpoint.held.get(timeout=5) for _ in answers]
            endpoint.stop()
            time.sleep(0.05)
            assert not any(answer.done() for answer in answers)
            for batch, error in zip(batches, [None, FeedFailed("no"), None], strict=True):
                assert batch.done
                batch.done(error)
            by_number = {
                json.loads(batch.records[0].value or b"")["number"]: place for place, batch in enumerate(batches)
            }
            statuses = [answer.result(5).status_code for answer in answers]
            assert [statuses[number] for number in sorted(by_number, key=by_number.__getitem__)] == [200, 503, 200]
            end_of_the_server(endpoint.client)

    def test_do_not_wait_for_ever_for_a_sink_that_says_nothing(
        self, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_server, "STOP_TIMEOUT_S", 0.05)
        with listening(confirm=False) as endpoint:
            answer = posting(pool, endpoint, a=1)
            kept = endpoint.held.get(timeout=5)
            endpoint.stop()
            assert answer.result(5).status_code == 503
            assert kept.done
            kept.done(None)

    def test_of_requests_that_nobody_took_before_the_stop(self, pool: ThreadPoolExecutor) -> None:
        run, address = Run(), Queue[str]()
        object.__setattr__(run, "notify", address.put)
        batches = Http().batches(run)
        first = pool.submit(next, batches)
        url = address.get(timeout=5).removeprefix("listening at ")
        with httpx.Client(base_url=url) as client:
            answers = [pool.submit(client.post, "/", json={"number": number}) for number in range(5)]
            taken = first.result(5)
            while sum(answer.running() for answer in answers) < 5:
                time.sleep(0.01)
            time.sleep(0.1)
            run.stop.set()
            assert list(batches) == []
            assert taken.done
            taken.done(None)
            assert sorted(answer.result(5).status_code for answer in answers) == [200, 503, 503, 503, 503]
        end_of_the_server(client)

    def test_of_a_request_that_was_still_coming_in_at_the_stop(self, pool: ThreadPoolExecutor) -> None:
        with listening() as endpoint:
            url = endpoint.client.base_url
            with socket.create_connection((url.host, url.port)) as slow:
                slow.sendall(
                    b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
                )
                time.sleep(0.05)
                endpoint.stop()
                assert slow.recv(1000).startswith(b"HTTP/1.1 503")

    def test_of_a_body_that_never_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_server, "BODY_TIMEOUT_S", 0.05)
        with listening() as endpoint:
            url = endpoint.client.base_url
            with socket.create_connection((url.host, url.port)) as slow:
                slow.sendall(
                    b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
                )
                assert slow.recv(1000).startswith(b"HTTP/1.1 408")

    def test_are_not_missed_by_a_client_that_has_gone(self) -> None:
        with listening() as endpoint:
            url = endpoint.client.base_url
            with socket.create_connection((url.host, url.port)) as hasty:
                hasty.sendall(
                    b"POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
                )
            assert endpoint.client.post("/", json={}).status_code == 200


def test_more_than_fits_waits_and_nothing_of_it_is_lost(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for two bodies at once, the rest wait outside until the sink has taken those."""
    monkeypatch.setattr(http_server, "MAX_HELD_BYTES", 0)
    with listening(confirm=False, max_bytes=4096) as endpoint:
        answers = [posting(pool, endpoint, number=number) for number in range(20)]
        delivered = 0
        while delivered < 20:
            batch = endpoint.held.get(timeout=5)
            time.sleep(0.01)
            assert endpoint.held.qsize() <= 1
            assert batch.done
            batch.done(None)
            delivered += 1
        assert [answer.result(5).status_code for answer in answers] == [200] * 20
    assert {json.loads(value or b"")["number"] for value in values(endpoint.records)} == set(range(20))


def test_with_the_pump_a_count_ends_it_and_every_client_has_its_answer(
    pool: ThreadPoolExecutor, sink: MemorySink
) -> None:
    class ConfirmingAtTheEnd(MemorySink):
        def close(self) -> Any:
            for done in self.dones:
                if done:
                    done(None)
            return super().close()

    slow = ConfirmingAtTheEnd(None)  # type: ignore[arg-type]
    address = Queue[str]()
    pumped = pool.submit(pump, Http(), slow, Run(count=3, notify=address.put))
    url = address.get(timeout=5).removeprefix("listening at ")
    with httpx.Client(base_url=url) as client:
        answers = [pool.submit(client.post, "/", json={"number": number}) for number in range(3)]
        assert pumped.result(5).sent == 3
        assert [answer.result(5).status_code for answer in answers] == [200] * 3
    end_of_the_server(client)


class TestPayloads:
    @given(
        st.lists(
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
                max_leaves=8,
            )
        ),
        st.sampled_from([None, 1]),
        st.booleans(),
    )
    def test_elements_of_an_array_are_its_bytes(self, array: list[Any], indent: int | None, ascii_only: bool) -> None:
        body = json.dumps(array, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
        try:
            parts = elements(body)
        except Malformed:
            # Half of a surrogate pair is no text, and orjson does not take it.
            assert any(0xD800 <= ord(letter) < 0xE000 for letter in json.dumps(array, ensure_ascii=False))
            return
        assert [json.loads(part) for part in parts] == array
        place = 0
        for part in parts:
            place = body.index(part, place) + len(part)

    @given(st.lists(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers()), max_size=5))
    def test_the_same_events_are_the_same_records_in_any_form(self, events: list[dict[str, int]]) -> None:
        bodies = [json.dumps(event).encode() for event in events]
        assert from_ndjson(b"\n".join(bodies)) == from_json(b"[" + b", ".join(bodies) + b"]")
        assert from_ndjson(b"\n".join(bodies)) == [record for body in bodies for record in from_json(body)]
