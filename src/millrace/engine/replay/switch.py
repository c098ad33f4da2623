"""Changes the current generation: the aliases that readers follow, and what `run` continues.

- `switch` makes a generation the current one, and `rollback` the previous one.
- `drop` deletes a generation that is not current.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.connectors.cassandra.table import publish_alias, quoted_table
from millrace.connectors.files import CURRENT
from millrace.connectors.kafka import generation_alias
from millrace.connectors.kafka.generation_alias import GenerationAlias
from millrace.dead_letters.letter import dead_topic
from millrace.engine.checkpoints.run_lease import run_group
from millrace.engine.replay import generations
from millrace.engine.replay.generations import FIRST, Generations, Output, mark_of, require_finished, state_of
from millrace.errors import FileUnusable, InvalidReplay, StateMismatch
from millrace.locks import in_use


@dataclass(frozen=True)
class SystemClients:
    """The clients of the systems that hold outputs; each is created only when it is needed."""

    cluster: Callable[[], Cluster]
    cassandra: Callable[[], Cassandra]


def switch(base: Path, pipeline: str, number: int, clients: SystemClients) -> Generations:
    """Make a generation the current one: for readers first, then for the next run.

    The change is atomic within a system, but the systems change one after the other. An interrupted switch is recorded,
    and the same command finishes it.
    """
    stored = generations.load(base)
    if generation := stored.require(number):
        require_finished(generation)
    if number == stored.current and stored.switching is None:
        raise InvalidReplay(f"generation {number} is the current one already")
    outputs = alias_targets(stored, number)
    links = [link for output in outputs if output.kind == "files" and (link := link_of(output.name))]
    if link := next((link for link in links if link.exists() and not link.is_symlink()), None):
        raise FileUnusable(f"{link} exists, and is no link to the current generation", hint="rename it, or remove it")

    def switching(now: Generations) -> Generations:
        now.require(number)  # it may be deleted since the first check
        return replace(now, switching=number)

    def switched(now: Generations) -> Generations:
        before = now.current if now.current != number else now.before
        return replace(now, current=number, before=before, switching=None)

    generations.change(base, switching)
    _publish(outputs, pipeline, number, clients)
    return generations.change(base, switched)


def rollback(base: Path, pipeline: str, clients: SystemClients) -> Generations:
    """Make the previous generation the current one."""
    stored = generations.load(base)
    number = stored.current if stored.switching is not None else stored.before
    if number is None:
        why = f"generation {stored.current} was always the current one"
        raise InvalidReplay("there is no generation to roll back to", why=why)
    return switch(base, pipeline, number, clients)


def alias_targets(stored: Generations, number: int) -> list[Output]:
    """Return every output that has an alias, with the target of the alias in a generation."""
    targets = {(output.kind, output.name): output.name for made in stored.made for output in made.outputs}
    if generation := stored.get(number):
        targets |= {(output.kind, output.name): output.own for output in generation.outputs}
    return [Output(kind, name, target) for (kind, name), target in sorted(targets.items())]


def drop(base: Path, pipeline: str, number: int, clients: SystemClients) -> None:
    """Delete a generation that is not current: its outputs, the dead letters of its replay, its state.

    That is recorded first: a generation that exists in part cannot be switched to, and the same command deletes the
    rest.
    """
    folder = state_of(base, number)
    if in_use(folder):
        raise StateMismatch(f"generation {number} is running, in {folder}", hint="stop it first")
    stored = generations.change(base, lambda now: _dropping(now, number))
    generation = stored.get(number)
    for output in outputs_to_drop(stored, number):
        _remove(output, clients)
    if generation is not None and generation.end:
        dead_topics = [dead_topic(f"{name}{mark_of(number)}") for name in generation.end]
        _remove_from_kafka(f"{pipeline}@{number}", dead_topics, clients.cluster())
    _delete(folder)
    generations.change(base, lambda now: now.without(number))


def outputs_to_drop(stored: Generations, number: int) -> list[Output]:
    """Return the outputs that are deleted with a generation."""
    return [output for output in alias_targets(stored, number) if number == FIRST or output.own != output.name]


def _dropping(now: Generations, number: int) -> Generations:
    now.require(number, whole=False)
    if number in (now.current, now.switching):
        raise InvalidReplay(f"generation {number} is the current one", hint="--rollback first, or switch to another")
    return replace(now, dropping=tuple(sorted({*now.dropping, number})))


def _publish(outputs: list[Output], pipeline: str, number: int, clients: SystemClients) -> None:
    by_kind: dict[str, dict[str, str]] = {}
    for output in outputs:
        by_kind.setdefault(output.kind, {})[output.name] = output.own
    if "kafka" in by_kind:
        generation_alias.publish(clients.cluster(), GenerationAlias(pipeline, number, time.time(), by_kind["kafka"]))
    if "cassandra" in by_kind:
        publish_alias(clients.cassandra(), pipeline, number, by_kind["cassandra"])
    for output in outputs:
        if output.kind == "files":
            _link(output)


def _link(output: Output) -> None:
    link = link_of(output.name)
    if link is None:
        return
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(Path(output.own.removeprefix("file://").rstrip("/")).name)
    draft.replace(link)


def link_of(folder: str) -> Path | None:
    """Return the link to the current generation of a folder; None for stores without links, such as S3."""
    path = folder.removeprefix("file://").rstrip("/")
    return None if "://" in path else Path(f"{path}{CURRENT}")


def _remove(output: Output, clients: SystemClients) -> None:
    if output.kind == "kafka" and output.own in clients.cluster().connect().topics:
        topics.delete(clients.cluster(), [output.own])
    if output.kind == "cassandra":
        clients.cassandra().execute(f"DROP TABLE IF EXISTS {quoted_table(output.own)}", doing=f"drop {output.own}")
    if output.kind == "files" and is_deletable(output):
        _delete(Path(output.own.removeprefix("file://")))


def is_deletable(output: Output) -> bool:
    """Return whether an output can be deleted from here: a folder in S3 or HDFS cannot."""
    return output.kind != "files" or "://" not in output.own.removeprefix("file://")


def _delete(folder: Path) -> None:
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        why, hint = error.strerror or str(error), "the same command deletes the rest"
        raise FileUnusable(f"{folder} cannot be deleted", why=why, hint=hint) from None


def _remove_from_kafka(name: str, dead_topics: list[str], cluster: Cluster) -> None:
    """Delete the topics of dead letters and the consumer groups of the pipeline that wrote a generation."""
    if existing := [topic for topic in dead_topics if topic in cluster.connect().topics]:
        topics.delete(cluster, existing)
    for group in consumer_groups.names(cluster):
        if is_group_of(name, group):
            consumer_groups.delete(cluster, group)


def is_group_of(pipeline: str, group: str) -> bool:
    """Return whether a consumer group belongs to a pipeline."""
    prefixes = (f"millrace.sink/{pipeline}/", f"millrace.{pipeline}.", f"millrace.dead.{pipeline}.")
    return group.startswith(prefixes) or group == run_group(pipeline)
