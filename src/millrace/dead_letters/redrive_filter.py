"""Select and count dead letters.

- `RedriveFilter`: by pipeline, source, reason, time, position.
- `DeadLetterSummary`: counts by kind of reason.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from millrace.dead_letters.store import StoredDeadLetter

_NUMBER = re.compile(r"\b(?:0x[0-9a-fA-F]+|(?<![A-Za-z]-)\d+(?:[.,:]\d+)*)")
"""Not those of names, as UTF-8 and base64."""


def reason_kind(reason: str) -> str:
    """A reason without its numbers, so that a thousand places of one mistake are one kind."""
    return _NUMBER.sub("N", reason)


@dataclass
class DeadLetterSummary:
    """How many letters there are, of which pipelines, how new, and why."""

    letters: int = 0
    """Letters that were not sent again; the other fields describe these."""
    redriven: int = 0
    newest: int | None = None
    """Milliseconds since 1970."""
    pipelines: set[str] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, stored: StoredDeadLetter) -> None:
        if stored.redriven:
            self.redriven += 1
            return
        self.letters += 1
        self.newest = max(self.newest or 0, stored.stored_at)
        self.pipelines.add(stored.letter.pipeline)
        self.kinds[reason_kind(stored.letter.reason)] += 1


MAX_KIND_CHARS = 500
"""Characters of a kind of reason that are compared: the dashboard shows no more."""


@dataclass(frozen=True)
class RedriveFilter:
    """What a letter must match; None matches everything."""

    pipeline: str | None = None
    source: str | None = None
    location: str | None = None
    """The dead topic."""
    reason: str | None = None
    """The whole reason, or its kind (without the numbers)."""
    containing: str | None = None
    """A part of the reason, in small or large letters."""
    since: int | None = None
    until: int | None = None
    """When it was stored, in milliseconds since 1970; `until` is excluded."""
    partition: int | None = None
    offset: int | None = None
    """Of the record in the source."""
    letter: str | None = None
    """One letter, by its own position or by the origin of its record."""
    include_replays: bool = True
    """Whether letters of replays are selected: their records were bad before, and may have been fixed."""

    def matches(self, stored: StoredDeadLetter) -> bool:
        letter = stored.letter
        return (
            self.pipeline in (None, letter.pipeline)
            and self.source in (None, letter.source)
            and self.location in (None, stored.location)
            and self.partition in (None, letter.partition)
            and self.offset in (None, letter.offset)
            and self.letter in (None, stored.position, letter.origin)
            and (self.include_replays or not stored.from_replay)
            and (self.since is None or stored.stored_at >= self.since)
            and (self.until is None or stored.stored_at < self.until)
            and (self.containing is None or self.containing.casefold() in letter.reason.casefold())
            and self.reason in (None, letter.reason, reason_kind(letter.reason)[:MAX_KIND_CHARS])
        )
