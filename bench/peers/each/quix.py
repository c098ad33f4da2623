"""Quix Streams: Python over librdkafka and RocksDB."""

from __future__ import annotations

from pathlib import Path

from peers.contract import Peer, Place
from peers.homes import PROGRAMS, environment

VERSION = "3.28.1"


class Quix(Peer):
    """Two processes in one group; keys go through a topic of their own, as group_by does it."""

    name = "Quix Streams"
    jobs = frozenset({"words", "ads", "once", "stateless", "keyed"})
    share = 0.1

    def prepare(self) -> None:
        """From PyPI."""
        self._python = environment("quix", f"quixstreams=={VERSION}")

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """Its own Python."""
        return [self._python, PROGRAMS / "with_quix.py"]

    def version(self) -> str:
        """As it is pinned."""
        return VERSION
