"""Whether Kafka answers: whoever asks it notes so, and everybody else sees for how long nothing came back."""

from __future__ import annotations

import time
from dataclasses import dataclass

DEAF = 10.0
"""Seconds without an answer after which it is told."""


@dataclass(frozen=True, slots=True)
class Missing:
    """An answer that has not come."""

    address: str
    seconds: float

    def __str__(self) -> str:
        return f"Kafka at {self.address} has not answered for {self.seconds:.0f} s"


class Answers:
    """One asks, many look; thread-safe, since what is known is replaced as a whole."""

    def __init__(self) -> None:
        self._asked: tuple[str, float] | None = None

    def asked(self, address: str, now: float | None = None) -> None:
        """A question is on its way; while one before it has no answer, it is that one that counts."""
        self._asked = self._asked or (address, time.monotonic() if now is None else now)

    def came(self) -> None:
        """Kafka has answered, whatever it said."""
        self._asked = None

    def missing(self, now: float | None = None) -> Missing | None:
        """What has been waited for too long."""
        asked = self._asked
        if asked is None:
            return None
        address, since = asked
        waited = (time.monotonic() if now is None else now) - since
        return Missing(address, waited) if waited > DEAF else None


def change(before: Missing | None, now: Missing | None) -> str | None:
    """What people are told when answers stop or come again; once for each."""
    if now and not before:
        return f"Kafka at {now.address} does not answer; the run waits for it"
    return f"Kafka at {before.address} answers again" if before and not now else None
