"""The feed of Wikimedia's EventStreams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from millrace.clients.kafka.record import Record
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.public_streams import (
    CONNECTED,
    Backoff,
    ConnectionLapse,
    Event,
    Events,
    PositionTracker,
    Recent,
    ServerSentEvent,
    StreamHalt,
    Web,
    checked_url,
    event_fields,
    key_of,
    read_events,
    time_of,
    user_agent,
)
from millrace.plugins import option
from millrace.units import parse_duration

OVERLAP = 2000
"""Milliseconds that a resumed stream is rewound: an event's id names a millisecond, in which there may be others."""

_HINTS = {
    400: "the saved position may be one of another stream: remove it to start from now",
    403: "Wikimedia wants to know whom to write to: give your address or page with --contact",
    404: "https://stream.wikimedia.org/?doc lists the streams",
}


@dataclass(frozen=True, kw_only=True)
class Wikimedia(Feed):
    """Every change to Wikipedia and its sister projects as it happens (Wikimedia EventStreams).

    A value is the event's JSON, its key the event's `meta.id`. At least once: a run goes on where the last one
    ended, a little before it in fact; within a run the events that are sent twice for that are left out.
    Wikimedia keeps about a week of events. Its test events (of the domain `canary`) are left out.
    """

    stream: str = option("recentchange", "The streams to read, comma-separated; stream.wikimedia.org/?doc lists them.")
    url: str = option("https://stream.wikimedia.org/v2/stream", "Where the streams are served.")
    contact: str = option("", "Your e-mail address or page, which Wikimedia asks for in case something goes wrong.")
    idle: float = option(
        60.0, "Connect again when nothing came for this long.", parse=parse_duration, shown_default="1m"
    )

    backoff: ClassVar[Backoff] = Backoff()

    def batches(self, run: Run) -> Iterator[Batch]:
        """The streams' events from where the last run ended, else from now."""
        url = f"{checked_url(self.url, '--url')}/{self.stream}"
        progress = PositionTracker(run, url)
        listener = _Listener(self, url, run, progress.load())
        return read_events(run, listener.connect, name="wikimedia", backoff=self.backoff, progress=progress)


class _Listener:
    """What is known from one connection to the next: the last event's id, and which events there were."""

    def __init__(self, feed: Wikimedia, url: str, run: Run, last: str | None) -> None:
        self._feed = feed
        self._url = url
        self._run = run
        self._last = last
        self._recent = Recent()

    def connect(self, halt: StreamHalt) -> Events:
        """One connection, from the last event on."""
        agent = {"user-agent": user_agent(self._feed.contact)}
        resume = {"last-event-id": rewound(self._last)} if self._last else {}
        with Web(halt, name="Wikimedia", idle=self._feed.idle, headers=agent, hints=_HINTS) as web:
            for message in web.events(self._url, headers=resume):
                if message is None:
                    self._run.say(f"connected to {self._url}")
                    yield CONNECTED
                elif message.type == "error":
                    raise ConnectionLapse(f"Wikimedia reports {message.data.decode(errors='replace')[:200]}")
                else:
                    self._last = furthest(self._last, message.id)
                    yield Event(self._record(message), self._last)

    def _record(self, message: ServerSentEvent) -> Record | None:
        meta = event_fields(message.data).get("meta")
        meta = meta if isinstance(meta, dict) else {}
        key = key_of(meta.get("id"))
        if meta.get("domain") == "canary" or self._recent.repeats(key):
            return None
        return Record(message.data, key, time_of(meta.get("dt")))


def furthest(last: str | None, latest: str) -> str | None:
    """How far the stream was read, after another event: in no topic less far than before, though it was rewound."""
    before, after = _places(last or ""), _places(latest)
    if not before or not after:
        return latest or last
    return _id([max(place, before.get(topic, place), key=_distance) for topic, place in after.items()])


def rewound(last: str) -> str:
    """The id of an event, moved back so far that nothing after it can be missed.

    An id lists how far each Kafka topic behind the stream was read, as the millisecond after the last event.
    A second event in the same millisecond, or one that was late, would be skipped. A topic that has sent
    nothing yet is listed as "from its end on": where its end was when the last event came is meant.
    """
    places = list(_places(last).values())
    times = [place["timestamp"] for place in places if "timestamp" in place]
    return _id([_earlier(place, max(times)) for place in places]) if times else last


def _places(identity: str) -> dict[tuple[str, int], dict[str, Any]]:
    try:
        return {(place["topic"], place["partition"]): place for place in json.loads(identity)}
    except (ValueError, TypeError, KeyError):
        return {}


def _id(places: list[dict[str, Any]]) -> str:
    return json.dumps(places, separators=(",", ":"))


def _distance(place: dict[str, Any]) -> int:
    return int(place.get("timestamp", place.get("offset", -1)))


def _earlier(place: dict[str, Any], newest: int) -> dict[str, Any]:
    if "timestamp" not in place and place.get("offset") != -1:
        return place
    moment = place.get("timestamp", newest) - OVERLAP
    return {"topic": place["topic"], "partition": place["partition"], "timestamp": moment}
