"""Flume's calls, byte by byte."""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feeds.flume_client import PROTOCOL, WELCOME, batch, call, decoded, hello, one
from millrace.clients.kafka.record import Record
from millrace.feeds.listeners import flume_protocol
from millrace.feeds.listeners.flume_protocol import Conversation, MalformedFlumeData, require_flume

events = st.lists(st.tuples(st.dictionaries(st.text(), st.text(), max_size=3), st.binary(max_size=40)), max_size=20)


def greeted(key: str | None = None) -> Conversation:
    conversation = Conversation(key)
    conversation.parse(hello() + one(({}, b"first")))
    return conversation


@given(events)
def test_a_batch_is_read_as_it_was_written(given: list[tuple[dict[str, str], bytes]]) -> None:
    request = greeted("a").parse(batch(given))
    wanted = [
        Record(
            body,
            headers["a"].encode() if "a" in headers else None,
            headers=tuple((name, value.encode()) for name, value in headers.items()),
        )
        for headers, body in given
    ]
    assert list(request.records) == wanted


def test_the_first_message_of_a_connection_greets() -> None:
    known: set[bytes] = set()
    first = Conversation(protocols=known)
    asked = first.parse(hello(told=False) + one(({}, b"x")))
    told = decoded(WELCOME, io.BytesIO(asked.response()))
    assert (asked.records, told["match"]) == ((), "NONE")
    again = first.parse(hello() + one(({}, b"x")))
    assert [record.value for record in again.records] == [b"x"]
    assert decoded(WELCOME, io.BytesIO(again.response()))["match"] == "CLIENT"
    # Another connection of the same program need not tell its protocol, nor be told ours.
    answer = (
        Conversation(protocols=known).parse(hello(told=False, known=told["serverHash"]) + one(({}, b"y"))).response()
    )
    assert decoded(WELCOME, io.BytesIO(answer))["match"] == "BOTH"
    assert answer.endswith(b"\0\0\0")


def test_a_greeting_alone_and_an_unknown_call_are_answered() -> None:
    assert Conversation().parse(hello() + call("", b"")).response()
    assert greeted().parse(call("shutDown", b"\1\2")).response() == b"\0\1\0" + b"6there is no call 'shutDown'"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        call("append", b""),
        call("append", b"\0\x09abc"),
        call("append", b"\0" + b"\xff" * 20),
        call("append", b"\0\x08abc"),
        call("append", b"\x02\x02\xff\0\0\0"),
        call("appendBatch", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        call("appendBatch", b"\x02\x00\x02a"),
        one(({}, b"x")) + b"more",
    ],
)
def test_what_is_no_call_is_told_so(message: bytes) -> None:
    with pytest.raises(MalformedFlumeData):
        greeted().parse(message)


def test_memory_is_not_for_the_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flume_protocol, "MAX_ELEMENTS", 10)
    assert len(greeted().parse(batch([({}, b"")] * 10)).records) == 10
    with pytest.raises(MalformedFlumeData):
        greeted().parse(batch([({}, b"")] * 11))
    with pytest.raises(MalformedFlumeData):
        greeted().parse(batch([({str(n): "" for n in range(10)}, b"")]))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    for prefix in (b"", hello()):
        with contextlib.suppress(MalformedFlumeData):
            Conversation().parse(prefix + message)
    with contextlib.suppress(MalformedFlumeData):
        greeted().parse(message)


def changed(change: Callable[[Any], object]) -> bytes:
    protocol = copy.deepcopy(PROTOCOL)
    change(protocol)
    return json.dumps(protocol).encode()


def test_flumes_protocol_is_known_however_it_is_written() -> None:
    require_flume(flume_protocol.PROTOCOL)
    require_flume(changed(lambda told: told.pop("doc")))
    require_flume(changed(lambda told: told["messages"].pop("append")))
    in_place = PROTOCOL["types"][1]
    require_flume(changed(lambda told: told["messages"]["append"]["request"][0].update(type=in_place)))


@pytest.mark.parametrize(
    "protocol",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        changed(lambda told: told["messages"].clear()),
        changed(lambda told: told["types"].pop()),
        changed(lambda told: told["types"][1]["fields"].reverse()),
        changed(lambda told: told["types"][1]["fields"].append({"name": "more", "type": "int"})),
        changed(lambda told: told["types"][1]["fields"][1].update(type="long")),
        changed(lambda told: told["messages"]["append"]["request"].append({"name": "more", "type": "int"})),
    ],
)
def test_another_protocol_is_refused(protocol: bytes) -> None:
    with pytest.raises(MalformedFlumeData):
        require_flume(protocol)
