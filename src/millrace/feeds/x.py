"""The feed of X's filtered stream."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import Batch, Run
from millrace.feeds.public_streams.backoff import Backoff, ConnectionLapse, DelayRamp, error_text
from millrace.feeds.public_streams.progress import CONNECTED, Event, RecentIds, event_fields, key_of, timestamp_of
from millrace.feeds.public_streams.reader import Events, PublicStream, StreamHalt, read_events
from millrace.feeds.public_streams.transport import HttpClient, checked_url, json_lines
from millrace.plugins import option
from millrace.units import parse_duration

TOKEN_VARIABLE = "X_BEARER_TOKEN"  # noqa: S105 - the variable's name
_HINTS = {
    401: f"is the app's bearer token in {TOKEN_VARIABLE} still good?",
    403: "the filtered stream needs a paid plan, and an app that belongs to a project",
    409: "no rule is set: say what to look for with --rule",
}
_USAGE_CAP = "UsageCapExceeded"
_RULE = re.compile(r'(?:"[^"]*"|[^,])+')


@dataclass(frozen=True, kw_only=True)
class X(PublicStream):
    """Posts on X that match rules, as they happen (API v2, filtered stream; the token is read from X_BEARER_TOKEN).

    A value is the post's JSON with the rules that it matches, its key the post's id. The stream has no position to
    resume from: what is posted while there is no connection is missed, except for the last --backfill-minutes (at
    most five, and only on plans that have it). Rules belong to the app and stay: missing ones are added, none is
    deleted, and the posts that other rules match are read as well.
    """

    rule: str = option("", "What to look for, comma-separated: --rule '#kafka lang:en,\"apache spark\"'")
    tweet_fields: str = option("author_id,created_at,lang", "Which fields of a post to ask for, comma-separated.")
    backfill_minutes: int = option(0, "On each connection ask for what was posted in the last 1 to 5 minutes.")
    url: str = option("https://api.x.com", "Where the API is served.")
    idle: float = option(
        30.0,
        "Connect again when nothing came for this long; X sends a sign of life every 20s.",
        parse=parse_duration,
        shown_default="30s",
    )

    backoff: ClassVar[Backoff] = Backoff(
        # As X documents it: linear for the network, doubling for errors, from one minute for too many requests.
        network=DelayRamp(0.25, 16.0, linear=True),
        server=DelayRamp(5.0, 320.0),
        limited=DelayRamp(60.0, 960.0),
        jitter=0.0,
    )

    def batches(self, run: Run) -> Iterator[Batch]:
        """Yield the matching posts from now on."""
        if not 0 <= self.backfill_minutes <= 5:
            raise InvalidOption(f"--backfill-minutes: {self.backfill_minutes} is not between 0 and 5")
        token = os.environ.get(TOKEN_VARIABLE, "")
        if not token:
            raise InvalidOption(
                "the X feed needs a bearer token", hint=f"set the variable {TOKEN_VARIABLE} to that of your app at X"
            )
        listener = _Listener(self, f"{checked_url(self.url, '--url')}/2/tweets/search/stream", token, run)
        return read_events(run, listener.connect, name="x", backoff=self.backoff)


class _Listener:
    """Keeps from one connection to the next whether the rules are set, and the recent ids."""

    def __init__(self, feed: X, url: str, token: str, run: Run) -> None:
        self._feed = feed
        self._url = url
        self._token = token
        self._run = run
        self._recent = RecentIds()
        self._rules_set = False

    def connect(self, halt: StreamHalt) -> Events:
        """Set the rules if that has not been done, and connect once."""
        headers = {"authorization": f"Bearer {self._token}"}
        client = HttpClient(halt, name="X", idle=self._feed.idle, headers=headers, hints=_HINTS)
        with client, _usage_cap_is_final():
            if not self._rules_set:
                self._set_rules(client)
                self._rules_set = True
            params = {"tweet.fields": self._feed.tweet_fields, "backfill_minutes": self._feed.backfill_minutes}
            given = {name: value for name, value in params.items() if value}
            with client.stream(self._url, params=given) as chunks:
                self._run.notify(f"connected to {self._url}")
                yield CONNECTED
                for line in json_lines(chunks):
                    yield from self._post(line)

    def _post(self, line: bytes) -> Iterator[Event]:
        message = event_fields(line)
        post = message.get("data")
        if isinstance(post, dict):
            key = key_of(post.get("id"))
            if not self._recent.repeats(key):
                yield Event(Record(line, key, timestamp_of(post.get("created_at"))))
        elif "errors" in message or "title" in message:
            limited = "TooManyConnections" in line.decode(errors="replace")
            raise ConnectionLapse(f"X ended the stream: {error_text(line)}", status=429 if limited else None)
        else:
            yield Event(Record(line))

    def _set_rules(self, client: HttpClient) -> None:
        wanted = split_rules(self._feed.rule)
        if not wanted:
            return
        present = {rule.get("value") for rule in event_fields(client.get(f"{self._url}/rules")).get("data") or ()}
        missing = [{"value": rule} for rule in wanted if rule not in present]
        if not missing:
            return
        response = event_fields(client.post(f"{self._url}/rules", {"add": missing}))
        for problem in response.get("errors") or ():
            if problem.get("title") != "DuplicateRule":
                raise FeedFailed(
                    f"X does not take the rule {problem.get('value')!r}",
                    why="; ".join(problem.get("details") or ()) or problem.get("title"),
                    hint="docs.x.com, under Filtered stream, says how a rule is written",
                )


@contextmanager
def _usage_cap_is_final() -> Iterator[None]:
    try:
        yield
    except ConnectionLapse as lapse:
        if _USAGE_CAP in str(lapse):
            # Its status is 429, but a retry does not help before the next month.
            raise FeedFailed("the posts that the plan at X includes are used up", why=str(lapse)) from lapse
        raise


def split_rules(text: str) -> list[str]:
    """Return the comma-separated rules of an option; commas in quotes belong to a rule."""
    return [rule.strip() for rule in _RULE.findall(text) if rule.strip()]
