"""The feed of Bluesky's Jetstream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import httpx

from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.public_streams import (
    CONNECTED,
    Backoff,
    Event,
    Events,
    PositionTracker,
    Recent,
    StreamHalt,
    checked_url,
    event_fields,
    key_of,
    not_future,
    read_events,
    websocket_messages,
)
from millrace.plugins import option
from millrace.units import format_duration, parse_duration

HOSTS = ("jetstream2.us-east", "jetstream1.us-east", "jetstream2.us-west", "jetstream1.us-west")
PUBLIC = ",".join(f"wss://{host}.bsky.network/subscribe" for host in HOSTS)
REWIND = 5_000_000
"""Microseconds that a resumed stream is rewound: each host stamps an event when it sees it, so they differ a little."""
GAP = 60_000_000
_MOST_COLLECTIONS = 100


@dataclass(frozen=True, kw_only=True)
class Bluesky(Feed):
    """Posts (or likes, follows, anything) on Bluesky as they happen (Jetstream).

    A value is the event's JSON, its key `did/collection/rkey/rev`, which no other event has. At least once: a run
    goes on a few seconds before where the last one ended; within a run the events that come twice for that are
    left out. The hosts keep a day or two of events; what is missing after a longer pause is told.
    """

    collections: str = option(
        "app.bsky.feed.post", "What to read, comma-separated, as app.bsky.feed.like or app.bsky.*"
    )
    accounts: bool = option(False, "Keep the events about accounts too, which come with any collection.")
    url: str = option(PUBLIC, "The hosts to use, comma-separated, each in its turn.", shown_default="Bluesky's four")
    idle: float = option(
        60.0, "Connect again when there was no sign of life for this long.", parse=parse_duration, shown_default="1m"
    )

    backoff: ClassVar[Backoff] = Backoff()

    def batches(self, run: Run) -> Iterator[Batch]:
        """The events from where the last run ended, else from now."""
        urls = [checked_url(url, "--url", ("ws", "wss")) for url in split(self.url)]
        if not urls or len(split(self.collections)) > _MOST_COLLECTIONS:
            raise InvalidOption("Jetstream takes one host or more, and at most 100 collections")
        # Every host has the same events under nearly the same times, so a position belongs to none of them.
        progress = PositionTracker(run, "jetstream")
        saved = progress.load()
        listener = _Listener(self, urls, run, int(saved) if saved and saved.isdigit() else None)
        return read_events(run, listener.connect, name="bluesky", backoff=self.backoff, progress=progress)


class _Listener:
    """What is known from one connection to the next: the last event's time, and which events there were."""

    def __init__(self, feed: Bluesky, urls: list[str], run: Run, last: int | None) -> None:
        self._feed = feed
        self._urls = urls
        self._run = run
        self._last = last
        self._recent = Recent()
        self._turn = count()

    def connect(self, halt: StreamHalt) -> Events:
        """One connection to the next host, from the last event on."""
        url = httpx.URL(self._urls[next(self._turn) % len(self._urls)])
        resumed = self._last
        address = str(url.copy_merge_params(self._params(resumed)))
        for message in websocket_messages(address, halt, name=url.host, idle=self._feed.idle):
            if message is None:
                self._run.say(f"connected to {url.host}")
                yield CONNECTED
                continue
            event = event_fields(message)
            moment = event.get("time_us")
            if isinstance(moment, int):
                self._mind_gap(resumed, moment)
                resumed = None
                self._last = max(moment, self._last or 0)
            yield Event(self._record(message, event), None if self._last is None else str(self._last))

    def _params(self, last: int | None) -> dict[str, Any]:
        params: dict[str, Any] = {"wantedCollections": split(self._feed.collections)}
        return params if last is None else {**params, "cursor": last - REWIND}

    def _mind_gap(self, resumed: int | None, first: int) -> None:
        if resumed is not None and first - resumed > GAP:
            missing = format_duration((first - resumed) / 1e6)
            self._run.say(f"bluesky: the events of {missing} are missing, the host does not have them any more")

    def _record(self, message: bytes, event: dict[str, Any]) -> Record | None:
        if event.get("kind") in ("account", "identity") and not self._feed.accounts:
            return None
        key = key_of(identity(event))
        if self._recent.repeats(key):
            return None
        moment = event.get("time_us")
        return Record(message, key, not_future(moment / 1000) if isinstance(moment, int) else None)


def identity(event: dict[str, Any]) -> str | None:
    """What makes an event itself: whose record it is about, which one, and in which revision of the repository."""
    about = event.get(str(event.get("kind")))
    if not isinstance(about, dict) or "did" not in event:
        return None
    parts = [about.get(field) for field in ("collection", "rkey", "rev")]
    parts = parts if all(parts) else [event["kind"], about.get("seq")]
    return "/".join(map(str, [event["did"], *parts]))


def split(text: str) -> list[str]:
    """The parts of a comma-separated option."""
    return [part.strip() for part in text.split(",") if part.strip()]
