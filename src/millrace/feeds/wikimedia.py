"""The feed of Wikimedia's EventStreams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from httpx_sse import ServerSentEvent

from millrace.clients.kafka.record import Record
from millrace.feeds.base.api import Batch, Run
from millrace.feeds.public_streams.backoff import ConnectionLapse
from millrace.feeds.public_streams.progress import (
    CONNECTED,
    Event,
    PositionTracker,
    RecentIds,
    event_fields,
    key_of,
    timestamp_of,
)
from millrace.feeds.public_streams.reader import Events, PublicStream, StreamHalt, read_events
from millrace.feeds.public_streams.transport import HttpClient, checked_url, user_agent
from millrace.plugins import option

OVERLAP_MS = 2000
"""A resumed stream is rewound by this much: several events may share the millisecond that an id names."""

_HINTS = {
    400: "the saved position may be one of another stream: remove it to start from now",
    403: "Wikimedia wants to know whom to write to: give your address or page with --contact",
    404: "https://stream.wikimedia.org/?doc lists the streams",
}


@dataclass(frozen=True, kw_only=True)
class Wikimedia(PublicStream):
    """Every change to Wikipedia and its sister projects as it happens (Wikimedia EventStreams).

    A value is the event's JSON, its key the event's `meta.id`. At least once: a run resumes a little before the
    end of the last one; within a run, events that were received twice because of that are left out.
    Wikimedia keeps about a week of events. Its test events (of the domain `canary`) are left out.
    """

    stream: str = option("recentchange", "The streams to read, comma-separated; stream.wikimedia.org/?doc lists them.")
    url: str = option("https://stream.wikimedia.org/v2/stream", "Where the streams are served.")
    contact: str = option("", "Your e-mail address or page, which Wikimedia asks for in case something goes wrong.")

    def batches(self, run: Run) -> Iterator[Batch]:
        """Yield the streams' events from the end of the last run, else from now."""
        url = f"{checked_url(self.url, '--url')}/{self.stream}"
        progress = PositionTracker(run, url)
        listener = _Listener(self, url, run, progress.load())
        return read_events(run, listener.connect, name="wikimedia", backoff=self.backoff, progress=progress)


class _Listener:
    """Keeps the last event id and the recent ids from one connection to the next."""

    def __init__(self, feed: Wikimedia, url: str, run: Run, last_event_id: str | None) -> None:
        self._feed = feed
        self._url = url
        self._run = run
        self._last_event_id = last_event_id
        self._recent = RecentIds()

    def connect(self, halt: StreamHalt) -> Events:
        agent = {"user-agent": user_agent(self._feed.contact)}
        resume = {"last-event-id": rewound_id(self._last_event_id)} if self._last_event_id else {}
        with HttpClient(halt, name="Wikimedia", idle=self._feed.idle, headers=agent, hints=_HINTS) as client:
            for message in client.events(self._url, headers=resume):
                if message is None:
                    self._run.notify(f"connected to {self._url}")
                    yield CONNECTED
                elif message.event == "error":
                    raise ConnectionLapse(f"Wikimedia reports {message.data[:200]}")
                else:
                    self._last_event_id = newest_id(self._last_event_id, message.id)
                    yield Event(self._record(message), self._last_event_id)

    def _record(self, message: ServerSentEvent) -> Record | None:
        data = message.data.encode()
        meta = event_fields(data).get("meta")
        meta = meta if isinstance(meta, dict) else {}
        key = key_of(meta.get("id"))
        if meta.get("domain") == "canary" or self._recent.repeats(key):
            return None
        return Record(data, key, timestamp_of(meta.get("dt")))


def newest_id(last: str | None, latest: str) -> str | None:
    """Return the id after another event: for no topic before the last one, although the stream was rewound."""
    before, after = _positions(last or ""), _positions(latest)
    if not before or not after:
        return latest or last
    return _id_of([max(position, before.get(topic, position), key=_order) for topic, position in after.items()])


def rewound_id(last: str) -> str:
    """Return an event id moved back so far that no later event can be missed.

    An id lists a position in each Kafka topic behind the stream: the millisecond after the last event. A second
    event in the same millisecond, or a late one, would be skipped. A topic without an event yet is listed with
    offset -1, its end; the time of the last event replaces it.
    """
    positions = list(_positions(last).values())
    times = [position["timestamp"] for position in positions if "timestamp" in position]
    return _id_of([_rewound_position(position, max(times)) for position in positions]) if times else last


def _positions(event_id: str) -> dict[tuple[str, int], dict[str, Any]]:
    try:
        return {(position["topic"], position["partition"]): position for position in json.loads(event_id)}
    except (ValueError, TypeError, KeyError):
        return {}


def _id_of(positions: list[dict[str, Any]]) -> str:
    return json.dumps(positions, separators=(",", ":"))


def _order(position: dict[str, Any]) -> int:
    return int(position.get("timestamp", position.get("offset", -1)))


def _rewound_position(position: dict[str, Any], newest: int) -> dict[str, Any]:
    if "timestamp" not in position and position.get("offset") != -1:
        return position
    moment = position.get("timestamp", newest) - OVERLAP_MS
    return {"topic": position["topic"], "partition": position["partition"], "timestamp": moment}
