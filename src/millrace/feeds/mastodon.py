"""The feed of a Mastodon server's public timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.listeners.json_payloads import Malformed, elements
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
)
from millrace.plugins import option
from millrace.units import parse_duration

OVERLAP = 10_000
"""Milliseconds before the last post from which missed ones are fetched: posts of other servers come in late."""
PAGE = 40

_AUTHORISE = "make an application in the server's settings (Development) and set its token in MILLRACE_MASTODON_TOKEN"
_HINTS = {401: _AUTHORISE, 403: _AUTHORISE, 404: "is this a Mastodon server? name another with --instance"}


@dataclass(frozen=True, kw_only=True)
class Mastodon(Feed):
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
    idle: float = option(
        60.0, "Connect again when nothing came for this long.", parse=parse_duration, shown_default="1m"
    )

    backoff: ClassVar[Backoff] = Backoff()

    def batches(self, run: Run) -> Iterator[Batch]:
        """What was missed since the last run, then what comes."""
        address = self.instance if "://" in self.instance else f"https://{self.instance}"
        server = checked_url(address, "--instance")
        progress = PositionTracker(run, server)
        listener = _Listener(self, server, run, progress.load())
        return read_events(run, listener.connect, name="mastodon", backoff=self.backoff, progress=progress)


class _Listener:
    """What is known from one connection to the next: the newest post, and which posts there were."""

    def __init__(self, feed: Mastodon, server: str, run: Run, newest: str | None) -> None:
        self._feed = feed
        self._server = server
        self._run = run
        self._newest = newest
        self._recent = Recent()
        self._streaming: str | None = None

    def connect(self, halt: StreamHalt) -> Events:
        """One connection. It is opened before the missed posts are fetched, so that none falls in between."""
        headers = {"authorization": f"Bearer {self._feed.token}"} if self._feed.token else {}
        with Web(halt, name=self._server, idle=self._feed.idle, headers=headers, hints=_HINTS) as web:
            self._streaming = self._streaming or streaming_server(web, self._server)
            place = "public/local" if self._feed.local else "public"
            for message in web.events(f"{self._streaming}/api/v1/streaming/{place}"):
                if message is None:
                    self._run.say(f"connected to {self._streaming}")
                    yield CONNECTED
                    yield from self._missed(web)
                else:
                    yield from self._event(message)

    def _event(self, message: ServerSentEvent) -> Iterator[Event]:
        if message.type == "update":
            yield from self._post(message.data)
        elif message.type == "status.update":
            post = event_fields(message.data)
            moment = time_of(post.get("edited_at"))
            yield Event(Record(message.data, key_of(post.get("id")), moment, (("event", b"status.update"),)))
        elif message.type == "delete":
            # What comes is the bare id: as JSON a number, and too long a one to be read as such.
            value = orjson.dumps({"event": "delete", "id": message.data.decode(errors="replace")})
            yield Event(Record(value, message.data, None, (("event", b"delete"),)))

    def _post(self, data: bytes) -> Iterator[Event]:
        post = event_fields(data)
        key = key_of(post.get("id"))
        if key is not None:
            self._newest = max(self._newest or "", key.decode(), key=_age)
        if not self._recent.repeats(key):
            record = Record(data, key, time_of(post.get("created_at")), (("event", b"update"),))
            yield Event(record, self._newest)

    def _missed(self, web: Web) -> Iterator[Event]:
        if self._newest is None:
            return
        since, left = earlier(self._newest), self._feed.backlog
        while left > 0:
            posts = self._page(web, since, min(PAGE, left))
            if not posts:
                return
            since = str(event_fields(posts[0]).get("id"))
            for post in reversed(posts):
                yield from self._post(post)
            left -= len(posts)
        self._run.say(f"mastodon: more than {self._feed.backlog} posts were missed; the later ones are left out")

    def _page(self, web: Web, since: str, size: int) -> list[bytes]:
        params: dict[str, Any] = {"min_id": since, "limit": size}
        if self._feed.local:
            params["local"] = "true"
        try:
            return elements(web.get(f"{self._server}/api/v1/timelines/public", params))
        except Malformed as error:
            raise ConnectionLapse(f"the timeline of {self._server} is {error}") from error


def streaming_server(web: Web, server: str) -> str:
    """Where a server streams from: it may be another host, and it is the server that says which."""
    try:
        described = event_fields(web.get(f"{server}/api/v2/instance"))
    except FeedFailed:
        # Other software that speaks this protocol does not describe itself so, and streams from the same host.
        return server
    named: Any = described
    for field in ("configuration", "urls", "streaming"):
        named = named.get(field) if isinstance(named, dict) else None
    address = str(named or server).replace("wss://", "https://").replace("ws://", "http://").rstrip("/")
    # The token goes there: not in the clear because a description says so.
    return server if server.startswith("https:") and not address.startswith("https:") else address


def earlier(identity: str) -> str:
    """The id that a post would have that was made a little before this one: an id begins with its milliseconds."""
    return str(int(identity) - (OVERLAP << 16)) if identity.isdigit() and len(identity) > 15 else identity


def _age(identity: str) -> tuple[int, str]:
    return len(identity), identity
