"""The result of a redrive: how many letters were sent, marked, left, and which of them failed.

The fields are JSON keys of `millrace dead redrive --json` and of the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_REPORTED_FAILURES = 1000


@dataclass(frozen=True)
class RedriveFailure:
    """A letter that was not sent, and why."""

    place: str
    why: str


@dataclass
class RedriveResult:
    """Counts of letters."""

    sent: int = 0
    already: int = 0
    """Letters whose record had been sent again before: they are only marked."""
    left: int = 0
    """Letters that the fix does not want sent."""
    failed: int = 0
    failures: list[RedriveFailure] = field(default_factory=list)
    """The first of those that failed."""

    @property
    def letters(self) -> int:
        return self.sent + self.already + self.left + self.failed

    def fail(self, place: str, why: str) -> None:
        """Count a letter that is not sent, and keep the reason."""
        self.failed += 1
        if len(self.failures) < MAX_REPORTED_FAILURES:
            self.failures.append(RedriveFailure(place, why))

    def add(self, other: RedriveResult) -> None:
        """Count what became of others as well."""
        self.sent += other.sent
        self.already += other.already
        self.left += other.left
        self.failed += other.failed
        self.failures = [*self.failures, *other.failures][:MAX_REPORTED_FAILURES]


OnProgress = Callable[[RedriveResult], None]
"""Called now and then with the result so far."""
