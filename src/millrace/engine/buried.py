"""How many bad records a source had; those of a batch that comes again count once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Buried:
    """A count; that of the newest batch is kept by where its records come from, since a repeated one replaces it."""

    before: int = 0
    batch: int = -1
    newest: Mapping[str, int] = field(default_factory=dict)

    def __int__(self) -> int:
        return self.before + sum(self.newest.values())

    def plus(self, more: Buried) -> Buried:
        """Together with what another task has found."""
        if more.batch > self.batch:
            return replace(more, before=int(self) + more.before)
        if more.batch < self.batch:
            return replace(self, before=self.before + int(more))
        return Buried(self.before + more.before, self.batch, {**self.newest, **more.newest})


class Adding:
    """How Spark's accumulator adds them up."""

    def zero(self, value: Buried) -> Buried:
        """Nothing yet, in a task."""
        del value
        return Buried()

    def addInPlace(self, value: Buried, more: Buried) -> Buried:  # noqa: N802 - Spark's name
        """Both."""
        return value.plus(more)
