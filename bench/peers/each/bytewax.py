"""Bytewax: Python over a dataflow engine in Rust."""

from __future__ import annotations

from pathlib import Path

from peers.contract import Peer, Place
from peers.homes import PROGRAMS, environment

VERSION = "0.21.1"


class Bytewax(Peer):
    """Two processes; batches are counted before they are sent to their worker."""

    name = "Bytewax"
    jobs = frozenset({"words", "ads", "stateless", "keyed"})

    def prepare(self) -> None:
        """From PyPI, with the client and the JSON decoder that its documentation takes."""
        wanted = (f"bytewax=={VERSION}", "confluent-kafka==2.16.1", "orjson==3.13.0")
        self._python = environment("bytewax", *wanted)

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """Its own starter of several processes."""
        return [self._python, "-m", "bytewax.testing", f"{PROGRAMS / 'with_bytewax.py'}:flow", "-p", "2"]

    def version(self) -> str:
        """As it is pinned."""
        return VERSION
