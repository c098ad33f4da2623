"""What to do about a failure: give up, or wait and connect again, and for how long."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from millrace.errors import FeedFailed

LONGEST_ASKED = 3600.0
"""Seconds that a server can make us wait at most, whatever its Retry-After says."""

_PASSING = (408, 425, 429)
_SNIPPET = 300


class ConnectionLapse(Exception):
    """A failure that passes: the connection was lost, or the server cannot answer just now."""

    def __init__(self, message: str, *, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.wait = wait


@dataclass(frozen=True)
class DelayRamp:
    """Waits that grow from the first to the most: doubled each time, or by the first again."""

    first: float
    most: float
    linear: bool = False

    def wait(self, attempt: int) -> float:
        """Seconds before an attempt; attempts count from 1."""
        grown = self.first * (attempt if self.linear else 2.0 ** min(attempt - 1, 30))
        return min(grown, self.most)


@dataclass(frozen=True)
class Backoff:
    """How long to wait before connecting again, by what went wrong."""

    network: DelayRamp = DelayRamp(0.25, 60.0)
    server: DelayRamp = DelayRamp(1.0, 60.0)
    limited: DelayRamp = DelayRamp(5.0, 60.0)
    """For 429: the server has already said that we ask too often."""
    jitter: float = 0.5
    """The share of each wait that is left to chance, so that many clients do not come back together."""
    steady: float = 10.0
    """A connection that lasted this many seconds was a good one: after it the waits start small again."""

    def ramp(self, lapse: ConnectionLapse) -> DelayRamp:
        """The waits for this kind of failure."""
        if lapse.status is None:
            return self.network
        return self.limited if lapse.status == 429 else self.server


class Retries:
    """Counts the failures in a row and says how long to wait after each."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._ramp: DelayRamp | None = None
        self._attempt = 0

    def wait(self, lapse: ConnectionLapse, lasted: float) -> float:
        """Seconds to wait after a connection that lasted so long and then failed so."""
        ramp = self._backoff.ramp(lapse)
        if ramp != self._ramp or lasted >= self._backoff.steady:
            self._ramp, self._attempt = ramp, 0
        self._attempt += 1
        wait = ramp.wait(self._attempt) * (1.0 - self._backoff.jitter * random.random())
        return max(wait, min(lapse.wait or 0.0, LONGEST_ASKED))


def refusal(
    name: str, status: int, headers: Mapping[str, str], body: bytes, hints: Mapping[int, str] | None = None
) -> ConnectionLapse | FeedFailed:
    """What an answer other than success means: try again later, or not at all.

    A 4xx says that the request itself is wrong; asking again would get the same answer for ever.
    """
    said = reason(body)
    if status >= 500 or status in _PASSING:
        return ConnectionLapse(
            f"{name} answers {status}" + (f" ({said})" if said else ""), status=status, wait=asked_wait(headers)
        )
    return FeedFailed(f"{name} answers {status}", why=said or None, hint=(hints or {}).get(status))


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that a server asks to be left alone: Retry-After, or the end of a rate limit that is used up."""
    now = now or datetime.now(UTC)
    if "retry-after" in headers:
        return _seconds_until(headers["retry-after"], now, relative=True)
    for limit in ("x-rate-limit", "x-ratelimit"):
        if headers.get(f"{limit}-remaining") == "0" and f"{limit}-reset" in headers:
            return _seconds_until(headers[f"{limit}-reset"], now, relative=False)
    return None


def _seconds_until(text: str, now: datetime, *, relative: bool) -> float | None:
    if text.isdigit():
        return float(text) if relative else max(0.0, float(text) - now.timestamp())
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(text)
        except ValueError:
            continue
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (aware - now).total_seconds())
    return None


def reason(body: bytes) -> str:
    """What the body of a refusal says, in short."""
    try:
        said = json.loads(body)
    except ValueError:
        return " ".join(body[:_SNIPPET].decode(errors="replace").split())
    return _told(said) or json.dumps(said)[:_SNIPPET]


def _told(said: object) -> str:
    if isinstance(said, list):
        return "; ".join(filter(None, map(_told, said)))[:_SNIPPET]
    if not isinstance(said, dict):
        return ""
    parts = [str(said[field]) for field in ("title", "detail", "message", "error") if said.get(field)]
    return (": ".join(parts) or _told(said.get("errors")))[:_SNIPPET]
