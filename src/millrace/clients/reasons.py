"""Dead letters counted by what was wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from millrace.clients.dead import Found

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,:]\d+)*")


def kind(reason: str) -> str:
    """A reason without its numbers, so that a thousand places of one mistake are one kind."""
    return _NUMBER.sub("N", reason)


@dataclass
class Count:
    """How many letters there are, of which pipelines, how new, and why."""

    letters: int = 0
    """Open ones; the rest of what is told is of these."""
    redriven: int = 0
    newest: int | None = None
    """Milliseconds since 1970."""
    pipelines: set[str] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, one: Found) -> None:
        """Count a letter."""
        if one.redriven:
            self.redriven += 1
            return
        self.letters += 1
        self.newest = max(self.newest or 0, one.buried)
        self.pipelines.add(one.letter.pipeline)
        self.kinds[kind(one.letter.reason)] += 1
