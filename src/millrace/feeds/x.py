"""The feed of X's filtered stream."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from millrace.clients.kafka.record import Record
from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.public_streams import (
    CONNECTED,
    Backoff,
    ConnectionLapse,
    DelayRamp,
    Event,
    Events,
    Recent,
    StreamHalt,
    Web,
    checked_url,
    event_fields,
    json_lines,
    key_of,
    read_events,
    time_of,
)
from millrace.feeds.public_streams.backoff import reason
from millrace.plugins import option
from millrace.units import parse_duration

VARIABLE = "X_BEARER_TOKEN"
_HINTS = {
    401: f"is the app's bearer token in {VARIABLE} still good?",
    403: "the filtered stream needs a paid plan, and an app that belongs to a project",
    409: "no rule is set: say what to look for with --rule",
}
_CAPPED = "UsageCapExceeded"
_RULE = re.compile(r'(?:"[^"]*"|[^,])+')


@dataclass(frozen=True, kw_only=True)
class X(Feed):
    """Posts on X that match rules, as they happen (API v2, filtered stream; the token is read from X_BEARER_TOKEN).

    A value is the post's JSON with the rules that it matches, its key the post's id. The stream has no position to
    go on from: what is posted while there is no connection is missed, but for the last --backfill-minutes (at most
    five, and only on plans that have it). Rules belong to the app and stay: missing ones are added, none is deleted,
    and the posts that other rules match come too.
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
        # As X documents it: by steps for the network, doubling for errors, from a minute when there were too many.
        network=DelayRamp(0.25, 16.0, linear=True),
        server=DelayRamp(5.0, 320.0),
        limited=DelayRamp(60.0, 960.0),
        jitter=0.0,
    )

    def batches(self, run: Run) -> Iterator[Batch]:
        """The matching posts from now on."""
        if not 0 <= self.backfill_minutes <= 5:
            raise InvalidOption(f"--backfill-minutes: {self.backfill_minutes} is not between 0 and 5")
        token = os.environ.get(VARIABLE, "")
        if not token:
            raise InvalidOption(
                "the X feed needs a bearer token", hint=f"set the variable {VARIABLE} to that of your app at X"
            )
        listener = _Listener(self, f"{checked_url(self.url, '--url')}/2/tweets/search/stream", token, run)
        return read_events(run, listener.connect, name="x", backoff=self.backoff)


class _Listener:
    """What is known from one connection to the next: that the rules are set, and which posts there were."""

    def __init__(self, feed: X, url: str, token: str, run: Run) -> None:
        self._feed = feed
        self._url = url
        self._token = token
        self._run = run
        self._recent = Recent()
        self._rules_set = False

    def connect(self, halt: StreamHalt) -> Events:
        """One connection, after the rules are known to be there."""
        headers = {"authorization": f"Bearer {self._token}"}
        with Web(halt, name="X", idle=self._feed.idle, headers=headers, hints=_HINTS) as web, _cap_is_final():
            if not self._rules_set:
                self._set_rules(web)
                self._rules_set = True
            with web.stream(self._url, params=self._params()) as chunks:
                self._run.say(f"connected to {self._url}")
                yield CONNECTED
                for line in json_lines(chunks):
                    yield from self._post(line)

    def _params(self) -> dict[str, Any]:
        params = {"tweet.fields": self._feed.tweet_fields, "backfill_minutes": self._feed.backfill_minutes}
        return {name: value for name, value in params.items() if value}

    def _post(self, line: bytes) -> Iterator[Event]:
        message = event_fields(line)
        post = message.get("data")
        if isinstance(post, dict):
            key = key_of(post.get("id"))
            if not self._recent.repeats(key):
                yield Event(Record(line, key, time_of(post.get("created_at"))))
        elif "errors" in message or "title" in message:
            crowded = "TooManyConnections" in line.decode(errors="replace")
            raise ConnectionLapse(f"X ended the stream: {reason(line)}", status=429 if crowded else None)
        else:
            yield Event(Record(line))

    def _set_rules(self, web: Web) -> None:
        wanted = split_rules(self._feed.rule)
        if not wanted:
            return
        present = {rule.get("value") for rule in event_fields(web.get(f"{self._url}/rules")).get("data") or ()}
        missing = [{"value": rule} for rule in wanted if rule not in present]
        if not missing:
            return
        answer = event_fields(web.post(f"{self._url}/rules", {"add": missing}))
        for problem in answer.get("errors") or ():
            if problem.get("title") != "DuplicateRule":
                raise FeedFailed(
                    f"X does not take the rule {problem.get('value')!r}",
                    why="; ".join(problem.get("details") or ()) or problem.get("title"),
                    hint="docs.x.com, under Filtered stream, says how a rule is written",
                )


@contextmanager
def _cap_is_final() -> Iterator[None]:
    try:
        yield
    except ConnectionLapse as lapse:
        if _CAPPED in str(lapse):
            # It comes as a 429, but asking again does not help before the next month.
            raise FeedFailed("the posts that the plan at X includes are used up", why=str(lapse)) from lapse
        raise


def split_rules(text: str) -> list[str]:
    """The rules in an option: commas part them, but for those in quotes."""
    return [rule.strip() for rule in _RULE.findall(text) if rule.strip()]
