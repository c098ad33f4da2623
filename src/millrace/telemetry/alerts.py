"""Alerts: failures, recoveries, lag and dead letters over a limit.

- `AlertMonitor` looks at the run status and raises each alert once.
- `AlertSender` sends alerts to a URL or a command in a thread of its own, so that none can delay or harm the run.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from millrace.errors import InvalidOption, MillraceError
from millrace.masking import masked
from millrace.telemetry.measurements import Lag, Measurements
from millrace.telemetry.query_status import Phase, QueryStatus, RunStatus
from millrace.telemetry.topology import Topology
from millrace.units import Backlog, format_count

POLL_INTERVAL_S = 0.5
_DEAD_LETTER_WINDOW_S = 60.0
_CALM_S = 30.0
"""How long a figure must be below its limit before it counts as recovered: one around the limit is one alert."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert."""

    pipeline: str
    query: str | None
    """None when it is about the whole run, or about a source."""
    what: str
    """`failed`, `recovered`, `gave-up`, `lag`, `lag-recovered`, `dead-letters` or `dead-letters-recovered`."""
    why: str
    time: str

    @property
    def sentence(self) -> str:
        """Return the alert in words."""
        return f"{self.pipeline}{f'/{self.query}' if self.query else ''}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits; None where there is none."""

    lag: Backlog | None = None
    dead: float | None = None
    """Dead letters a second, over the last minute."""


@dataclass
class _Crossing:
    """A figure and its limit: above it, or below it for long enough."""

    over: bool = False
    _below: float | None = None

    def look(self, above: bool | None, now: float) -> bool | None:
        """Return True when the limit is crossed, False when that has ended, None when there is no news."""
        if above is None or above == self.over:
            self._below = None
            return None
        if above:
            self.over = True
            return True
        self._below = now if self._below is None else self._below
        if now - self._below < _CALM_S:
            return None
        self.over, self._below = False, None
        return False


