"""Which of Spark's stores keeps what the queries of a plan remember, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType, MappingProxyType

from millrace.engine.tuning import IN_ROCKSDB, ROCKSDB, Choice, kept
from millrace.pipeline.plan import Plan
from millrace.pipeline.shapes.shape import UNKNOWN
from millrace.pipeline.shapes.whole import shapes
from millrace.settings import STATE_KEYS

STATEFUL = ("aggregate", "deduplicate", "within", "join", "state")
"""Operations that remember something from batch to batch."""


def state_store(
    plan: Plan, master: str | None = None, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[Choice, ...]:
    """The store for queries that begin: a checkpoint keeps its own for ever. How RocksDB works is no part of that.

    So Spark is always told, for checkpoints that were begun in RocksDB; the store in memory does not look at it.
    Real-time mode chooses RocksDB by itself, and takes no other.
    """
    if arbitrary(plan):
        return ROCKSDB, *IN_ROCKSDB
    if any(not query.batches for query in plan.queries):
        return ()
    return (kept(STATE_KEYS.value(), master, given), *IN_ROCKSDB) if _remembers(plan) else ()


def arbitrary(plan: Plan) -> bool:
    """Whether a table keeps arbitrary state, which Spark keeps in RocksDB only."""
    used = {name for table in plan.pipeline.tables if table.function for name in _names_in(table.function.__code__)}
    return any(name.startswith("transformWithState") for name in used)


def _remembers(plan: Plan) -> bool:
    """Whether a query keeps state, or may."""
    found = shapes(plan.pipeline)
    made = [found.get(query.table.lower(), UNKNOWN) for query in plan.queries]
    return any(shape.opaque or any(step.kind in STATEFUL for step in shape.steps) for shape in made)


def _names_in(code: CodeType) -> Iterator[str]:
    """Every name that a function's code uses, and those of functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
