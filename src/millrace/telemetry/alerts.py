"""What somebody must be told although nobody looks: failures, recoveries, lag and dead letters over a limit.

Alerts on their way to a URL or a command: in a thread of their own, so that none can hold up or harm the run.
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
from millrace.units import Backlog, so_many

EVERY = 0.5
WINDOW = 60.0
"""Seconds over which dead letters are counted."""
CALM = 30.0
"""Seconds that something must be below its limit before that is told: a figure around the limit is one alert."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing to be told."""

    pipeline: str
    query: str | None
    """None when it is about the whole run, or about a source."""
    what: str
    """`failed`, `recovered`, `gave-up`, `lag`, `lag-recovered`, `dead-letters` or `dead-letters-recovered`."""
    why: str
    time: str

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        return f"{self.pipeline}{f'/{self.query}' if self.query else ''}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is too much; None where nothing is."""

    lag: Backlog | None = None
    dead: float | None = None
    """Dead letters a second, over the last minute."""


@dataclass
class _Crossing:
    """A figure and its limit: above it, or below it for long enough."""

    over: bool = False
    _below: float | None = None

    def look(self, above: bool | None, now: float) -> bool | None:
        """True when it has just gone over, False when that has just ended, None when there is no news."""
        if above is None or above == self.over:
            self._below = None
            return None
        if above:
            self.over = True
            return True
        self._below = now if self._below is None else self._below
        if now - self._below < CALM:
            return None
        self.over, self._below = False, None
        return False


@dataclass
class AlertMonitor:
    """Looks at a run and tells what is worth an alert, each thing once."""

    pipeline: str
    run_status: RunStatus
    measurements: Measurements
    topology: Topology
    limits: Limits
    tell: Callable[[Alert], None]
    _restarts: dict[str, int] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    """Queries whose failure was told, and not how it ended."""
    _dead: set[str] = field(default_factory=set)
    _lags: dict[str, _Crossing] = field(default_factory=dict)
    _letters: dict[str, _Crossing] = field(default_factory=dict)
    _totals: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """Tell what is new; the time is that of a clock which only goes forward."""
        for one in self.run_status.queries():
            if self.topology.query(one.query).writes:
                self._look_at(one)
                self._look_at_lag(one, now)
        for source, total in self.run_status.dead().items():
            self._look_at_letters(source, total, now)

    def ended(self, error: Exception) -> None:
        """The run has failed, whatever it was; if that was not told as a query's end, it is now."""
        if not self._dead:
            self._tell(None, "gave-up", _said(error))

    def _look_at(self, one: QueryStatus) -> None:
        if one.restarts > self._restarts.get(one.query, 0) and one.query not in self._open:
            self._open.add(one.query)
            self._tell(one.query, "failed", one.restart.sentence(datetime.now(UTC)) if one.restart else "restarted")
        self._restarts[one.query] = one.restarts
        if one.phase is Phase.FAILED and one.query not in self._dead:
            self._dead.add(one.query)
            self._open.discard(one.query)
            self._tell(one.query, "gave-up", one.error.message if one.error else "nobody knows why")
        elif one.query in self._open and one.restart is None and not one.phase.ended:
            self._open.discard(one.query)
            self._tell(one.query, "recovered", f"it works again, after {so_many(one.restarts, 'restart')} in all")

    def _look_at_lag(self, one: QueryStatus, now: float) -> None:
        limit = self.limits.lag
        if limit is None:
            return
        lag = self.measurements.lag(one.query) or Lag(one.last.lag if one.last else None)
        value = lag.records if limit.records is not None else lag.seconds
        most = limit.records if limit.records is not None else limit.seconds
        above = None if value is None or most is None else value > most
        news = self._lags.setdefault(one.query, _Crossing()).look(above, now)
        if news is not None:
            records = "" if lag.records is None else so_many(lag.records, "record")
            seconds = "" if lag.seconds is None else f"{lag.seconds:.0f} s"
            behind = ", ".join(filter(None, (records, seconds)))
            self._tell(one.query, "lag" if news else "lag-recovered", f"{behind} behind; the limit is {limit}")

    def _look_at_letters(self, source: str, total: int, now: float) -> None:
        limit = self.limits.dead
        if limit is None:
            return
        seen = self._totals.setdefault(source, deque([(now, 0)]))
        seen.append((now, total))
        while len(seen) > 1 and now - seen[1][0] >= WINDOW:
            seen.popleft()
        fresh = total - seen[0][1]
        news = self._letters.setdefault(source, _Crossing()).look(fresh > limit * WINDOW, now)
        if news is not None:
            why = f"source {source}: {fresh:,} in the last minute; the limit is {limit * WINDOW:,.0f}"
            self._tell(None, "dead-letters" if news else "dead-letters-recovered", why)

    def _tell(self, query: str | None, what: str, why: str) -> None:
        moment = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.tell(Alert(self.pipeline, query, what, masked(why), moment))


