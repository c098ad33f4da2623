"""The content of a `*.test.yaml` file as data.

- `SpecFile` has cases, a `SpecCase` has steps, a `SpecStep` has rows to give and `ExpectedRows`.
- `LocatedValue` is a row that knows the lines of its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.errors import SourceLocation


class LocatedValue(dict[str, Any]):
    """A row, or a part of one, with the location of each column."""

    def __init__(self, pairs: Iterable[tuple[str, Any, SourceLocation]]) -> None:
        listed = list(pairs)
        super().__init__((name, value) for name, value, _ in listed)
        self.places = {name: place for name, _, place in listed}

    def without(self, names: Collection[str]) -> LocatedValue:
        """Return the row without some of its columns."""
        return LocatedValue((name, value, self.places[name]) for name, value in self.items() if name not in names)


def place_of(row: Mapping[str, Any], name: str) -> SourceLocation | None:
    """Return the location of a column of a row; None if it is not known."""
    return row.places.get(name) if isinstance(row, LocatedValue) else None


@dataclass(frozen=True)
class ExpectedRows:
    """The expectation for one table or source, and its location."""

    value: Any
    place: SourceLocation
    path: tuple[str | int, ...]
    """The keys that lead to it in the file, for `--accept`."""


@dataclass(frozen=True)
class SpecStep:
    """The rows of one batch, or a watermark to move to; and the expectations after it."""

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
    """The expectations for all steps together."""
    key: Mapping[str, tuple[str, ...]]
    """The key columns of tables whose rows replace each other."""
    place: SourceLocation

    @property
    def moves_watermarks(self) -> bool:
        """Return whether a step moves the watermarks by itself."""
        return any(step.watermark is not None for step in self.steps)


@dataclass(frozen=True)
class SpecFile:
    """A file of tests, and the pipelines that it tests."""

    file: Path
    pipelines: tuple[str, ...]
    cases: tuple[SpecCase, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def test_name(self, case: SpecCase, pipeline: str) -> str:
        """Return the name of a test, with its pipeline if there are several."""
        return f"{case.name} ({Path(pipeline).name})" if len(self.pipelines) > 1 else case.name
