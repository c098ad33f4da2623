"""The feed of Bluesky's Jetstream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx

from millrace.clients.kafka.record import Record
from millrace.errors import InvalidOption
from millrace.feeds.base.api import Batch, Run
from millrace.feeds.public_streams.progress import (
    CONNECTED,
    Event,
    PositionTracker,
    RecentIds,
    event_fields,
    key_of,
    valid_timestamp,
)
from millrace.feeds.public_streams.reader import Events, PublicStream, StreamHalt, read_events
from millrace.feeds.public_streams.transport import checked_url, websocket_messages
from millrace.plugins import option
from millrace.units import format_duration

HOSTS = ("jetstream2.us-east", "jetstream1.us-east", "jetstream2.us-west", "jetstream1.us-west")
PUBLIC_URLS = ",".join(f"wss://{host}.bsky.network/subscribe" for host in HOSTS)
OVERLAP_US = 5_000_000
"""A resumed stream is rewound by this much: each host stamps an event when it sees it, so times differ a little."""
REPORTED_GAP_US = 60_000_000
_MAX_COLLECTIONS = 100


@dataclass(frozen=True, kw_only=True)
class Bluesky(PublicStream):
    """Posts (or likes, follows, anything) on Bluesky as they happen (Jetstream).

    A value is the event's JSON, its key `did/collection/rkey/rev`, which no other event has. At least once: a run
    resumes a few seconds before the end of the last one; within a run, events that were received twice because of
    that are left out. The hosts keep a day or two of events; a gap after a longer pause is reported.
    """

    collections: str = option(
        "app.bsky.feed.post", "What to read, comma-separated, as app.bsky.feed.like or app.bsky.*"
    )
    accounts: bool = option(False, "Keep the events about accounts too, which come with any collection.")
    url: str = option(PUBLIC_URLS, "The hosts to use, comma-separated, in turn.", shown_default="Bluesky's four")

    def batches(self, run: Run) -> Iterator[Batch]:
        """Yield the events from the end of the last run, else from now."""
        urls = [checked_url(url, "--url", ("ws", "wss")) for url in split(self.url)]
        if not urls or len(split(self.collections)) > _MAX_COLLECTIONS:
            raise InvalidOption("Jetstream takes one host or more, and at most 100 collections")
        # Every host has the same events with nearly the same times, so a position is valid for all of them.
        progress = PositionTracker(run, "jetstream")
        saved = progress.load()
        listener = _Listener(self, urls, run, int(saved) if saved and saved.isdigit() else None)
        return read_events(run, listener.connect, name="bluesky", backoff=self.backoff, progress=progress)


class _Listener:
    """Keeps the time of the last event and the recent ids from one connection to the next."""

    def __init__(self, feed: Bluesky, urls: list[str], run: Run, last: int | None) -> None:
        self._feed = feed
        self._urls = urls
        self._run = run
        self._last = last
        self._recent = RecentIds()
        self._turn = count()

    def connect(self, halt: StreamHalt) -> Events:
        """Connect once to the next host, from the last event on."""
        url = httpx.URL(self._urls[next(self._turn) % len(self._urls)])
        resumed = self._last
        cursor = {} if resumed is None else {"cursor": resumed - OVERLAP_US}
        address = str(url.copy_merge_params({"wantedCollections": split(self._feed.collections), **cursor}))
        for message in websocket_messages(address, halt, name=url.host, idle=self._feed.idle):
            if message is None:
                self._run.notify(f"connected to {url.host}")
                yield CONNECTED
                continue
            event = event_fields(message)
            time_us = event.get("time_us")
            if isinstance(time_us, int):
                self._report_gap(resumed, time_us)
                resumed = None
                self._last = max(time_us, self._last or 0)
            yield Event(self._record(message, event), None if self._last is None else str(self._last))

    def _report_gap(self, resumed: int | None, first: int) -> None:
        if resumed is not None and first - resumed > REPORTED_GAP_US:
            missing = format_duration((first - resumed) / 1e6)
            self._run.notify(f"bluesky: the events of {missing} are missing, the host does not have them any more")

    def _record(self, message: bytes, event: dict[str, Any]) -> Record | None:
        if event.get("kind") in ("account", "identity") and not self._feed.accounts:
            return None
        key = key_of(event_id(event))
        if self._recent.repeats(key):
            return None
        time_us = event.get("time_us")
        return Record(message, key, valid_timestamp(time_us / 1000) if isinstance(time_us, int) else None)


def event_id(event: dict[str, Any]) -> str | None:
    """Return the id of an event: repository, record and revision."""
    details = event.get(str(event.get("kind")))
    if not isinstance(details, dict) or "did" not in event:
        return None
    parts = [details.get(field) for field in ("collection", "rkey", "rev")]
    parts = parts if all(parts) else [event["kind"], details.get("seq")]
    return "/".join(map(str, [event["did"], *parts]))


def split(text: str) -> list[str]:
    """Return the parts of a comma-separated option."""
    return [part.strip() for part in text.split(",") if part.strip()]
