"""Which generation counts: the aliases that readers follow, and what `run` goes on with."""

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
from millrace.engine.replay.generations import FIRST, Generations, Output, mark_of, state_of
from millrace.errors import FileUnusable, InvalidReplay, StateMismatch
from millrace.locks import in_use


@dataclass(frozen=True)
class SystemClients:
    """How the systems are reached; each is asked only when it is needed."""

    cluster: Callable[[], Cluster]
    cassandra: Callable[[], Cassandra]


def switch(base: Path, pipeline: str, number: int, doors: SystemClients) -> Generations:
    """Let a generation count from now on: for readers first, then for the next run.

    Each system changes at once; one after the other, if there are several. A switch that was cut off is noted, and
    done again it comes to its end.
    """
    known = generations.load(base)
    found = known.require(number)
    if found is not None and found.done is None:
        raise InvalidReplay(
            f"generation {number} is not finished", hint="millrace replay FILE --resume goes on with it"
        )
    if number == known.current and known.switching is None:
        raise InvalidReplay(f"generation {number} is the current one already")
    outputs = leading(known, number)
    for output in outputs:
        if output.kind == "files":
            _require_link(output)
    generations.change(base, lambda now: _begun(now, number))
    _publish(outputs, pipeline, number, doors)
    return generations.change(base, lambda now: _switched(now, number))


def rollback(base: Path, pipeline: str, doors: SystemClients) -> Generations:
    """Let the generation count that did before."""
    known = generations.load(base)
    to = known.current if known.switching is not None else known.before
    if to is None:
        raise InvalidReplay(
            "there is nothing to go back to", why=f"generation {known.current} was always the current one"
        )
    return switch(base, pipeline, to, doors)


def leading(known: Generations, number: int) -> list[Output]:
    """Every output that has an alias, with what it leads to in a generation."""
    own = known.get(number)
    every = {(one.kind, one.name): one.name for made in known.made for one in made.outputs}
    if own is not None:
        every |= {(one.kind, one.name): one.own for one in own.outputs}
    return [Output(kind, name, to) for (kind, name), to in sorted(every.items())]


def drop(base: Path, pipeline: str, number: int, doors: SystemClients) -> None:
    """Delete a generation that does not count: its outputs, its dead letters of the replay, its state.

    That is noted first: one of which something is gone cannot be switched to, and the same again deletes the rest.
    """
    folder = state_of(base, number)
    if in_use(folder):
        raise StateMismatch(f"generation {number} is at work, in {folder}", hint="stop it first")
    known = generations.change(base, lambda now: _dropping(now, number))
    found = known.get(number)
    for output in removed(known, number):
        _remove(output, doors)
    if found is not None and found.end:
        _forget(f"{pipeline}@{number}", [dead_topic(f"{name}{mark_of(number)}") for name in found.end], doors.cluster())
    _delete(folder)
    generations.change(base, lambda now: now.without(number))


def removed(known: Generations, number: int) -> list[Output]:
    """What goes with a generation."""
    return [one for one in leading(known, number) if number == FIRST or one.own != one.name]


def _dropping(now: Generations, number: int) -> Generations:
    now.require(number, whole=False)
    if number in (now.current, now.switching):
        raise InvalidReplay(f"generation {number} is the current one", hint="--rollback first, or switch to another")
    return replace(now, dropping=tuple(sorted({*now.dropping, number})))


def _begun(now: Generations, number: int) -> Generations:
    now.require(number)  # nobody may have begun to delete it meanwhile
    return replace(now, switching=number)


def _switched(now: Generations, number: int) -> Generations:
    before = now.current if now.current != number else now.before
    return replace(now, current=number, before=before, switching=None)


def _publish(outputs: list[Output], pipeline: str, number: int, doors: SystemClients) -> None:
    by_kind: dict[str, dict[str, str]] = {}
    for output in outputs:
        by_kind.setdefault(output.kind, {})[output.name] = output.own
    if "kafka" in by_kind:
        generation_alias.publish(doors.cluster(), GenerationAlias(pipeline, number, time.time(), by_kind["kafka"]))
    if "cassandra" in by_kind:
        publish_alias(doors.cassandra(), pipeline, number, by_kind["cassandra"])
    for output in outputs:
        if output.kind == "files":
            _link(output)


def _require_link(output: Output) -> None:
    link = link_of(output.name)
    if link is not None and link.exists() and not link.is_symlink():
        raise FileUnusable(
            f"{link} is in the way: it would lead to the current generation", hint="rename it, or remove it"
        )


def _link(output: Output) -> None:
    link = link_of(output.name)
    if link is None:
        return
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(Path(output.own.removeprefix("file://").rstrip("/")).name)
    fresh.replace(link)


def link_of(folder: str) -> Path | None:
    """The link that leads to the current generation of a folder; none where there are no links, as in S3."""
    path = folder.removeprefix("file://").rstrip("/")
    return None if "://" in path else Path(f"{path}{CURRENT}")


def _remove(output: Output, doors: SystemClients) -> None:
    if output.kind == "kafka" and output.own in doors.cluster().connect().topics:
        topics.delete(doors.cluster(), [output.own])
    if output.kind == "cassandra":
        doors.cassandra().execute(f"DROP TABLE IF EXISTS {quoted_table(output.own)}", doing=f"drop {output.own}")
    if output.kind == "files" and is_ours(output):
        _delete(Path(output.own.removeprefix("file://")))


def is_ours(output: Output) -> bool:
    """Whether it can be deleted from here: not so a folder in S3 or HDFS."""
    return output.kind != "files" or "://" not in output.own.removeprefix("file://")


def _delete(folder: Path) -> None:
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise FileUnusable(
            f"{folder} cannot be deleted", why=error.strerror or str(error), hint="the same command goes on with it"
        ) from None


def _forget(name: str, dead: list[str], cluster: Cluster) -> None:
    """What Kafka keeps by the name of the pipeline that wrote a generation."""
    there = [one for one in dead if one in cluster.connect().topics]
    if there:
        topics.delete(cluster, there)
    for group in consumer_groups.names(cluster):
        if is_group_of(name, group):
            consumer_groups.delete(cluster, group)


def is_group_of(pipeline: str, group: str) -> bool:
    """Return whether a consumer group belongs to a pipeline."""
    ours = (f"millrace.sink/{pipeline}/", f"millrace.{pipeline}.", f"millrace.dead.{pipeline}.")
    return group.startswith(ours) or group == run_group(pipeline)
