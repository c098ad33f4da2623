"""What somebody must be told although nobody looks: failures, recoveries, lag and dead letters over a limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from millrace.errors import MillraceError
from millrace.masking import masked
from millrace.telemetry.board import Board, Phase, Standing
from millrace.telemetry.outline import Outline
from millrace.telemetry.samples import Lag, Samples
from millrace.units import Behind, so_many

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

    lag: Behind | None = None
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
class Alarm:
    """Looks at a run and tells what is worth an alert, each thing once."""

    pipeline: str
    board: Board
    samples: Samples
    outline: Outline
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
        for one in self.board.queries():
            if self.outline.query(one.query).writes:
                self._look_at(one)
                self._look_at_lag(one, now)
        for source, total in self.board.dead().items():
            self._look_at_letters(source, total, now)

    def ended(self, error: Exception) -> None:
        """The run has failed, whatever it was; if that was not told as a query's end, it is now."""
        if not self._dead:
            self._tell(None, "gave-up", _said(error))

    def _look_at(self, one: Standing) -> None:
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

    def _look_at_lag(self, one: Standing, now: float) -> None:
        limit = self.limits.lag
        if limit is None:
            return
        lag = self.samples.lag(one.query) or Lag(one.last.lag if one.last else None)
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