@dataclass
class AlertMonitor:
    """Looks at a run and raises alerts, each once."""

    pipeline: str
    run_status: RunStatus
    measurements: Measurements
    topology: Topology
    limits: Limits
    notify: Callable[[Alert], None]
    _restarts: dict[str, int] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    """Queries whose failure was reported, and not yet its end."""
    _dead: set[str] = field(default_factory=set)
    _lags: dict[str, _Crossing] = field(default_factory=dict)
    _letters: dict[str, _Crossing] = field(default_factory=dict)
    _totals: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """Raise what is new; `now` is of the monotonic clock."""
        for query in self.run_status.queries():
            if self.topology.query(query.query).writes:
                self._look_at(query)
                self._look_at_lag(query, now)
        for source, total in self.run_status.dead().items():
            self._look_at_letters(source, total, now)

    def ended(self, error: Exception) -> None:
        """Report that the run has failed, unless a query's failure was reported already."""
        if not self._dead:
            # The text of an error that is not ours may say little without its class.
            why = error.message if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
            self._notify(None, "gave-up", why)

    def _look_at(self, query: QueryStatus) -> None:
        if query.restarts > self._restarts.get(query.query, 0) and query.query not in self._open:
            self._open.add(query.query)
            why = query.restart.sentence(datetime.now(UTC)) if query.restart else "restarted"
            self._notify(query.query, "failed", why)
        self._restarts[query.query] = query.restarts
        if query.phase is Phase.FAILED and query.query not in self._dead:
            self._dead.add(query.query)
            self._open.discard(query.query)
            self._notify(query.query, "gave-up", query.failure)
        elif query.query in self._open and query.restart is None and not query.phase.ended:
            self._open.discard(query.query)
            why = f"it works again, after {format_count(query.restarts, 'restart')} in all"
            self._notify(query.query, "recovered", why)

    def _look_at_lag(self, query: QueryStatus, now: float) -> None:
        limit = self.limits.lag
        if limit is None:
            return
        lag = self.measurements.lag(query.query) or Lag(query.last.lag if query.last else None)
        value, most = (lag.seconds, limit.seconds) if limit.records is None else (lag.records, limit.records)
        above = None if value is None or most is None else value > most
        news = self._lags.setdefault(query.query, _Crossing()).look(above, now)
        if news is not None:
            records = "" if lag.records is None else format_count(lag.records, "record")
            seconds = "" if lag.seconds is None else f"{lag.seconds:.0f} s"
            behind = ", ".join(filter(None, (records, seconds)))
            self._notify(query.query, "lag" if news else "lag-recovered", f"{behind} behind; the limit is {limit}")

    def _look_at_letters(self, source: str, total: int, now: float) -> None:
        limit = self.limits.dead
        if limit is None:
            return
        seen = self._totals.setdefault(source, deque([(now, 0)]))
        seen.append((now, total))
        while len(seen) > 1 and now - seen[1][0] >= _DEAD_LETTER_WINDOW_S:
            seen.popleft()
        fresh = total - seen[0][1]
        news = self._letters.setdefault(source, _Crossing()).look(fresh > limit * _DEAD_LETTER_WINDOW_S, now)
        if news is not None:
            why = f"source {source}: {fresh:,} in the last minute; the limit is {limit * _DEAD_LETTER_WINDOW_S:,.0f}"
            self._notify(None, "dead-letters" if news else "dead-letters-recovered", why)

    def _notify(self, query: str | None, what: str, why: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.notify(Alert(self.pipeline, query, what, masked(why), moment))


SEND_TIMEOUT_S = 10.0
"""How long one alert may take, and how long the end of the run waits for those that are still to be sent."""
_MAX_WAITING_ALERTS = 100
_ATTEMPTS = 3
_RETRY_DELAY_S = 1.0

Send = Callable[[Alert], str | None]
"""Sends one alert; returns the reason when it could not."""


def alert_sender(target: str) -> Send:
    """Return a function that sends alerts to a URL (JSON by POST) or to a command (JSON on its standard input)."""
    if target.startswith(("http://", "https://")):
        if not urlsplit(target).hostname:
            raise InvalidOption("the alert's URL names no host", hint="write it as https://host/path")
        return lambda alert: _post(target, alert)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise InvalidOption(f"the alert's command cannot be read: {error}") from None
    if not words:
        raise InvalidOption("the alert is empty", hint="give a URL, or a command with its arguments")
    return lambda alert: _run_command(words, alert)


class AlertSender:
    """Sends alerts one after the other; that one cannot be sent is printed once."""

    def __init__(self, send: Send, print_line: Callable[[str], None], timeout: float = SEND_TIMEOUT_S) -> None:
        self._send = send
        self._print_line = print_line
        self.timeout = timeout
        self._waiting: queue.Queue[Alert | None] = queue.Queue(_MAX_WAITING_ALERTS)
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def send(self, alert: Alert) -> None:
        """Queue an alert; return at once."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            self._warn("too many wait to be sent")

    def close(self) -> None:
        """Send what is queued, within the timeout."""
        deadline = time.monotonic() + self.timeout
        with suppress(queue.Full):
            self._waiting.put(None, timeout=self.timeout)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._warn("it has not ended in time")

    def _run(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                problem = self._send(alert)
            except Exception as error:  # the run does not depend on alerts
                problem = type(error).__name__
            if problem:
                self._warn(problem)

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._print_line(f"an alert could not be sent: {why}; further ones are not reported")


def _post(url: str, alert: Alert) -> str | None:
    import httpx

    host, problem = urlsplit(url).hostname, ""  # the rest of the address may be a secret
    for attempt in range(_ATTEMPTS):
        time.sleep(_RETRY_DELAY_S * attempt)
        try:
            # The answer's body is not waited for.
            with httpx.stream("POST", url, json=_as_json(alert), timeout=SEND_TIMEOUT_S / _ATTEMPTS) as answer:
                if answer.is_success:
                    return None
                problem = f"{host} answers {answer.status_code}"
                if answer.is_client_error:
                    return problem
        except httpx.HTTPError as error:
            problem = f"{host} does not answer ({type(error).__name__})"
    return problem


def _run_command(words: list[str], alert: Alert) -> str | None:
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C does not reach it, and all of it can be ended
        )
    except OSError as error:
        return f"{words[0]} cannot be started: {error.strerror}"
    try:
        child.communicate(json.dumps(_as_json(alert)).encode(), timeout=SEND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"{words[0]} took longer than {SEND_TIMEOUT_S:.0f} s and was ended"
    return f"{words[0]} ended with exit code {child.returncode}" if child.returncode else None


def _as_json(alert: Alert) -> dict[str, str | None]:
    return {**asdict(alert), "text": alert.sentence}
