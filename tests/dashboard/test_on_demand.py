"""Channels that are filled only while somebody looks at them."""

from __future__ import annotations

import threading

from millrace.dashboard.on_demand import MOST_CHANNELS, OnDemandChannels
from millrace.telemetry.channels import Channels


def test_what_finds_no_room_begins_when_there_is_some() -> None:
    channels = Channels()
    made = OnDemandChannels(channels, lambda _: lambda stop: stop.wait(), linger=0.0)
    names = [f"tail:{number}" for number in range(MOST_CHANNELS)]
    try:
        made.want(names)
        made.want([*names, "tail:late", "tail:later"])
        assert made.names == set(names)
        assert set(channels.problems()) == {"tail:late", "tail:later"}
        made.want([*names, "tail:late"])  # one of them has given up
        assert set(channels.problems()) == {"tail:late"}
        made.want([*names[1:], "tail:late"])
        assert made.names == {*names[1:], "tail:late"}
        while channels.problems():
            threading.Event().wait(0.01)
    finally:
        made.close()
