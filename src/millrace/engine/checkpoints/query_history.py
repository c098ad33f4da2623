"""How each query was started, recorded beside its checkpoint, and how far the checkpoint is.

A start counts only when a batch was finished after it: then it is what made the checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.connectors.base.query_checkpoint import batch_files, last_committed_batch, read_entry
from millrace.engine.checkpoints.checkpoint import CHECKPOINTS
from millrace.errors import StateMismatch
from millrace.pipeline.compatibility.query_snapshot import QuerySnapshot
from millrace.telemetry.progress import offsets_in

_FOLDER = "ran"
_VERSION = 1


@dataclass(frozen=True)
class RecordedStart:
    """A query as it was started."""

    after_batch: int
    """The last batch that was finished before the start."""
    snapshot: QuerySnapshot
    """The query as the pipeline file defined it."""
    state_schema: dict[str, Any] | None = None
    """Its fingerprint, from Spark's plan; None when the plan could not be read."""


@dataclass(frozen=True)
class CheckpointPosition:
    """The progress of a checkpoint."""

    batch: int
    """The last batch that is finished; -1 before the first."""
    settings: dict[str, str]
    """The Spark settings that it was created with and keeps."""
    offsets: tuple[Any, ...]
    """The offset of each source, in Spark's order."""


def checkpoint_of(state: Path, query: str) -> Path:
    """Return the checkpoint of a query that writes."""
    return state / CHECKPOINTS / query


def last_batch(state: Path, query: str) -> int:
    """Return the last finished batch of a query; -1 when there is none."""
    return last_committed_batch(checkpoint_of(state, query))


def recorded_start(state: Path, query: str) -> RecordedStart | None:
    """Return what made the checkpoint as it is: the newest start after which a batch was finished."""
    done = last_batch(state, query)
    return next((start for start in reversed(_read(state, query)) if start.after_batch < done), None)


def record_start(state: Path, query: str, snapshot: QuerySnapshot, state_schema: dict[str, Any] | None) -> None:
    """Record how a query is about to be started; before the start, so that each batch belongs to a recorded one."""
    before = recorded_start(state, query)
    starts = [*([before] if before else []), RecordedStart(last_batch(state, query), snapshot, state_schema)]
    rows = [{"after": start.after_batch, "said": start.snapshot, "found": start.state_schema} for start in starts]
    write_whole(_path(state, query), json.dumps({"version": _VERSION, "ran": rows}, indent=1))


def position(state: Path, query: str) -> CheckpointPosition | None:
    """Return the progress of a query; None when it has no checkpoint."""
    done = last_batch(state, query)
    planned = batch_files(checkpoint_of(state, query) / "offsets")
    newest = max((number for number in planned if number <= max(done, 0)), default=None)
    if newest is None:
        return None
    entry = read_entry(planned[newest])
    if entry is None:
        return CheckpointPosition(done, {}, ())
    return CheckpointPosition(done, entry.metadata.get("conf", {}), entry.sources if done >= 0 else ())


def read_offsets(state: Path, query: str) -> dict[tuple[str, int], int]:
    """Return the offsets up to which a query has read, by topic and partition."""
    checkpoint = position(state, query)
    sources = checkpoint.offsets if checkpoint else ()
    return {partition: offset for source in sources for partition, offset in offsets_in(source).items()}


def _read(state: Path, query: str) -> list[RecordedStart]:
    """Return the recorded starts; raise StateMismatch if they cannot be read, rather than ignore them."""
    path = _path(state, query)
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["version"] == _VERSION:
            return [RecordedStart(row["after"], row["said"], row["found"]) for row in content["ran"]]
        why = f"it has version {content['version']}, and this Millrace writes version {_VERSION}"
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    hint = "choose another folder with --state; or remove that file, which leaves only Spark's own checks"
    raise StateMismatch(f"{path} cannot be read", why=why, hint=hint)


def _path(state: Path, query: str) -> Path:
    return state / _FOLDER / f"{query}.json"
