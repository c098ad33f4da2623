"""What the feeds of public streams share."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed, FileUnusable, InvalidOption, KafkaFailed
from millrace.feeds.base.api import Cursor, Run
from millrace.feeds.public_streams import reader as reading_module
from millrace.feeds.public_streams.backoff import (
    MAX_SERVER_WAIT_S,
    Backoff,
    ConnectionLapse,
    DelayRamp,
    Retries,
    error_of_response,
    error_text,
    requested_wait,
)
from millrace.feeds.public_streams.progress import CONNECTED, Event, PositionTracker, RecentIds, timestamp_of
from millrace.feeds.public_streams.reader import Events, StreamHalt, read_events
from millrace.feeds.public_streams.transport import (
    HttpClient,
    certificate_error,
    checked_url,
    json_lines,
    server_sent_events,
    websocket_messages,
)

from ..servers import QUICK, Exchange, Site, in_turn, refuse


def parse(*chunks: bytes) -> list[tuple[str, str, str]]:
    return [(event.event, event.data, event.id) for event in server_sent_events(chunks) if event.data]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


class TestServerSentEvents:
    @pytest.mark.parametrize(
        ("stream", "events"),
        [
            (b"data: a\n\n", [("message", "a", "")]),
            (b"data:a\ndata: b\ndata:  c\n\n", [("message", "a\nb\n c", "")]),
            (b"event: add\ndata: 1\n\ndata: 2\n\n", [("add", "1", ""), ("message", "2", "")]),
            (b"id: 7\ndata: a\n\ndata: b\n\n", [("message", "a", "7"), ("message", "b", "7")]),
            (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [("message", "a", "7"), ("message", "b", "")]),
            (b"id: 7\n\ndata: a\n\n", [("message", "a", "7")]),
            (b"id: 1\0\ndata: a\n\n", [("message", "a", "")]),
            (b": a comment\n\n:\ndata: a\n\n", [("message", "a", "")]),
            (b"data\n\n", []),
            (b"data\ndata\n\n", [("message", "\n", "")]),
            (b"event: nothing\n\n", []),
            (b"data: cut off\n", []),
            (b"data: a\r\n\r\n", [("message", "a", "")]),
            (b"data: a\r\r", [("message", "a", "")]),
            (b"data: a\rdata: b\n\r\n", [("message", "a\nb", "")]),
            (b"\xef\xbb\xbfdata: a\n\n", [("message", "a", "")]),
            (b"data: \xef\xbb\xbfa\n\n", [("message", "\ufeffa", "")]),
            (b"data: \xff\n\n", [("message", "\ufffd", "")]),
            (b"unknown: x\ndata: a: b\n\n", [("message", "a: b", "")]),
            ("event: é\ndata: ñ\n\n".encode(), [("é", "ñ", "")]),
        ],
    )
    def test_follow_the_standard(self, stream: bytes, events: list[tuple[str, str, str]]) -> None:
        assert parse(stream) == events

    @given(
        st.lists(
            st.sampled_from(
                [b"data", b"event", b"id", b"retry", b":", b" ", b"x", "é…".encode(), b"\n", b"\r", b"\r\n", b"\0"]
            ),
            max_size=40,
        ),
        st.booleans(),
        st.lists(st.integers(min_value=0), max_size=20),
    )
    def test_do_not_depend_on_where_the_chunks_end(self, words: list[bytes], mark: bool, cuts: list[int]) -> None:
        stream = (b"\xef\xbb\xbf" if mark else b"") + b"".join(words)
        assert parse(*pieces(stream, cuts)) == parse(stream)
        assert parse(*(bytes([byte]) for byte in stream)) == parse(stream)

    @given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1), min_size=1))
    def test_keep_the_text_of_their_data(self, parts: list[str]) -> None:
        stream = "".join(f"data: {part}\n" for part in parts) + "\n"
        assert parse(stream.encode()) == [("message", "\n".join(parts), "")]

    def test_come_as_soon_as_they_end(self) -> None:
        sent: list[bytes] = []

        def chunks() -> Iterator[bytes]:
            for chunk in (b"data: a\r\n\r\n", b"data: b\n\n"):
                sent.append(chunk)
                yield chunk

        events = server_sent_events(chunks())
        assert [(next(events).data, len(sent)), (next(events).data, len(sent))] == [("a", 1), ("b", 2)]

    def test_the_server_says_how_long_to_wait(self) -> None:
        assert [event.retry for event in server_sent_events([b"retry: 1500\nretry: soon\n\n"])] == [1500]

    @pytest.mark.parametrize(
        "chunks", [[b"data: " + b"a" * 200], [b"data: aaaaaaaaaa\n"] * 20, [b"data: a\n\n", *[b"b"] * 200]]
    )
    def test_without_an_end_do_not_fill_the_memory(self, chunks: list[bytes]) -> None:
        with pytest.raises(FeedFailed):
            list(server_sent_events(chunks, max_bytes=100))

    def test_of_any_number_may_be_larger_than_one(self) -> None:
        assert len(list(server_sent_events([b"data: aaaaaaaaaa\n\n"] * 20, max_bytes=100))) == 20


class TestLines:
    def test_are_whole_and_not_empty(self) -> None:
        assert list(json_lines([b'{"a":1}\r\n\r\n', b"\n{", b'"b":2}\n{"cut'])) == [b'{"a":1}', b'{"b":2}']

    @given(st.binary().map(lambda data: data.replace(b"\x0c", b"\n")), st.lists(st.integers(min_value=0), max_size=9))
    def test_do_not_depend_on_where_the_chunks_end(self, data: bytes, cuts: list[int]) -> None:
        assert list(json_lines(pieces(data, cuts))) == list(json_lines([data]))

    def test_without_an_end_do_not_fill_the_memory(self) -> None:
        with pytest.raises(FeedFailed):
            list(json_lines([b"a" * 60, b"a" * 60], max_bytes=100))


class TestWaits:
    def test_grow_to_the_most(self) -> None:
        assert [DelayRamp(1, 5).wait(attempt) for attempt in (1, 2, 3, 4, 2000)] == [1, 2, 4, 5, 5]
        assert [DelayRamp(0.25, 1, linear=True).wait(attempt) for attempt in (1, 2, 3, 9)] == [0.25, 0.5, 0.75, 1]

    def test_are_quick_at_first_and_at_most_a_minute(self) -> None:
        retries = Retries(Backoff())
        waits = [retries.wait(ConnectionLapse("lost"), 0.0) for _ in range(30)]
        assert waits[0] <= 0.25
        assert 30 <= waits[-1] <= 60

    def test_start_anew_after_a_good_connection_and_for_another_kind_of_failure(self) -> None:
        retries = Retries(Backoff(network=DelayRamp(1, 60), limited=DelayRamp(7, 60), jitter=0.0, steady=10.0))
        lost, limited = ConnectionLapse("lost"), ConnectionLapse("slow down", status=429)
        assert [retries.wait(lost, 0.0), retries.wait(lost, 0.0), retries.wait(lost, 11.0)] == [1, 2, 1]
        assert [retries.wait(limited, 0.0), retries.wait(limited, 0.0), retries.wait(lost, 0.0)] == [7, 14, 1]

    def test_are_as_long_as_the_server_asks_within_reason(self) -> None:
        retries = Retries(QUICK)
        assert retries.wait(ConnectionLapse("busy", status=503, wait=90.0), 0.0) == 90.0
        assert retries.wait(ConnectionLapse("busy", status=503, wait=1e9), 0.0) == MAX_SERVER_WAIT_S

    @pytest.mark.parametrize(
        ("headers", "seconds"),
        [
            ({}, None),
            ({"retry-after": "12"}, 12.0),
            ({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}, 60.0),
            ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 0.0),
            ({"retry-after": "soon"}, None),
            ({"x-rate-limit-remaining": "0", "x-rate-limit-reset": "1767225630"}, 30.0),
            ({"x-rate-limit-remaining": "5", "x-rate-limit-reset": "1767225630"}, None),
            ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2026-01-01T00:00:05.000Z"}, 5.0),
        ],
    )
    def test_that_a_server_can_ask_for(self, headers: dict[str, str], seconds: float | None) -> None:
        assert requested_wait(headers, datetime(2026, 1, 1, tzinfo=UTC)) == seconds


class TestRefusals:
    @pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
    def test_that_pass(self, status: int) -> None:
        lapse = error_of_response("the origin", status, {"retry-after": "3"}, b"")
        assert isinstance(lapse, ConnectionLapse)
        assert (lapse.status, lapse.wait) == (status, 3.0)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 406, 410, 422])
    def test_that_do_not(self, status: int) -> None:
        failed = error_of_response("the origin", status, {}, b'{"error": "no"}', {status: "do that"})
        assert isinstance(failed, FeedFailed)
        assert (failed.why, failed.hint) == ("no", "do that")

    @pytest.mark.parametrize(
        ("body", "said"),
        [
            (b"", ""),
            (b"<h1>No\n way</h1>", "<h1>No way</h1>"),
            (b'{"title": "Unauthorized", "detail": "wrong token"}', "Unauthorized: wrong token"),
            (b'{"errors": [{"message": "a"}, {"message": "b"}]}', "a; b"),
            (b'{"code": 7}', '{"code": 7}'),
        ],
    )
    def test_say_why(self, body: bytes, said: str) -> None:
        assert error_text(body) == said


class TestEvents:
    def test_have_a_time_unless_it_is_none_or_in_the_future(self) -> None:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        assert timestamp_of("2026-01-01T00:00:00.250Z") == 1767225600250
        assert timestamp_of("2026-01-01T00:00:00") == 1767225600000
        assert [timestamp_of(text) for text in (tomorrow.isoformat(), "yesterday", None, 5)] == [None] * 4

    def test_of_the_last_while_are_known_again(self) -> None:
        recent = RecentIds(size=2)
        assert [recent.repeats(key) for key in (b"a", b"b", b"a", b"c", b"a", None, None)] == [
            False, False, True, False, False, False, False,
        ]  # fmt: skip


class TestProgress:
    @pytest.fixture
    def cursor(self, tmp_path: Path) -> Cursor:
        return Cursor(tmp_path / "cursor")

    def test_is_loaded_by_the_next_run(self, cursor: Cursor) -> None:
        PositionTracker(Run(cursor=cursor), "there").track("p1")(None)
        assert PositionTracker(Run(cursor=cursor), "there").load() == "p1"

    def test_is_that_of_one_origin_only(self, cursor: Cursor) -> None:
        said: list[str] = []
        PositionTracker(Run(cursor=cursor), "there").track("p1")(None)
        assert PositionTracker(Run(cursor=cursor, notify=said.append), "elsewhere").load() is None
        assert "there" in said[0]

    def test_never_passes_a_batch_that_is_not_safe(self, cursor: Cursor) -> None:
        progress = PositionTracker(Run(cursor=cursor), "there")
        first, second, third, fourth = (progress.track(place) for place in ("p1", "p2", None, "p4"))
        second(None)
        third(None)
        assert progress.load() is None
        first(None)
        assert progress.load() == "p2"
        fourth(None)
        first(None)
        assert progress.load() == "p4"

    def test_stops_at_a_batch_that_failed(self, cursor: Cursor) -> None:
        progress = PositionTracker(Run(cursor=cursor), "there")
        first, second, third = (progress.track(place) for place in ("p1", "p2", "p3"))
        first(None)
        second(KafkaFailed("no"))
        third(None)
        assert progress.load() == "p1"

    def test_of_many_threads_is_the_last_in_order(self, cursor: Cursor) -> None:
        progress = PositionTracker(Run(cursor=cursor), "there")
        dones = [progress.track(f"p{number}") for number in range(200)]
        threads = [threading.Thread(target=lambda part=part: [done(None) for done in part]) for part in
                   (dones[0::3], dones[2::3], dones[1::3])]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert progress.load() == "p199"

    @pytest.mark.parametrize("text", ["p1", "[]", '{"origin": "there"}'])
    def test_that_cannot_be_read_is_an_error(self, cursor: Cursor, text: str) -> None:
        cursor.save(text)
        with pytest.raises(FileUnusable):
            PositionTracker(Run(cursor=cursor), "there").load()

    def test_that_cannot_be_saved_is_an_error_of_the_feed_and_not_of_the_sink(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        progress = PositionTracker(Run(cursor=Cursor(tmp_path / "file" / "cursor")), "there")
        progress.track("p1")(None)
        with pytest.raises(FileUnusable):
            progress.track("p2")


def numbered(first: int, last: int) -> list[Event]:
    return [Event(Record(b"%d" % number), str(number)) for number in range(first, last)]


class TestReading:
    def test_goes_on_through_every_lapse_and_tells_each(self) -> None:
        said: list[str] = []
        connections = iter([numbered(0, 2), numbered(2, 3), numbered(3, 4)])

        def connect(halt: StreamHalt) -> Events:
            yield from next(connections)
            raise ConnectionLapse("the line went dead")

        with closing(read_events(Run(notify=said.append, count=4), connect, name="test", backoff=QUICK)) as batches:
            values = [record.value for batch in batches for record in batch.records]
        assert values == [b"0", b"1", b"2", b"3"]
        assert said[0] == "test: the line went dead; connecting again in 1 ms"

    def test_ends_with_a_failure_after_what_came_before_it(self) -> None:
        def connect(halt: StreamHalt) -> Events:
            yield from numbered(0, 3)
            raise FeedFailed("gone for good")

        batches = read_events(Run(), connect, name="test", backoff=QUICK)
        assert len(next(batches).records) == 3
        with pytest.raises(FeedFailed, match="gone for good"):
            next(batches)

    def test_a_fault_of_its_own_is_not_swallowed(self) -> None:
        def connect(halt: StreamHalt) -> Events:
            yield CONNECTED
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            next(read_events(Run(), connect, name="test", backoff=QUICK))

    def test_stops_at_once_while_it_waits_to_connect_again(self) -> None:
        run = Run(notify=lambda _: run.stop.set())

        def connect(halt: StreamHalt) -> Events:
            yield CONNECTED
            raise ConnectionLapse("busy", status=503, wait=3000.0)

        began = time.monotonic()
        assert list(read_events(run, connect, name="test", backoff=Backoff())) == []
        assert time.monotonic() - began < 1.0
        assert not any(thread.name == "millrace-feed-test" for thread in threading.enumerate())

    def test_sends_exactly_as_many_as_were_asked_for(self) -> None:
        def connect(halt: StreamHalt) -> Events:
            yield from numbered(0, 5000)

        sizes = [len(batch.records) for batch in read_events(Run(count=1200), connect, name="test", backoff=QUICK)]
        assert sizes == [500, 500, 200]

    def test_reads_only_so_far_ahead(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading_module, "READ_AHEAD_EVENTS", 10)
        read_so_far: list[Event] = []
        enough = threading.Event()

        def connect(halt: StreamHalt) -> Events:
            for event in numbered(0, 1000):
                read_so_far.append(event)
                if len(read_so_far) > 11:
                    enough.set()
                yield event

        with closing(read_events(Run(count=1), connect, name="test", backoff=QUICK)) as batches:
            next(batches)
            enough.wait(0.3)
            assert len(read_so_far) <= 1 + 10 + 1

    def test_saves_a_position_though_there_was_nothing_to_send(self, tmp_path: Path) -> None:
        cursor = Cursor(tmp_path / "cursor")

        def connect(halt: StreamHalt) -> Events:
            yield Event(None, "p1")
            raise FeedFailed("gone")

        run = Run(cursor=cursor)
        with pytest.raises(FeedFailed):
            list(read_events(run, connect, name="test", backoff=QUICK, progress=PositionTracker(run, "there")))
        assert json.loads(cursor.load() or "")["position"] == "p1"


def listen(answer: Callable[[Exchange], None], run: Run, idle: float = 5.0) -> list[str | None]:
    """Read server-sent events from a site for as long as it gives any, without connecting again."""
    with Site(answer) as site, HttpClient(StreamHalt(), name="the origin", idle=idle) as client:
        return [event and event.data for event in client.events(site.url)]


class TestHttpClient:
    def test_says_that_it_is_silent(self) -> None:
        def silent(exchange: Exchange) -> None:
            exchange.start()
            exchange.send(b":\n\n")
            exchange.hold()

        with pytest.raises(ConnectionLapse, match="nothing came for 50 ms"):
            listen(silent, Run(), idle=0.05)

    def test_a_comment_is_a_sign_of_life(self) -> None:
        def murmuring(exchange: Exchange) -> None:
            exchange.start()
            for _ in range(10):
                exchange.send(b":\n\n")
                time.sleep(0.12)
            exchange.send(b"data: at last\n\n")
            exchange.drop()

        with Site(murmuring) as site, HttpClient(StreamHalt(), name="the origin", idle=1.0) as client:
            events = client.events(site.url)
            assert next(events) is None
            event = next(events)
            assert event is not None
            assert event.data == "at last"
            events.close()  # type: ignore[attr-defined]

    @pytest.mark.parametrize(("retry", "wait"), [(b"4000", 4.0), (b"9" * 400, MAX_SERVER_WAIT_S)])
    def test_a_connection_that_breaks_off_is_a_lapse(self, retry: bytes, wait: float) -> None:
        def broken(exchange: Exchange) -> None:
            exchange.start()
            exchange.send(b"retry: %s\n\ndata: half" % retry)
            exchange.drop()

        with pytest.raises(ConnectionLapse) as caught:
            listen(broken, Run())
        assert caught.value.wait == wait

    def test_nobody_there_is_a_lapse(self) -> None:
        with Site(refuse(200)) as site:
            url = site.url
        with HttpClient(StreamHalt(), name="the origin", idle=1.0) as client, pytest.raises(ConnectionLapse):
            client.get(url)

    def test_another_content_type_is_a_lapse(self) -> None:
        with pytest.raises(ConnectionLapse, match="text/html"):
            listen(refuse(200, b"<h1>log in</h1>", content_type="text/html"), Run())

    def test_redirects_without_end_are_a_failure(self) -> None:
        with pytest.raises(FeedFailed, match="redirects"):
            listen(refuse(302, b"", location="/again"), Run())

    def test_a_certificate_is_found_behind_the_error_that_it_caused(self) -> None:
        wrong = ssl.SSLCertVerificationError(1, "self-signed certificate")
        error = httpx.ConnectError("cannot connect")
        error.__cause__ = OSError()
        error.__cause__.__context__ = wrong
        assert certificate_error(error) is wrong
        assert certificate_error(httpx.ConnectError("cannot connect")) is None

    def test_a_proxy_that_cannot_be_used_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "gopher://proxy.example")
        with pytest.raises(FeedFailed, match="proxy"):
            HttpClient(StreamHalt(), name="the origin", idle=1.0)
        with pytest.raises(FeedFailed, match="proxy"):
            next(websocket_messages("wss://stream.example", StreamHalt(), name="the origin", idle=1.0))

    @pytest.mark.parametrize("url", ["stream.example", "ftp://stream.example", "http://", "http://[", "http://a:b"])
    def test_wants_a_url(self, url: str) -> None:
        with pytest.raises(InvalidOption):
            checked_url(url, "--url")

    def test_cuts_a_connection_that_a_thread_is_blocked_on(self) -> None:
        def silent(exchange: Exchange) -> None:
            exchange.start()
            exchange.send(b"data: a\n\n")
            exchange.hold()

        def connect(halt: StreamHalt) -> Events:
            with HttpClient(halt, name="the origin", idle=60.0) as client:
                for event in client.events(site.url):
                    yield Event(Record(event.data.encode())) if event else CONNECTED

        with Site(in_turn(silent)) as site:
            run = Run()
            batches = read_events(run, connect, name="test", backoff=QUICK)
            assert next(batches).records == [Record(b"a")]
            began = time.monotonic()
            run.stop.set()
            assert list(batches) == []
            assert time.monotonic() - began < 0.5
            assert not any(thread.name == "millrace-feed-test" for thread in threading.enumerate())
