"""The floor: a consumer that only counts, and a program that is written for the one job and keeps nothing safe."""

from __future__ import annotations

import sys
from pathlib import Path

from peers.contract import Peer, Place
from peers.homes import PROGRAMS


class BareConsumer(Peer):
    """Reads and counts records, nothing else; its answer is their number."""

    name = "floor: consumer"
    jobs = frozenset({"words", "ads", "state"})

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """The Python of ours, with confluent-kafka."""
        return [sys.executable, PROGRAMS / "bare.py"]


class HandWritten(Peer):
    """A loop in Python with orjson and dictionaries; it keeps nothing when it ends."""

    name = "floor: by hand"
    jobs = frozenset({"words", "ads", "state", "stateless", "keyed"})

    def command(self, place: Place) -> list[str | Path]:  # noqa: ARG002
        """The Python of ours."""
        return [sys.executable, PROGRAMS / "by_hand.py"]
