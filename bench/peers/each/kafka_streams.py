"""Kafka Streams: a small program in Java."""

from __future__ import annotations

from pathlib import Path

from millrace.services.java import find_java
from peers.contract import Peer, Place
from peers.homes import PROGRAMS, compiled, jar_set


class KafkaStreams(Peer):
    """Two threads, results every second; state in memory, in RocksDB for S; exactly once for E only."""

    name = "Kafka Streams"
    jobs = frozenset({"words", "ads", "once", "state", "stateless", "keyed", "windowed", "filtered"})

    def prepare(self) -> None:
        """Jars, and the compiled program."""
        jars = jar_set("kafka-streams")
        self._classpath = f"{compiled(PROGRAMS / 'Streams.java', jars)}:{jars}"

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """Java as it is."""
        return [find_java().path, "-cp", self._classpath, "Streams"]

    def version(self) -> str:
        """As it is pinned."""
        return "4.3.1"
