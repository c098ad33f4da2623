"""The folder of a pipeline's runs: whose it is, who uses it, and what each checkpoint was made for.

What a run with its state on a store must be like; what cannot be sound there is refused before Spark starts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from millrace.atomic_files import write_whole
from millrace.connectors.base.api import MessageSource
from millrace.connectors.base.registry import source_of, system_of
from millrace.dead_letters.writer import no_folder_on_object_store
from millrace.engine.checkpoints.checkpoint import CHECKPOINTS
from millrace.engine.checkpoints.object_store_lock import ObjectStoreLock
from millrace.errors import FileUnusable, InvalidDefinition, InvalidOption, StateMismatch
from millrace.locks import FolderLock
from millrace.object_stores import StorePath
from millrace.pipeline.model import PipelineDef, SourceDef
from millrace.pipeline.plan import Plan, Query
from millrace.settings import STATE

PATIENCE = 5.0
"""Seconds to wait for the folder: the JVM of a run that was killed takes a moment to notice, and may still write."""
_FILE = "pipeline.json"


class StateDir:
    """A run's hold on the folder; one run at a time."""

    def __init__(
        self,
        folder: Path,
        pipeline: PipelineDef,
        patience: float = PATIENCE,
        tell: Callable[[str], None] = lambda _: None,
        at_rest: Callable[[], bool] = lambda: True,
    ) -> None:
        """`at_rest` tells whether nothing of the run writes there any more when it ends."""
        self.folder = folder.absolute()
        self._store_lock = ObjectStoreLock(self.folder, tell) if isinstance(self.folder, StorePath) else None
        self._pipeline, self._patience, self._at_rest = pipeline, patience, at_rest
        self.id = ""
        """Tells this folder from any other that was or will be at its path."""
        self._lock: FolderLock | None = None

    def __enter__(self) -> StateDir:
        try:
            if self._store_lock:
                self._store_lock.acquire()
                return self
            lock = FolderLock(self.folder)
        except OSError as error:
            what, why = f"{self.folder} cannot be a state folder", error.strerror or str(error)
            raise FileUnusable(what, why=why, hint="choose another --state") from None
        if not lock.try_acquire(self._patience):
            lock.release()
            hint = "stop it first; to run beside it, a pipeline needs another name in its file"
            raise StateMismatch(f"another run uses the state folder {self.folder}", hint=hint)
        self._lock = lock
        return self

    @property
    def held(self) -> int:
        """The descriptor of the lock: a child that inherits it holds the folder for as long as it lives."""
        return self._lock.fd if self._lock else -1

    @property
    def identity(self) -> str:
        """Tells this folder from a copy of it as well, which has the same id and a lock of its own."""
        return f"{self.id}-{sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]}"

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._store_lock:
            self._store_lock.release(over=kind is None and self._at_rest())
        if self._lock:
            self._lock.release()

    def check(self) -> None:
        """Raise if another run may use the folder by now; the lock of a disk cannot be lost."""
        if self._store_lock:
            self._store_lock.check()

    def check_cached(self) -> None:
        """Raise if another run is known to use the folder; ask nobody."""
        if self._store_lock:
            self._store_lock.check_cached()

    def claim(self, plan: Plan, cluster_id: str | None = None) -> None:
        """Note what the checkpoints are for; raise when they are there already, and for something else."""
        known = known_of(self.folder, self._pipeline)
        queries = dict(known.get("queries", {}))
        for query in (query for query in plan.queries if query.lasts):
            now = origins(self._pipeline, query, cluster_id)
            before = queries.get(query.name, now)
            checkpoint = self.folder / CHECKPOINTS / query.name
            if before != now and checkpoint.exists():
                raise StateMismatch(
                    f"the checkpoint of query {query.name!r} was made for other sources",
                    place=query.place,
                    why=f"it read {origins_text(before)}; now it reads {origins_text(now)}",
                    hint=f"choose another folder with --state, or remove {checkpoint} to begin anew",
                )
            queries[query.name] = now
        self.id = str(known.get("id") or uuid.uuid4().hex)
        content = {"name": self._pipeline.name, "id": self.id, "queries": queries}
        write_whole(self.folder / _FILE, json.dumps(content, indent=1))


def nearby(folder: Path, pipeline: str) -> Path:
    """A folder on this machine's disk for what belongs to it alone: the state folder, unless that is on a store."""
    if not isinstance(folder, StorePath):
        return folder
    # Of several states of a pipeline each has its own: two runs may be at work here.
    return STATE.value() / "pipelines" / f"{pipeline}-{sha256(str(folder).encode()).hexdigest()[:8]}"


def location(folder: Path, *, local: bool) -> str:
    """A folder as Spark is told of it: on a cluster, a bare path may mean another file system."""
    return str(folder) if local or isinstance(folder, StorePath) else f"file://{folder}"


def known_of(folder: Path, pipeline: PipelineDef) -> dict[str, Any]:
    """What is noted in a state folder; raises when it belongs to another pipeline."""
    path = folder / _FILE
    try:
        known: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except ValueError:
        raise StateMismatch(f"{path} is damaged", hint="choose another folder with --state") from None
    if known and known.get("name") != pipeline.name:
        raise StateMismatch(
            f"the state folder {folder} belongs to another pipeline",
            place=pipeline.place,
            why=f"that is {known.get('name')!r}, and this is {pipeline.name!r}",
            hint="choose another folder with --state",
        )
    return known


def unused_checkpoints(folder: Path, plan: Plan) -> list[str]:
    """Queries that have a checkpoint in a state folder and are not in the plan, by name."""
    checkpoints = (folder / CHECKPOINTS).glob("*")
    return sorted({checkpoint.name for checkpoint in checkpoints} - {query.name for query in plan.queries})


def origins(pipeline: PipelineDef, query: Query, cluster_id: str | None) -> dict[str, list[str]]:
    """What each stream of a query reads, by its name: the system and the rest."""
    sources = pipeline.upstream_sources(query.table)
    return {source.name: [system_of(source), _what(source, cluster_id)] for source in sources if not source.static}


def _what(source: SourceDef, cluster_id: str | None) -> str:
    """What a source reads; offsets of one cluster mean nothing in another."""
    chosen = [(name, value) for name, value in source.connection.options if name in ("pattern", "partitions")]
    text = " ".join([repr(source.connection.argument), *(f"{name} {value!r}" for name, value in chosen)])
    return f"{text} of cluster {cluster_id}" if system_of(source) == "kafka" else text


def origins_text(sources: dict[str, list[str]]) -> str:
    """Return what is read, in words."""
    return ", ".join(f"{name} ({kind} {argument})" for name, (kind, argument) in sorted(sources.items())) or "nothing"


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
        reader = source_of(source)
        if isinstance(reader, MessageSource) and reader.keeps_dead_letters and reader.dead_letters_in_state_dir:
            raise no_folder_on_object_store(source.name, source.place)
