"""The listener for Flume's agents, spoken to byte by byte."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from queue import Queue
from typing import Any

import pytest

from feeds.flume_client import Client, Event, batch, frame, hello, one
from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption, NotDelivered, PortInUse
from millrace.feeds.base.api import Batch, Run
from millrace.feeds.base.pump import pump
from millrace.feeds.flume import Flume
from millrace.feeds.listeners import flume_protocol, flume_server
from millrace.feeds.listeners.flume_server import FlumeListenerOptions

from .conftest import MemorySink


class Listener:
    """A feed that runs in a thread; what it gives is confirmed at once, or left in `held` for the test to settle."""

    def __init__(self, feed: Flume, *, confirm: bool) -> None:
        self.records: list[Record] = []
        self.held: Queue[Batch] = Queue()
        self.said: Queue[str] = Queue()
        self.run = Run(notify=self.said.put)
        self._confirm = confirm
        self._thread = threading.Thread(target=self._consume, args=(feed,))
        self._thread.start()
        self.port = int(self.said.get(timeout=5).rpartition(":")[2])

    def _consume(self, feed: Flume) -> None:
        for taken in feed.batches(self.run):
            self.records += taken.records
            if self._confirm and taken.done:
                taken.done(None)
            else:
                self.held.put(taken)
            del taken

    def stop(self) -> None:
        self.run.stop.set()
        self._thread.join()


@contextmanager
def listening(*, confirm: bool = True, **options: Any) -> Iterator[Listener]:
    listener = Listener(Flume(**{"port": 0, **options}), confirm=confirm)
    try:
        yield listener
    finally:
        listener.stop()
        while not listener.held.empty():
            listener.held.get()
        for thread in threading.enumerate():
            if thread.name == "millrace-feed-flume":
                thread.join(10)
                assert not thread.is_alive()


EVENTS: list[Event] = [({"host": "a", "key": "k"}, b"first"), ({}, b""), ({"ü": "ö"}, b"\xff\0")]


@pytest.mark.parametrize("compressed", [False, True])
def test_events_become_records_and_are_answered(compressed: bool) -> None:
    with listening() as there, Client(there.port, compressed=compressed) as agent:
        assert agent.append(EVENTS) == "OK"
        assert agent.status(agent.ask(one(({"key": "x"}, b"alone")))) == "OK"
        assert agent.append([]) == "OK"
        assert agent.append([({"n": "1"}, b"z" * 3_000_000)] * 3) == "OK"
    assert there.records[:4] == [
        Record(b"first", b"k", headers=(("host", b"a"), ("key", b"k"))),
        Record(b""),
        Record(b"\xff\0", headers=(("ü", "ö".encode()),)),
        Record(b"alone", b"x", headers=(("key", b"x"),)),
    ]
    assert [len(record.value or b"") for record in there.records[4:]] == [3_000_000] * 3


def test_the_answer_comes_when_the_sink_has_it_and_not_before() -> None:
    with listening(confirm=False) as there, Client(there.port) as agent, ThreadPoolExecutor(1) as beside:
        answer = beside.submit(agent.append, EVENTS)
        taken = there.held.get(timeout=5)
        assert not answer.done()
        assert taken.done
        taken.done(NotDelivered("Kafka does not answer"))
        assert answer.result(5) == "FAILED"
        assert "Kafka does not answer" in there.said.get(timeout=5)
        again = beside.submit(agent.append, EVENTS)
        taken = there.held.get(timeout=5)
        assert taken.done
        taken.done(None)
        assert again.result(5) == "OK"


def test_a_sink_that_lets_go_of_a_batch_has_failed() -> None:
    with listening(confirm=False) as there, Client(there.port) as agent, ThreadPoolExecutor(1) as beside:
        answer = beside.submit(agent.append, EVENTS)
        there.held.get(timeout=5)
        assert answer.result(5) == "FAILED"


def test_what_the_sink_has_when_it_stops_is_answered_and_nothing_else_is_taken() -> None:
    with (
        listening(confirm=False) as there,
        Client(there.port) as agent,
        Client(there.port) as idle,
        ThreadPoolExecutor(1) as beside,
    ):
        answer = beside.submit(agent.append, EVENTS)
        taken = there.held.get(timeout=5)
        there.stop()
        assert idle.is_closed()
        with pytest.raises(OSError, match="refused"):
            Client(there.port, timeout=1)
        assert taken.done
        taken.done(None)
        assert answer.result(5) == "OK"
        assert agent.is_closed()


def test_a_sink_that_never_says_is_not_waited_for_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flume_server, "STOP_TIMEOUT_S", 0.05)
    with listening(confirm=False) as there, Client(there.port) as agent, ThreadPoolExecutor(1) as beside:
        answer = beside.submit(agent.append, EVENTS)
        taken = there.held.get(timeout=5)
        there.stop()
        assert answer.result(5) == "FAILED"
        del taken


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ii", 1, -1),
        struct.pack(">iii", 1, 1, -5),
        struct.pack(">iii", 1, 1, 2**31 - 1),
        struct.pack(">iii", 1, 2**31 - 1, 0),
        struct.pack(">ii", 1, 0),
        frame(1, b"nonsense"),
        frame(1, hello({"protocol": "Other", "types": [], "messages": {}})),
        frame(1, hello() + batch([])[:-1]),
        b"\x78\x9c and no zlib",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_whoever_speaks_otherwise_is_told_of_and_disturbs_nobody(content: bytes) -> None:
    with listening() as there, Client(there.port) as agent, Client(there.port) as other:
        assert agent.append(EVENTS) == "OK"
        other.socket.sendall(content)
        assert other.is_closed()
        assert "127.0.0.1" in there.said.get(timeout=5)
        assert agent.append(EVENTS) == "OK"
    assert len(there.records) == 6


def test_a_compressed_bomb_is_stopped_at_the_largest_batch() -> None:
    with listening(max_bytes=1_000_000) as there, Client(there.port, compressed=True) as agent:
        bomb = struct.pack(">ii", 1, 50) + (struct.pack(">i", 900_000) + bytes(900_000)) * 50
        with suppress(ConnectionError):
            agent.raw(bomb)
        assert agent.is_closed()
        assert "1.0 MB" in there.said.get(timeout=5)


def test_a_message_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flume_protocol, "MESSAGE_TIMEOUT_S", 0.1)
    with listening() as there, Client(there.port) as half, Client(there.port) as silent:
        half.socket.sendall(frame(1, hello() + batch(EVENTS))[:-5])
        assert half.is_closed()
        assert "did not come to its end" in there.said.get(timeout=5)
        assert silent.append(EVENTS) == "OK"  # who has said nothing yet may take their time


def test_an_agent_that_goes_in_the_middle_leaves_nothing() -> None:
    with listening() as there:
        for cut in (1, 7, 8, 11, 50):
            with Client(there.port) as agent:
                agent.socket.sendall(frame(1, hello() + batch(EVENTS))[:cut])
        with Client(there.port) as agent:
            assert agent.append(EVENTS) == "OK"
    assert len(there.records) == 3


def test_many_agents_at_once() -> None:
    def send(number: int) -> list[str]:
        with Client(there.port) as agent:
            return [agent.append([({"key": str(number)}, b"%d/%d" % (number, part))] * 10) for part in range(5)]

    with listening() as there, ThreadPoolExecutor(50) as beside:
        assert {status for found in beside.map(send, range(50)) for status in found} == {"OK"}
    assert len(there.records) == 2500
    assert len({record.value for record in there.records}) == 250


def test_a_slow_sink_holds_agents_back_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flume_server, "MAX_HELD_BYTES", 0)  # then it is twice the largest batch
    large: list[Event] = [({}, b"x" * 90_000)]

    def send(_: int) -> str:
        with Client(there.port, timeout=30) as agent:
            return agent.append(large)

    with listening(confirm=False, max_bytes=100_000) as there, ThreadPoolExecutor(20) as beside:
        answers = [beside.submit(send, number) for number in range(20)]
        for _ in range(20):
            taken = there.held.get(timeout=10)
            assert there.held.qsize() <= 1
            assert taken.done
            taken.done(None)
            del taken
        assert [answer.result(10) for answer in answers] == ["OK"] * 20


def test_there_is_a_bound_on_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flume_server, "MAX_CONNECTIONS", 1)
    with listening() as there, Client(there.port) as first:
        assert first.append(EVENTS) == "OK"
        with Client(there.port) as second:
            assert second.is_closed()
        assert "no more" in there.said.get(timeout=5)
        assert first.append(EVENTS) == "OK"


def test_only_those_who_are_allowed_may_send() -> None:
    with listening(allow="10.0.0.0/8") as there, Client(there.port) as agent:
        assert agent.is_closed()
        assert "not allowed" in there.said.get(timeout=5)
    with listening(allow="127.0.0.1") as there, Client(there.port) as agent:
        assert agent.append(EVENTS) == "OK"
    assert FlumeListenerOptions(1, None, (ip_network("10.0.0.0/8"),)).admits("::ffff:10.1.2.3")
    assert not FlumeListenerOptions(1, None, (ip_network("10.0.0.0/8"),)).admits("::1")


@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},  # noqa: S104
        {"host": "no such host"},
        {"allow": "10.0.0.1/8"},
        {"port": 70_000},
        {"max_bytes": 0},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        next(iter(Flume(**{"port": 0, **options}).batches(Run())))


def test_a_port_in_use_is_told_and_it_never_says_that_it_listens(sink: MemorySink) -> None:
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = Run(notify=said.append, ready=lambda: said.append("ready"))
        with pytest.raises(PortInUse):
            pump(Flume(port=taken.getsockname()[1]), sink, run)
    assert said == []
    assert sink.closed == 1
