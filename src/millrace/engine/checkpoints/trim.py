"""Checkpoints cut back to an end: what a query has read beyond it, and left out, is read again by the next run.

Spark's Kafka source has no end for streams: a query that shall end when it has caught up fixes one by itself, when it
starts. So a replay reads a little more, leaves those records out before anything sees them, and afterwards writes into
the log of offsets where its end was. State, sinks and offsets then agree: nothing after the end is in any of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from millrace.atomic_files import write_whole
from millrace.connectors.base.offset_range import Offsets
from millrace.engine.checkpoints.query_history import position
from millrace.errors import StateMismatch
from millrace.telemetry.progress import offsets_in

_FORM = "v1"


def reached(state: Path, query: str, begin: Offsets, end: Offsets) -> dict[tuple[str, str], int]:
    """How far a query has read in each partition that has something to read, at most to the end."""
    at = position(state, query)
    read: dict[tuple[str, str], int] = {}
    for source in at.offsets if at else ():
        for (topic, partition), offset in offsets_in(source):
            place = (topic, str(partition))
            read[place] = min(offset, read.get(place, offset))  # a topic may be read twice
    return {
        (topic, number): max(first, min(last, read.get((topic, number), first)))
        for topic, numbers in end.items()
        for number, last in numbers.items()
        if last > (first := begin[topic][number])
    }


def trim(checkpoint: Path, end: Offsets) -> None:
    """Write the end into every batch of a checkpoint that went beyond it; the same again changes nothing."""
    log = checkpoint / "offsets"
    for path in sorted(log.glob("*")) if log.is_dir() else ():
        if path.name.isdecimal():
            _trim(path, end)


def _trim(path: Path, end: Offsets) -> None:
    text = path.read_text("utf-8")
    form, metadata, *sources = text.split("\n")
    if form != _FORM:
        raise StateMismatch(f"{path} is of a form that Millrace does not know", why=form)
    trimmed = "\n".join([form, metadata, *(_trimmed(one, end) for one in sources)])
    if trimmed == text:
        return
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's, of what was there before
    write_whole(path, trimmed)


def _trimmed(text: str, end: Offsets) -> str:
    """The offsets of one source, none after the end; of a partition that came later, none at all."""
    try:
        told = json.loads(text)
    except ValueError:
        return text
    if not isinstance(told, dict) or not told or not all(isinstance(one, dict) for one in told.values()):
        return text
    cut = {
        topic: {number: min(offset, end.get(topic, {}).get(number, 0)) for number, offset in numbers.items()}
        for topic, numbers in told.items()
    }
    return text if cut == told else json.dumps(cut, separators=(",", ":"))
