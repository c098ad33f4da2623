"""Millrace: `millrace run` of a pipeline, with its own settings."""

from __future__ import annotations

import sys
from pathlib import Path

from measure import MILLRACE

import millrace
from millrace.engine.session.class_archive import ensure_class_archive
from peers.contract import Peer, Place
from peers.homes import PROGRAMS
from peers.tables import ALL


class Millrace(Peer):
    """By default: exactly once into Kafka, dead letters, lag commits. Without the page: the others have none."""

    jobs = frozenset({"words", "ads", "once", "state", "stateless", "keyed", "windowed", "filtered"})

    def __init__(
        self,
        name: str = "Millrace",
        *,
        page: bool = False,
        lag: bool = True,
        **variables: str,
    ) -> None:
        """What is not named here is for the program's environment."""
        self.name = name
        self._page = page
        self._start: list[str | Path] = [MILLRACE] if lag else [sys.executable, PROGRAMS / "without_lag.py"]
        self._variables = variables

    def prepare(self) -> None:
        """What the first run on a machine makes, so that no run does."""
        ensure_class_archive(print)

    def command(self, place: Place) -> list[str | Path]:
        """A run that goes on."""
        more = [*(["--port", "0"] if self._page else ["--no-dashboard"])]
        script = PROGRAMS / "with_millrace.py"
        return [*self._start, "run", script, "--kafka", place.bootstrap, "--state", place.folder / "state", *more]

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """What is chosen otherwise than by default."""
        return self._variables

    def version(self) -> str:
        """Ours."""
        return millrace.__version__


ON_DISK = Millrace("Millrace, state in RocksDB", MILLRACE_STATE_KEYS="100000000")
PARTS: tuple[Peer, ...] = (
    Millrace(ALL, page=True),
    Millrace("without the page"),
    Millrace("without dead letters", page=True, ON_BAD="drop"),
    Millrace("without exactly-once", page=True, GUARANTEE="at-least-once"),
    Millrace("without lag commits", page=True, lag=False),
)
"""Each part off, the others on."""
