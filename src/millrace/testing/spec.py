"""Tests as data: what a `*.test.yaml` file says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.errors import SourceLocation


class LocatedValue(dict[str, Any]):
    """A row, or a part of one, that knows in which lines its columns stand."""

    def __init__(self, pairs: Iterable[tuple[str, Any, SourceLocation]]) -> None:
        listed = list(pairs)
        super().__init__((name, value) for name, value, _ in listed)
        self.places = {name: place for name, _, place in listed}

    def without(self, names: Collection[str]) -> LocatedValue:
        """The row without some of its columns."""
        return LocatedValue((name, value, self.places[name]) for name, value in self.items() if name not in names)


def place_of(row: Mapping[str, Any], name: str) -> SourceLocation | None:
    """Where a column of a row stands, if that is known."""
    return row.places.get(name) if isinstance(row, LocatedValue) else None


@dataclass(frozen=True)
class ExpectedRows:
    """What is expected of one table or source, and where it stands."""

    value: Any
    place: SourceLocation
    path: tuple[str | int, ...]
    """The keys that lead to it in the file, for those who write it anew."""


@dataclass(frozen=True)
class SpecStep:
    """Rows of one batch, or a watermark that moves; and what is expected after it."""

    given: Mapping[str, Any] = field(default_factory=dict)
    watermark: Any = None
    rows: Mapping[str, ExpectedRows] = field(default_factory=dict)
    late: Mapping[str, ExpectedRows] = field(default_factory=dict)
    dead: Mapping[str, ExpectedRows] = field(default_factory=dict)
    place: SourceLocation | None = None


@dataclass(frozen=True)
class SpecCase:
    """One test."""

    name: str
    steps: tuple[SpecStep, ...]
    whole: SpecStep
    """What is expected of all steps together."""
    key: Mapping[str, tuple[str, ...]]
    """Of tables whose rows replace each other: by which columns."""
    place: SourceLocation

    @property
    def moves_watermarks(self) -> bool:
        """Whether a step moves the watermarks by itself."""
        return any(step.watermark is not None for step in self.steps)


@dataclass(frozen=True)
class SpecFile:
    """A file of tests, and the pipelines that it is about."""

    file: Path
    pipelines: tuple[str, ...]
    cases: tuple[SpecCase, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