def _said(error: Exception) -> str:
    """In one sentence; of what is not ours the kind as well, since its words may say little."""
    return error.message if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"


SEND_PATIENCE = 10.0
"""Seconds that one alert may take, and that the end of the run waits for those that are still to be sent."""
_MOST = 100
"""Alerts that wait; more are not kept."""
_ATTEMPTS = 3
_PAUSE = 1.0

Send = Callable[[Alert], str | None]
"""Sends one alert; gives the reason when it could not."""


def alert_sender(target: str) -> Send:
    """How alerts get to a URL (as JSON by POST) or to a command (as JSON on its standard input)."""
    if target.startswith(("http://", "https://")):
        if not urlsplit(target).hostname:
            raise InvalidOption("the alert's URL names no host", hint="write it as https://host/path")
        return lambda alert: _posted(target, alert)
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise InvalidOption(f"the alert's command cannot be read: {error}") from None
    if not words:
        raise InvalidOption("the alert is empty", hint="give a URL, or a command with its arguments")
    return lambda alert: _ran(words, alert)


class AlertSender:
    """Sends alerts one after the other; what goes wrong with them is said once."""

    def __init__(self, send: Send, say: Callable[[str], None], patience: float = SEND_PATIENCE) -> None:
        self._send = send
        self._say = say
        self.patience = patience
        self._waiting: queue.Queue[Alert | None] = queue.Queue(_MOST)
        self._complained = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def tell(self, alert: Alert) -> None:
        """Send it soon; returns at once."""
        try:
            self._waiting.put_nowait(alert)
        except queue.Full:
            self._complain("too many wait to be sent")

    def close(self) -> None:
        """Wait for those that are on their way, but not long."""
        deadline = time.monotonic() + self.patience
        with suppress(queue.Full):
            self._waiting.put(None, timeout=self.patience)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._complain("it has not ended in time")

    def _run(self) -> None:
        while (alert := self._waiting.get()) is not None:
            try:
                trouble = self._send(alert)
            except Exception as error:  # whatever it is, the run does not depend on it
                trouble = f"{type(error).__name__}"
            if trouble:
                self._complain(trouble)

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            self._say(f"an alert could not be sent: {why}; this is said once")


def _posted(url: str, alert: Alert) -> str | None:
    import httpx

    host, trouble = urlsplit(url).hostname, ""  # the rest of the address may be a secret
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE * attempt)
        try:
            # The answer's body is not waited for.
            with httpx.stream("POST", url, json=_told(alert), timeout=SEND_PATIENCE / _ATTEMPTS) as answer:
                if answer.is_success:
                    return None
                trouble = f"{host} answers {answer.status_code}"
                if answer.is_client_error:
                    return trouble
        except httpx.HTTPError as error:
            trouble = f"{host} does not answer ({type(error).__name__})"
    return trouble


def _ran(words: list[str], alert: Alert) -> str | None:
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
        child.communicate(json.dumps(_told(alert)).encode(), timeout=SEND_PATIENCE)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"{words[0]} took longer than {SEND_PATIENCE:.0f} s and was ended"
    return f"{words[0]} ended with exit code {child.returncode}" if child.returncode else None


def _told(alert: Alert) -> dict[str, str | None]:
    return {**asdict(alert), "text": alert.sentence}
