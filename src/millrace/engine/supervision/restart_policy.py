"""Decides whether a query that has failed is restarted, and when. Pure: the clock is a parameter."""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace.engine.failures.classify import Classification, FailureKind

MAX_UNKNOWN_RESTARTS = 2
"""Restarts after failures of unknown kind, as long as no batch is committed in between."""


@dataclass(frozen=True)
class Policy:
    """How often, and how soon, a query is restarted."""

    restarts: int = 5
    """Restarts in a row: without a committed batch between them."""
    first_delay_s: float = 1.0
    """The delay before the first restart; it doubles with each further one."""
    max_delay_s: float = 60.0
    healthy_after_s: float = 120.0
    """Time without a failure after which a query counts as healthy, even if it has committed no batch."""

    def delay_s(self, number: int) -> float:
        """Return the seconds to wait before a restart (the first is 1)."""
        return float(min(self.max_delay_s, self.first_delay_s * 2 ** min(number - 1, 30)))


@dataclass(frozen=True, slots=True)
class Restart:
    """The decision to start the query again."""

    delay_s: float
    number: int
    max_number: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The decision not to start the query again."""

    restarts: int
    """Restarts in a row before."""
    same_batch_failures: int = 0
    """How often the same batch failed in the same way, if all failures were of that kind."""


@dataclass
class RestartState:
    """The failures and restarts of one query since it last made progress."""

    policy: Policy
    number: int = 0
    started_at: float = 0.0
    committed_batch: int = -1
    """The last committed batch at the time of the last failure."""
    _unknown_restarts: int = 0
    _failures: list[tuple[int | None, str]] = field(default_factory=list)
    """The unfinished batch and the reason of each failure."""

    def started(self, now: float) -> None:
        self.started_at = now

    def is_healthy(self, now: float) -> bool:
        """Return whether a restarted query has run long enough for its failures to be forgotten."""
        return bool(self.number) and now - self.started_at >= self.policy.healthy_after_s

    def failed(
        self, failure: Classification, *, committed_batch: int = -1, batch: int | None = None
    ) -> Restart | GiveUp:
        """Decide after a failure; `batch` is the unfinished batch, if there is one."""
        if committed_batch != self.committed_batch:
            self.reset()
        self.committed_batch = committed_batch
        self._failures.append((batch, failure.why))
        restarts_left = self._restarts_left(failure.kind)
        if restarts_left <= 0:
            same_batch = batch is not None and len(set(self._failures)) == 1
            return GiveUp(self.number, len(self._failures) if same_batch and self.number else 0)
        max_number = self.number + restarts_left
        self.number += 1
        self._unknown_restarts += failure.kind is FailureKind.UNKNOWN
        return Restart(self.policy.delay_s(self.number), self.number, max_number)

    def _restarts_left(self, kind: FailureKind) -> int:
        restarts_left = self.policy.restarts - self.number
        unknown_left = min(restarts_left, MAX_UNKNOWN_RESTARTS - self._unknown_restarts)
        return {FailureKind.TERMINAL: 0, FailureKind.TRANSIENT: restarts_left}.get(kind, unknown_left)

    def reset(self) -> None:
        """Forget the failures: the query has made progress since."""
        self.number = self._unknown_restarts = 0
        self._failures.clear()
