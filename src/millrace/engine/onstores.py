"""What a run with its state on a store must be like; what cannot be sound there is refused before Spark starts."""

from __future__ import annotations

from pathlib import Path

from millrace.connectors.burying import on_a_store
from millrace.connectors.stream import Messages
from millrace.engine.structured import reader_of
from millrace.errors import InvalidDefinition, InvalidOption
from millrace.pipeline.plan import Plan
from millrace.stores import StorePath

KINDS = ("s3a", "hdfs")
"""Stores of which it is known that a file is made only if it is not there, and is seen whole."""


def require_fit(plan: Plan, state: Path) -> None:
    """Raise when a plan cannot have its state there; a folder of a disk takes any."""
    if not isinstance(state, StorePath):
        return
    kind = str(state).partition("://")[0]
    if kind not in KINDS:
        raise InvalidOption(
            f"a state cannot be on {kind}://",
            why="two runs at once must be told from each other there, and of this kind of store nobody has seen that",
            hint="use s3a://BUCKET/FOLDER, hdfs://HOST:PORT/FOLDER or a folder that all machines see",
        )
    for query in plan.queries:
        if not query.batches:
            raise InvalidDefinition(
                f"query {query.name!r} has no batches, and its state would be on a store",
                place=query.place,
                why="a run asks before each batch whether the state is still its own; without batches it never would",
                hint="use another trigger, or a folder that all machines see as --state",
            )
    for source in plan.pipeline.sources:
        reader = reader_of(source)
        if isinstance(reader, Messages) and reader.keeps_letters and reader.letters_beside:
            raise on_a_store(source.name, source.place)
