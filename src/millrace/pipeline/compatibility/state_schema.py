"""The schema of a query's state in its checkpoint, and the effect of its changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millrace.pipeline.compatibility.changes import CHANGES_MEANING, COMPATIBLE, INCOMPATIBLE, Change

Part = tuple[str, str]
"""An expression or a column, and its type."""

_NAMES = {"aggregate": "an aggregation", "deduplicate": "a deduplication", "join": "a join", "state": "Python's state"}


@dataclass(frozen=True)
class StateOperator:
    """A stateful operator: `aggregate`, `deduplicate`, `join`, `state` (by Python), or Spark's name for it."""

    kind: str
    keys: tuple[Part, ...] = ()
    values: tuple[Part, ...] = ()
    detail: str = ""
    """What else must not change: the type of a join, a timeout."""


@dataclass(frozen=True)
class StateSchema:
    """What must not change for a checkpoint to be usable, and the columns, which may."""

    sources: tuple[str, ...]
    """The names of the streams that are read, in the order in which Spark numbers them."""
    operators: tuple[StateOperator, ...]
    columns: tuple[Part, ...]
    whole: bool = False
    """Whether the state has all columns of the table, also those that no operator reads."""

    def to_json(self) -> dict[str, Any]:
        """Return the schema for JSON."""
        return asdict(self)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> StateSchema:
        """Return the schema from JSON."""
        operators = [
            StateOperator(operator["kind"], _parts(operator["keys"]), _parts(operator["values"]), operator["detail"])
            for operator in fields["operators"]
        ]
        return cls(tuple(fields["sources"]), tuple(operators), _parts(fields["columns"]), fields["whole"])


def state_differences(before: StateSchema, now: StateSchema) -> list[Change]:
    """Return every difference with its effect."""
    return [*_sources(before, now), *_operators(before, now), *_columns(before, now)]


def _sources(before: StateSchema, now: StateSchema) -> Iterator[Change]:
    if before.sources != now.sources:
        was, given = ", ".join(before.sources), ", ".join(now.sources)
        what = f"it read {was}; now {given}, and Spark tells sources apart by their order"
        yield Change(INCOMPATIBLE, "source", what)


def _operators(before: StateSchema, now: StateSchema) -> Iterator[Change]:
    old, new = before.operators, now.operators
    if [(operator.kind, operator.detail) for operator in old] != [(operator.kind, operator.detail) for operator in new]:
        yield Change(INCOMPATIBLE, "state", f"it kept {_all(old)}; now it keeps {_all(new)}")
        return
    for was, given in zip(old, new, strict=True):
        key, value = ("conditions", "columns") if was.kind == "join" else ("keys", "aggregates")
        yield from _compared(was.keys, given.keys, f"the {key} of {_named(was)}", fixed=was.kind != "join")
        yield from _compared(was.values, given.values, f"the {value} of {_named(was)}", fixed=True)


def _compared(old: tuple[Part, ...], new: tuple[Part, ...], what: str, *, fixed: bool) -> Iterator[Change]:
    """Different types cannot be read; different expressions would be mixed with the new ones."""
    if old == new:
        return
    types = [kind for _, kind in old] == [kind for _, kind in new]
    message = f"{what} were {_listed(old, types)}; now {_listed(new, types)}"
    yield Change(CHANGES_MEANING if types or not fixed else INCOMPATIBLE, "state", message)


def _columns(before: StateSchema, now: StateSchema) -> Iterator[Change]:
    old, new = dict(before.columns), dict(now.columns)
    for name, kind in new.items():
        if name not in old:
            yield Change(COMPATIBLE, "columns", f"column {name} {kind} is new")
        elif old[name] != kind:
            yield Change(COMPATIBLE, "columns", f"column {name} was {old[name]}; now {kind}")
    for name in old:
        if name not in new:
            yield Change(COMPATIBLE, "columns", f"column {name} is gone")


def _all(operators: tuple[StateOperator, ...]) -> str:
    return ", ".join(map(_named, operators)) or "no state"


def _named(operator: StateOperator) -> str:
    name = _NAMES.get(operator.kind, operator.kind)
    return f"{name} ({operator.detail})" if operator.detail else name


def _listed(parts: tuple[Part, ...], same_types: bool) -> str:
    return ", ".join(text if same_types else f"{text} {kind}" for text, kind in parts) or "none"


def _parts(pairs: Any) -> tuple[Part, ...]:
    return tuple((name, kind) for name, kind in pairs)
