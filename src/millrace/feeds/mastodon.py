"""The feed of a Mastodon server's public timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from httpx_sse import ServerSentEvent

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed
from millrace.feeds.base.api import Batch, Run
from millrace.feeds.listeners.json_payloads import Malformed, elements
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
from millrace.feeds.public_streams.transport import HttpClient, checked_url
from millrace.plugins import option

OVERLAP_MS = 10_000
"""Missed posts are fetched from this long before the last one: posts of other servers arrive late."""
PAGE_SIZE = 40

_AUTHORISE = "make an application in the server's settings (Development) and set its token in MILLRACE_MASTODON_TOKEN"
_HINTS = {401: _AUTHORISE, 403: _AUTHORISE, 404: "is this a Mastodon server? name another with --instance"}


@dataclass(frozen=True, kw_only=True)
class Mastodon(PublicStream):
    """Public posts of a Mastodon server, new, edited and deleted, as they happen.

    A value is the post's JSON, or `{"event":"delete","id":…}`; its key is the post's id; the header `event` says
    which it is: update, status.update or delete. At least once for new posts: the stream itself cannot be resumed,
    so those that were missed while there was no connection are fetched from the timeline first, up to --backlog.
    Edits and deletions that happened meanwhile are not known afterwards.
    """

    instance: str = option("mastodon.social", "The server, as a name or as a URL.")
    token: str | None = option(None, "An access token; most servers want one.", variable="MILLRACE_MASTODON_TOKEN")
    local: bool = option(False, "Only posts of the server's own people.")
    backlog: int = option(4000, "How many missed posts are fetched at most after a pause.")

    def batches(self, run: Run) -> Iterator[Batch]:
        """Yield what was missed since the last run, then new posts."""
        address = self.instance if "://" in self.instance else f"https://{self.instance}"
        server = checked_url(address, "--instance")
        progress = PositionTracker(run, server)
        listener = _Listener(self, server, run, progress.load())
        return read_events(run, listener.connect, name="mastodon", backoff=self.backoff, progress=progress)


class _Listener:
    """Keeps the newest post and the recent ids from one connection to the next."""

    def __init__(self, feed: Mastodon, server: str, run: Run, newest: str | None) -> None:
        self._feed = feed
        self._server = server
        self._run = run
        self._newest = newest
        self._recent = RecentIds()
        self._streaming_url: str | None = None

    def connect(self, halt: StreamHalt) -> Events:
        """Connect once. The stream is open before the missed posts are fetched, so that there is no gap."""
        headers = {"authorization": f"Bearer {self._feed.token}"} if self._feed.token else {}
        with HttpClient(halt, name=self._server, idle=self._feed.idle, headers=headers, hints=_HINTS) as client:
            self._streaming_url = self._streaming_url or streaming_server(client, self._server)
            timeline = "public/local" if self._feed.local else "public"
            for message in client.events(f"{self._streaming_url}/api/v1/streaming/{timeline}"):
                if message is None:
                    self._run.notify(f"connected to {self._streaming_url}")
                    yield CONNECTED
                    yield from self._missed_posts(client)
                else:
                    yield from self._event(message)

    def _event(self, message: ServerSentEvent) -> Iterator[Event]:
        data = message.data.encode()
        if message.event == "update":
            yield from self._post(data)
        elif message.event == "status.update":
            post = event_fields(data)
            edited = timestamp_of(post.get("edited_at"))
            yield Event(Record(data, key_of(post.get("id")), edited, (("event", b"status.update"),)))
        elif message.event == "delete":
            # The data is the bare id: as a JSON number it would have too many digits.
            value = orjson.dumps({"event": "delete", "id": message.data})
            yield Event(Record(value, data, None, (("event", b"delete"),)))

    def _post(self, data: bytes) -> Iterator[Event]:
        post = event_fields(data)
        key = key_of(post.get("id"))
        if key is not None:
            self._newest = max(self._newest or "", key.decode(), key=_age)
        if not self._recent.repeats(key):
            record = Record(data, key, timestamp_of(post.get("created_at")), (("event", b"update"),))
            yield Event(record, self._newest)

    def _missed_posts(self, client: HttpClient) -> Iterator[Event]:
        if self._newest is None:
            return
        since, left = rewound_id(self._newest), self._feed.backlog
        while left > 0:
            posts = self._page(client, since, min(PAGE_SIZE, left))
            if not posts:
                return
            since = str(event_fields(posts[0]).get("id"))
            for post in reversed(posts):
                yield from self._post(post)
            left -= len(posts)
        self._run.notify(f"mastodon: more than {self._feed.backlog} posts were missed; the later ones are left out")

    def _page(self, client: HttpClient, since: str, size: int) -> list[bytes]:
        params: dict[str, Any] = {"min_id": since, "limit": size}
        if self._feed.local:
            params["local"] = "true"
        try:
            return elements(client.get(f"{self._server}/api/v1/timelines/public", params))
        except Malformed as error:
            raise ConnectionLapse(f"the timeline of {self._server} is {error}") from error


def streaming_server(client: HttpClient, server: str) -> str:
    """Return the URL that a server streams from; its description may name another host."""
    try:
        url: Any = event_fields(client.get(f"{server}/api/v2/instance"))
    except FeedFailed:
        # Other software with this protocol has no such description, and streams from the same host.
        return server
    for field in ("configuration", "urls", "streaming"):
        url = url.get(field) if isinstance(url, dict) else None
    address = str(url or server).replace("wss://", "https://").replace("ws://", "http://").rstrip("/")
    # The token is sent there: never unencrypted because a description says so.
    return server if server.startswith("https:") and not address.startswith("https:") else address


def rewound_id(post_id: str) -> str:
    """Return the id of a post made OVERLAP_MS before this one: an id starts with its milliseconds."""
    return str(int(post_id) - (OVERLAP_MS << 16)) if post_id.isdigit() and len(post_id) > 15 else post_id


def _age(post_id: str) -> tuple[int, str]:
    return len(post_id), post_id
