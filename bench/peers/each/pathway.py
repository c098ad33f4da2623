"""Pathway: Python over a dataflow engine in Rust."""

from __future__ import annotations

from pathlib import Path

from peers.contract import Peer, Place
from peers.homes import PROGRAMS, environment

VERSION = "0.33.0"


class Pathway(Peer):
    """Two threads; a commit every 100 ms, every millisecond where latency counts; nothing is kept."""

    name = "Pathway"
    jobs = frozenset({"words", "ads", "stateless", "keyed"})

    def prepare(self) -> None:
        """From PyPI."""
        self._python = environment("pathway", f"pathway=={VERSION}")

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """Its own Python."""
        return [self._python, PROGRAMS / "with_pathway.py"]

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """How many workers."""
        return {"PATHWAY_THREADS": "2"}

    def version(self) -> str:
        """As it is pinned."""
        return VERSION
