"""What is measured beside Spark's own words: how far queries are behind, how topics grow, what the process uses.

Whether Kafka answers: whoever asks it notes so, and everybody else sees for how long nothing came back.

A thread that does something every so often, until it is told to end.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lag:
    """How far one query is behind what it reads; None where that cannot be known, with the reason."""

    records: int | None = None
    seconds: float | None = None
    partitions: Mapping[str, int | None] | None = None
    """Records by `topic/partition`."""
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What this process and Spark's JVM use."""

    cpu: float | None = None
    """Cores that are busy for both of them together."""
    memory: int | None = None
    jvm_memory: int | None = None
    threads: int | None = None


class Measurements:
    """The newest of each; thread-safe, since each is replaced as a whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lags: dict[str, Lag] = {}
        self._rates: dict[str, float] = {}
        self.usage = Usage()
        self.doing = ""
        """What a run does before it has queries, in words."""
        self.failure: str | None = None
        """Why the run has failed, when it is not a query that did."""
        self.over = False

    def put_lag(self, query: str, lag: Lag) -> None:
        """How far a query is behind now."""
        with self._lock:
            self._lags[query] = lag

    def put_rates(self, rates: Mapping[str, float]) -> None:
        """Records a second that come into each topic now."""
        with self._lock:
            self._rates = dict(rates)

    def lag(self, query: str) -> Lag | None:
        """How far a query is behind, if that was measured."""
        with self._lock:
            return self._lags.get(query)

    def rate(self, topic: str) -> float | None:
        """Records a second that come into a topic, if that was measured."""
        with self._lock:
            return self._rates.get(topic)


ANSWER_TIMEOUT = 10.0
"""Seconds without an answer after which it is told."""


@dataclass(frozen=True, slots=True)
class OverdueAnswer:
    """An answer that has not come."""

    address: str
    seconds: float

    def __str__(self) -> str:
        return f"Kafka at {self.address} has not answered for {self.seconds:.0f} s"


class OutstandingAnswers:
    """One asks, many look; thread-safe, since what is known is replaced as a whole."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] | None = None

    def asked(self, address: str, now: float | None = None) -> None:
        """A question is on its way; while one before it has no answer, it is that one that counts."""
        self._asked = self._asked or (address, time.monotonic() if now is None else now)

    def came(self) -> None:
        """Kafka has answered, whatever it said."""
        self._asked = None

    def missing(self, now: float | None = None) -> OverdueAnswer | None:
        """What has been waited for too long."""
        asked = self._asked
        if asked is None:
            return None
        address, since = asked
        waited = (time.monotonic() if now is None else now) - since
        return OverdueAnswer(address, waited) if waited > ANSWER_TIMEOUT else None


def answer_change(before: OverdueAnswer | None, now: OverdueAnswer | None) -> str | None:
    """What people are told when answers stop or come again; once for each."""
    if now and not before:
        return f"Kafka at {now.address} does not answer; the run waits for it"
    return f"Kafka at {before.address} answers again" if before and not now else None


_PATIENCE = 2.0
_log = logging.getLogger(__name__)


class Sampler:
    """Calls `look` at once and then every so many seconds; what one look could not do is tried at the next."""

    def __init__(self, name: str, look: Callable[[], None], every: float, *, last: bool = True) -> None:
        """`last`: look once more at the end."""
        self._name = name
        self._look = look
        self._every = every
        self._last = last
        self._told = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler-{name}", daemon=True)

    def start(self) -> Sampler:
        """Begin."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop; a look that takes long is not waited for."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        self._try()
        while not self._stop.wait(self._every):
            self._try()
        if self._last:
            self._try()

    def _try(self) -> None:
        # A picture of the run must never end because one look at it failed; the run itself does not depend on it.
        try:
            self._look()
        except Exception as error:
            level = logging.DEBUG if self._told else logging.WARNING
            _log.log(level, "the page's %s cannot be renewed: %r", self._name, error)
            self._told = True
