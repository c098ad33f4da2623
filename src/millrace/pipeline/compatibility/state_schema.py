"""What a query keeps in its checkpoint, as Spark's plan tells it, and what must not change about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millrace.pipeline.compatibility.changes import CHANGES_MEANING, COMPATIBLE, INCOMPATIBLE, Change

Part = tuple[str, str]
"""What something is, and its type."""

_NAMES = {"aggregate": "an aggregation", "deduplicate": "a deduplication", "join": "a join", "state": "Python's state"}


@dataclass(frozen=True)
class StateOperator:
    """One thing that keeps state: `aggregate`, `deduplicate`, `join`, `state` (by Python), or Spark's name for it."""

    kind: str
    keys: tuple[Part, ...] = ()
    values: tuple[Part, ...] = ()
    detail: str = ""
    """What else must stay as it is: a join's type, a timeout."""


@dataclass(frozen=True)
class StateSchema:
    """What must stay as it is for a checkpoint to be of use, and the columns, which may change."""

    sources: tuple[str, ...]
    """The names of the streams that are read, in the order in which Spark numbers them."""
    operators: tuple[StateOperator, ...]
    columns: tuple[Part, ...]
    whole: bool = False
    """Whether the state has all columns of the table, whoever reads them."""

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> StateSchema:
        """From JSON."""
        operators = [
            StateOperator(one["kind"], _parts(one["keys"]), _parts(one["values"]), one["detail"])
            for one in told["operators"]
        ]
        return cls(tuple(told["sources"]), tuple(operators), _parts(told["columns"]), told["whole"])


def state_differences(before: StateSchema, now: StateSchema) -> list[Change]:
    """Every difference, with its effect."""
    return [*_sources(before, now), *_operators(before, now), *_columns(before, now)]


def _sources(before: StateSchema, now: StateSchema) -> Iterator[Change]:
    if before.sources != now.sources:
        was, given = (", ".join(one.sources) for one in (before, now))
        why = "Spark tells sources apart by their order"
        yield Change(INCOMPATIBLE, "source", f"it read {was}; now {given}, and {why}")


def _operators(before: StateSchema, now: StateSchema) -> Iterator[Change]:
    old, new = before.operators, now.operators
    if [(one.kind, one.detail) for one in old] != [(one.kind, one.detail) for one in new]:
        yield Change(INCOMPATIBLE, "state", f"it kept {_all(old)}; now it keeps {_all(new)}")
        return
    for one, other in zip(old, new, strict=True):
        key, value = ("conditions", "columns") if one.kind == "join" else ("keys", "aggregates")
        yield from _compared(one.keys, other.keys, f"the {key} of {_named(one)}", fixed=one.kind != "join")
        yield from _compared(one.values, other.values, f"the {value} of {_named(one)}", fixed=True)


def _compared(old: tuple[Part, ...], new: tuple[Part, ...], what: str, *, fixed: bool) -> Iterator[Change]:
    """Types that differ cannot be read; a meaning that differs would be mixed with the new one."""
    if old == new:
        return
    types = [kind for _, kind in old] == [kind for _, kind in new]
    told = f"{what} were {_listed(old, types)}; now {_listed(new, types)}"
    yield Change(CHANGES_MEANING if types or not fixed else INCOMPATIBLE, "state", told)


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
    return ", ".join(one if same_types else f"{one} {kind}" for one, kind in parts) or "none"


def _parts(told: Any) -> tuple[Part, ...]:
    return tuple((one, kind) for one, kind in told)
