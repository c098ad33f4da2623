"""The protocol between the server and pages."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator, Callable

import pytest
from websockets.exceptions import ConnectionClosed

from millrace.dashboard.app import _events
from millrace.dashboard.live import Broadcaster, Client
from millrace.dashboard.on_demand import OnDemandChannels
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.errors import UnknownTopic
from millrace.telemetry.channels import Channels

from .pages import Page

Serve = Callable[..., Dashboard]


def rows(page: Page, name: str, column: str = "n") -> list[int]:
    return page.columns.get(name, {}).get(column, [])


def test_hello_snapshot_append_and_replace(serve: Serve, channels: Channels) -> None:
    ring = channels.row_buffer("events", 5)
    ring.extend({"n": number} for number in range(3))
    with Page(serve().address) as page:
        assert page.hello["epoch"] == channels.epoch
        assert (page.hello["tick"], page.hello["heartbeat"]) == (100, 2000)
        page.subscribe("events", "state")
        page.until(lambda one: rows(one, "events") == [0, 1, 2])
        ring.append({"n": 3})
        channels.slot("state").set({"phase": "running"})
        page.until(lambda one: len(rows(one, "events")) == 4 and "state" in one.values)
        ring.extend({"n": number} for number in range(4, 7))
        page.until(lambda one: rows(one, "events") == [2, 3, 4, 5, 6])
        assert page.values["state"] == {"phase": "running"}
        assert next(kind for name, kind in page.kinds if name == "events") == "snapshot"
        assert {kind for name, kind in page.kinds if name == "events"} == {"snapshot", "append"}
        assert [one["seq"] for one in page.frames] == list(range(1, len(page.frames) + 1))


def test_nothing_new_is_a_beat(serve: Serve) -> None:
    with Page(serve().address) as page:
        page.subscribe("state")
        assert page.step()["type"] == "beat"


def test_a_channel_that_comes_later(serve: Serve, channels: Channels) -> None:
    with Page(serve().address) as page:
        page.subscribe("history:popular")
        assert page.step()["type"] == "beat"
        channels.row_buffer("history:popular", 5).append({"n": 1})
        page.until(lambda one: rows(one, "history:popular") == [1])


def test_a_page_that_does_not_acknowledge_is_skipped_and_then_gets_all_it_missed(
    serve: Serve, channels: Channels
) -> None:
    ring = channels.row_buffer("events", 100)
    ring.append({"n": 0})
    address = serve().address
    with Page(address) as lazy, Page(address) as busy:
        for page in (lazy, busy):
            page.subscribe("events")
        lazy.step(ack=False)
        for number in range(1, 6):
            ring.append({"n": number})
            busy.until(lambda one, wanted=number: rows(one, "events")[-1:] == [wanted])
        assert rows(lazy, "events") == [0]
        lazy.say(type="ack", seq=1)
        lazy.until(lambda one: rows(one, "events") == [0, 1, 2, 3, 4, 5])
        assert lazy.frames[-1]["coalesced"] >= 4
        assert lazy.frames[-1]["dropped"] == 0
        assert [kind for _, kind in lazy.kinds] == ["snapshot", "append"]


def test_overrun_is_a_snapshot_that_says_what_was_dropped(serve: Serve, channels: Channels) -> None:
    ring = channels.row_buffer("events", 3)
    ring.append({"n": 0})
    with Page(serve().address) as page:
        page.subscribe("events")
        page.step(ack=False)
        ring.extend({"n": number} for number in range(1, 11))
        page.say(type="ack", seq=1)
        page.until(lambda one: rows(one, "events") == [8, 9, 10])
        assert page.kinds == [("events", "snapshot"), ("events", "snapshot")]
        assert page.frames[-1]["dropped"] == 7


def test_a_page_that_comes_back_goes_on_without_a_gap(serve: Serve, channels: Channels) -> None:
    ring = channels.row_buffer("events", 100)
    ring.extend({"n": number} for number in range(5))
    address = serve().address
    with Page(address) as page:
        page.subscribe("events")
        page.until(lambda one: len(rows(one, "events")) == 5)
    ring.extend({"n": number} for number in range(5, 8))
    with Page(address, page) as again:
        again.subscribe("events")
        again.until(lambda one: rows(one, "events") == list(range(8)))
        assert again.kinds == [("events", "append")]


def test_a_server_that_was_restarted_has_another_epoch_and_sends_snapshots(serve: Serve, channels: Channels) -> None:
    channels.row_buffer("events", 100).extend({"n": number} for number in range(5))
    first = serve()
    with Page(first.address) as page:
        page.subscribe("events")
        page.until(lambda one: len(rows(one, "events")) == 5)
    first.__exit__(None, None, None)
    other = Channels()
    other.row_buffer("events", 100).extend({"n": number} for number in range(90, 95))  # of the same version
    second = serve(ServerOptions(port=first.port), channels=other)
    with Page(second.address, page) as again:
        again.subscribe("events")
        again.until(lambda one: rows(one, "events") == list(range(90, 95)))
        assert again.kinds == [("events", "snapshot")]


def test_another_subscription_replaces_the_first(serve: Serve, channels: Channels) -> None:
    ring, slot = channels.row_buffer("events", 100), channels.slot("state")
    with Page(serve().address) as page:
        page.subscribe("state")
        slot.set(1)
        page.until(lambda one: one.values.get("state") == 1)
        page.subscribe("events")
        ring.append({"n": 0})
        page.until(lambda one: rows(one, "events") == [0])
        slot.set(2)
        ring.append({"n": 1})
        page.until(lambda one: rows(one, "events") == [0, 1])
        assert page.values["state"] == 1
        page.subscribe("events", "state")
        page.until(lambda one: one.values["state"] == 2)
        assert [kind for name, kind in page.kinds if name == "events"] == ["snapshot", "append"]


def test_a_stalled_page_does_not_delay_another_and_nothing_piles_up(serve: Serve, channels: Channels) -> None:
    slot, ring = channels.slot("state"), channels.row_buffer("events", 50)
    text = "x" * 4000
    address = serve().address
    # It stops reading after one message: what is sent after that stays with the server.
    with Page(address, max_queue=1) as stalled, Page(address) as busy:
        for page in (stalled, busy):
            page.subscribe("state", "events")
        for number in range(60):
            ring.extend({"n": number * 100 + one, "text": text} for one in range(100))
            slot.set([number, [text] * 200])
            if number % 6 == 0:
                busy.until(lambda one, wanted=number: (one.values.get("state") or [None])[0] == wanted)
        busy.until(lambda one: one.values["state"][0] == 59)
        assert rows(busy, "events") == list(range(5950, 6000))
        waiting = [stalled.receive()]  # the one frame that was on its way; none was queued behind it
        assert waiting[0]["seq"] == 1
        stalled.say(type="ack", seq=1)
        late = stalled.step()
        while late["type"] != "frame":
            late = stalled.step()
        assert late["seq"] == 2
        assert late["channels"]["state"]["data"][0] == 59
        assert late["channels"]["events"]["kind"] == "snapshot"


@pytest.mark.parametrize(
    "said",
    [
        "no JSON",
        "[]",
        "{}",
        '{"type": "subscribe"}',
        '{"type": "subscribe", "channels": "state"}',
        '{"type": "subscribe", "channels": [1]}',
        '{"type": "ack", "seq": "x"}',
        '{"type": "ack"}',
        '{"type": "subscribe", "channels": ["state"], "have": 7}',
    ],
)
def test_what_is_not_understood_is_answered_and_harms_nobody(serve: Serve, channels: Channels, said: str) -> None:
    channels.slot("state").set(1)
    with Page(serve().address) as page:
        page.socket.send(said)
        page.until(lambda one: bool(one.errors))
        page.subscribe("state")
        page.until(lambda one: one.values.get("state") == 1)


def test_versions_that_are_nonsense_lead_to_snapshots(serve: Serve, channels: Channels) -> None:
    channels.row_buffer("events", 5).append({"n": 1})
    with Page(serve().address) as page:
        have = {"epoch": channels.epoch, "versions": {"events": "1"}}
        page.say(type="subscribe", channels=["events"], have=have)
        page.until(lambda one: rows(one, "events") == [1])
    with Page(serve().address) as page:
        have = {"epoch": channels.epoch, "versions": {"events": 10**9}}
        page.say(type="subscribe", channels=["events"], have=have)
        page.until(lambda one: rows(one, "events") == [1])


def test_a_message_that_is_too_long_ends_the_conversation(serve: Serve) -> None:
    with Page(serve().address) as page:
        page.socket.send("x" * 1_000_000)
        with pytest.raises(ConnectionClosed):
            page.until(lambda _: False)


def test_unknown_channels_and_too_many(serve: Serve) -> None:
    with Page(serve().address) as page:
        page.subscribe("state", "nonsense")
        page.until(lambda one: bool(one.errors))
        assert page.errors[0]["channel"] == "nonsense"
        page.subscribe(*(f"panel:{number}" for number in range(300)))
        page.until(lambda one: len(one.errors) == 2)
        assert "200" in page.errors[1]["message"]


def test_what_records_hold_is_encoded_safely(serve: Serve, channels: Channels) -> None:
    nasty = [math.nan, math.inf, None, "\ud83d", "\x00</script><script>alert(1)</script>", 2**60, b"\xff", "y" * 10**6]
    with Page(serve().address) as page:
        page.subscribe("panel:x", "tail:x")
        channels.slot("panel:x").set({"rows": [nasty], "\ud83d": 1})
        channels.row_buffer("tail:x", 5).append({"value": nasty})
        page.until(lambda one: "panel:x" in one.values and "tail:x" in one.columns)
        shown = page.values["panel:x"]["rows"][0]
        assert shown[:4] == [None, None, None, "?"]
        assert shown[4] == nasty[4], "markup stays text"
        assert shown[5:7] == [str(2**60), "\\xff"]
        assert len(shown[7]) == 4096
        assert page.columns["tail:x"]["value"] == [shown]


def test_work_runs_only_while_somebody_looks(serve: Serve, channels: Channels) -> None:
    begun, ended = threading.Event(), threading.Event()

    def fill(stop: threading.Event) -> None:
        begun.set()
        while not stop.is_set():
            channels.slot("topics").set(["posts"])
            stop.wait(0.01)
        ended.set()

    address = serve(work=lambda name: fill if name == "topics" else None).address
    with Page(address) as page:
        page.subscribe("state")
        assert page.step()["type"] == "beat"
        assert not begun.is_set()
        page.subscribe("topics")
        page.until(lambda one: one.values.get("topics") == ["posts"])
        assert not ended.is_set()
    assert ended.wait(20)


def test_work_that_fails_is_told_to_those_who_look(serve: Serve) -> None:
    def fill(stop: threading.Event) -> None:
        raise UnknownTopic("there is no topic 'x'")

    with Page(serve(work=lambda _: fill).address) as page:
        page.subscribe("tail:x")
        page.until(lambda one: bool(one.errors))
        assert page.errors[0]["channel"] == "tail:x"
        assert page.errors[0]["message"] == "there is no topic 'x'"


def test_the_end_of_a_trouble_is_told_once(serve: Serve, channels: Channels) -> None:
    mended = threading.Event()

    def fill(stop: threading.Event) -> None:
        if not mended.is_set():
            raise UnknownTopic("there is no topic 'x'")
        channels.row_buffer("tail:x", 5).append({"n": 1})
        stop.wait()

    with Page(serve(work=lambda _: fill).address) as page:
        page.subscribe("tail:x")
        page.until(lambda one: bool(one.errors))
        mended.set()
        page.until(lambda one: len(one.errors) == 2 and rows(one, "tail:x") == [1])
        assert page.step()["type"] == "beat"
    told = [(one["channel"], one["message"]) for one in page.errors]
    assert told == [("tail:x", "there is no topic 'x'"), ("tail:x", None)]


def test_an_event_stream_that_is_closed_ends_its_messages(channels: Channels) -> None:
    ended = []

    class Recorded(Broadcaster):
        async def messages(self, client: Client) -> AsyncGenerator[str, None]:
            try:
                while True:
                    yield self.hello()
            finally:
                ended.append(client)

    async def read_one() -> None:
        events = _events(Recorded(channels, OnDemandChannels(channels, lambda _: None)), ["state"])
        assert "hello" in await anext(events)
        await events.aclose()
        assert ended

    asyncio.run(read_one())
