"""Decide what follows a failure: give up, or wait and connect again, and for how long.

- `ConnectionLapse` is a failure that is retried; `FeedFailed` is one that is not.
- `Backoff` holds the delays of a feed, by kind of failure; `Retries` counts attempts.
- `error_of_response` tells the two kinds of failure apart by the HTTP status.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from millrace.errors import FeedFailed

MAX_SERVER_WAIT_S = 3600.0
"""The longest wait that a server can ask for, whatever its Retry-After says."""

_RETRIED_STATUSES = (408, 425, 429)
_MAX_ERROR_CHARS = 300


class ConnectionLapse(Exception):
    """A temporary failure: the connection was lost, or the server cannot answer just now."""

    def __init__(self, message: str, *, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.wait = wait


@dataclass(frozen=True)
class DelayRamp:
    """Delays in seconds that grow from `first` to `most`: doubled each time, or by `first` if `linear`."""

    first: float
    most: float
    linear: bool = False

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait before an attempt; attempts count from 1."""
        delay = self.first * (attempt if self.linear else 2.0 ** min(attempt - 1, 30))
        return min(delay, self.most)


@dataclass(frozen=True)
class Backoff:
    """How long to wait before connecting again, by kind of failure."""

    network: DelayRamp = DelayRamp(0.25, 60.0)
    server: DelayRamp = DelayRamp(1.0, 60.0)
    limited: DelayRamp = DelayRamp(5.0, 60.0)
    """For status 429: too many requests."""
    jitter: float = 0.5
    """The random share of each wait, so that many clients do not reconnect at the same moment."""
    steady: float = 10.0
    """A connection that lasted this many seconds resets the delays."""

    def ramp(self, lapse: ConnectionLapse) -> DelayRamp:
        """Return the delays for this kind of failure."""
        if lapse.status is None:
            return self.network
        return self.limited if lapse.status == 429 else self.server


class Retries:
    """Counts consecutive failures and computes the wait after each."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._ramp: DelayRamp | None = None
        self._attempt = 0

    def wait(self, lapse: ConnectionLapse, connected_s: float) -> float:
        """Return the seconds to wait after a connection that failed when it had lasted `connected_s`."""
        ramp = self._backoff.ramp(lapse)
        if ramp != self._ramp or connected_s >= self._backoff.steady:
            self._ramp, self._attempt = ramp, 0
        self._attempt += 1
        wait = ramp.wait(self._attempt) * (1.0 - self._backoff.jitter * random.random())
        return max(wait, min(lapse.wait or 0.0, MAX_SERVER_WAIT_S))


def error_of_response(
    name: str, status: int, headers: Mapping[str, str], body: bytes, hints: Mapping[int, str] | None = None
) -> ConnectionLapse | FeedFailed:
    """Return the error for a response that is no success.

    A 4xx status is final: the request itself is wrong, and would be refused again.
    """
    text = error_text(body)
    if status >= 500 or status in _RETRIED_STATUSES:
        return ConnectionLapse(
            f"{name} answers {status}" + (f" ({text})" if text else ""), status=status, wait=requested_wait(headers)
        )
    return FeedFailed(f"{name} answers {status}", why=text or None, hint=(hints or {}).get(status))


def requested_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait: Retry-After, or the reset time of an exhausted rate limit."""
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
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except ValueError:
            continue
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (aware - now).total_seconds())
    return None


def error_text(body: bytes) -> str:
    """Return the error message in the body of a response, shortened."""
    try:
        content = json.loads(body)
    except ValueError:
        return " ".join(body[:_MAX_ERROR_CHARS].decode(errors="replace").split())
    return _json_error_text(content) or json.dumps(content)[:_MAX_ERROR_CHARS]


def _json_error_text(content: object) -> str:
    if isinstance(content, list):
        return "; ".join(filter(None, map(_json_error_text, content)))[:_MAX_ERROR_CHARS]
    if not isinstance(content, dict):
        return ""
    parts = [str(content[field]) for field in ("title", "detail", "message", "error") if content.get(field)]
    return (": ".join(parts) or _json_error_text(content.get("errors")))[:_MAX_ERROR_CHARS]
