"""What ran last, kept beside the checkpoints: for each query what the file said and what Spark made of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.connectors.base.query_checkpoint import batch_files, last_committed_batch, read_entry
from millrace.engine.checkpoints.checkpoint import CHECKPOINTS
from millrace.errors import StateMismatch
from millrace.pipeline.compatibility.query_snapshot import QuerySnapshot

_FOLDER = "ran"
_VERSION = 1


@dataclass(frozen=True)
class RecordedStart:
    """A query as it was started."""

    after: int
    """The last batch that had been done before; it counts only when a later one is done, by this query that is."""
    said: QuerySnapshot
    """What the file said."""
    found: dict[str, Any] | None = None
    """What Spark's plan said: a fingerprint; None when it could not be read."""


@dataclass(frozen=True)
class CheckpointPosition:
    """How far a checkpoint is."""

    batch: int
    """The last batch that is done; -1 before the first."""
    settings: dict[str, str]
    """Spark's settings that it began with and keeps."""
    offsets: tuple[Any, ...]
    """Where each source is, in Spark's order."""


def checkpoint_of(state: Path, query: str) -> Path:
    """The checkpoint of a query that writes."""
    return state / CHECKPOINTS / query


def last_batch(state: Path, query: str) -> int:
    """The last batch of a query that is done; -1 when none is."""
    return last_committed_batch(checkpoint_of(state, query))


def recorded_start(state: Path, query: str) -> RecordedStart | None:
    """What made the checkpoint as it is: the newest start that has done a batch since."""
    done = last_batch(state, query)
    return next((one for one in reversed(_read(state, query)) if one.after < done), None)


def record_start(state: Path, query: str, said: QuerySnapshot, found: dict[str, Any] | None) -> None:
    """Note how a query is about to be started; before it is, so that no batch is done by one that is not noted."""
    before = recorded_start(state, query)
    kept = [] if before is None else [before]
    kept.append(RecordedStart(last_batch(state, query), said, found))
    told = {"version": _VERSION, "ran": [asdict(one) for one in kept]}
    write_whole(_path(state, query), json.dumps(told, indent=1))


def position(state: Path, query: str) -> CheckpointPosition | None:
    """How far a query is; None when it has no checkpoint that could be read."""
    done = last_batch(state, query)
    planned = batch_files(checkpoint_of(state, query) / "offsets")
    newest = max((number for number in planned if number <= max(done, 0)), default=None)
    if newest is None:
        return None
    entry = read_entry(planned[newest])
    if entry is None:
        return CheckpointPosition(done, {}, ())
    return CheckpointPosition(done, entry.metadata.get("conf", {}), entry.sources if done >= 0 else ())


def _read(state: Path, query: str) -> list[RecordedStart]:
    """Every start that is noted. What cannot be read is no reason to go on as if nothing had been noted."""
    path = _path(state, query)
    try:
        told = json.loads(path.read_text("utf-8"))
        if told["version"] == _VERSION:
            return [RecordedStart(one["after"], one["said"], one["found"]) for one in told["ran"]]
        why = f"it has version {told['version']}, and this Millrace writes version {_VERSION}"
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
    raise StateMismatch(
        f"{path} cannot be read",
        why=why,
        hint="choose another folder with --state; or remove that file, and only Spark's own checks are left",
    )


def _path(state: Path, query: str) -> Path:
    return state / _FOLDER / f"{query}.json"
