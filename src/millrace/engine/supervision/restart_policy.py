"""What becomes of a query that has failed: it is started again after a pause, or given up. Pure; the clock is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace.engine.failures.classify import Classification, FailureKind

FEW = 2
"""Restarts after a failure that nobody understands, as long as no batch is done."""


@dataclass(frozen=True)
class Policy:
    """How often, and how soon."""

    restarts: int = 5
    """In a row: without a batch between them."""
    first: float = 1.0
    """Seconds before the first restart; each one after it waits twice as long."""
    longest: float = 60.0
    healthy_after: float = 120.0
    """Seconds without a failure after which a query counts as well, where no batches tell."""

    def pause(self, number: int) -> float:
        """Seconds before a restart (the first is 1)."""
        return float(min(self.longest, self.first * 2 ** min(number - 1, 30)))


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again."""

    seconds: float
    number: int
    most: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not."""

    restarts: int
    """How many were tried in a row."""
    same: int = 0
    """How often the same batch has failed in the same way, if all of them were at one batch."""


@dataclass
class RestartState:
    """How it went with one query so far."""

    policy: Policy
    number: int = 0
    """Restarts since the query last worked."""
    since: float = 0.0
    """When it was last started."""
    done: int = -1
    """The newest batch that was done when it last failed."""
    _strange: int = 0
    """Restarts among them after a failure that nobody understood."""
    _failures: list[tuple[int | None, str]] = field(default_factory=list)
    """Since it last worked: the batch, and what was said."""

    def started(self, now: float) -> None:
        """It runs, as far as is known."""
        self.since = now

    def calm(self, now: float) -> bool:
        """Whether it has run for so long that the failures before may be over, although no batch tells so."""
        return bool(self.number) and now - self.since >= self.policy.healthy_after

    def failed(self, verdict: Classification, *, done: int = -1, batch: int | None = None) -> Restart | GiveUp:
        """What to do after a failure: `done` is the newest batch that is done, `batch` the one that was at work."""
        if done != self.done:
            self.forget()  # it has worked since
        self.done = done
        self._failures.append((batch, verdict.why))
        left = self._left(verdict.kind)
        if left <= 0:
            alike = batch is not None and len(set(self._failures)) == 1
            return GiveUp(self.number, len(self._failures) if alike and self.number else 0)
        most = self.number + left
        self.number += 1
        self._strange += verdict.kind is FailureKind.UNKNOWN
        return Restart(self.policy.pause(self.number), self.number, most)

    def _left(self, kind: FailureKind) -> int:
        """Restarts that a failure is still worth."""
        if kind is FailureKind.TERMINAL:
            return 0
        left = self.policy.restarts - self.number
        return left if kind is FailureKind.TRANSIENT else min(left, FEW - self._strange)

    def forget(self) -> None:
        """The failures before are over."""
        self.number = self._strange = 0
        self._failures.clear()
