"""Whether a query takes its records for good until one is not, or looks at each; with care it goes on for ever."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from millrace.connectors.stream import Reader, Writer
from millrace.settings import TRUST

_FOLDER = "careful"


def careful(state: Path, query: str, readers: Collection[Reader], writers: Collection[Writer]) -> str | None:
    """Why a query looks at each record, in a few words; None where it takes its records for good.

    Then what only a dead letter needs is left out: Python, where Spark itself sees that a record is bad (text), and
    else the way there of all that tells a record's place. The first bad one ends the query, before its batch counts,
    and the query begins again with care.
    """
    if not TRUST.value():
        return f"{TRUST.variable} is off"
    if len(writers) == 1 and not any(writer.repeatable for writer in writers):
        return "its sink cannot be given a batch twice"
    if not all(reader.resumes for reader in readers):
        return "what it reads cannot be read again"
    return "it has met a bad one" if _note(state, query).exists() else None


def take_care(state: Path, query: str) -> None:
    """Trust a query's records no more, in later runs neither."""
    note = _note(state, query)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()


def _note(state: Path, query: str) -> Path:
    return state / _FOLDER / query
