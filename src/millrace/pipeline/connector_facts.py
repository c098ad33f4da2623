"""What `check` and `plan` know about connectors, without Spark.

`connectors/base/registry.py` fills `Facts` from the classes of sources and sinks; the rules of `pipeline/checks` read
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millrace.pipeline.model import MODES, Connection
from millrace.pipeline.schema import Schema


@dataclass(frozen=True)
class OptionMistake:
    """Something wrong with one option of a connection (or with the whole of it, when `option` is None)."""

    condition: str
    message: str
    option: str | None = None
    hint: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class RecordForm:
    """How rows are records of an outside system: the format of their values, and which columns are in them."""

    format: str
    only: tuple[str, ...] = ()
    """The columns that make the value; none: all."""
    beside: tuple[str, ...] = ()
    """Columns that are no part of the value."""


@dataclass(frozen=True)
class Facts:
    """One connection as its connector sees it."""

    mistakes: tuple[OptionMistake, ...] = ()
    schema: Schema | None = None
    """A source's columns, when they are known without looking."""
    modes: tuple[str, ...] = MODES
    """A sink's output modes."""
    realtime: str | None = None
    """Why Spark's real-time mode cannot use it; None when it can."""
    continuous: str | None = None
    """Why the continuous trigger cannot use it; None when it can."""
    guarantee: str = ""
    touches: tuple[str, ...] = ()
    """What is read or written, as `topic posts`: the same text for the same thing."""
    form: RecordForm | None = None
    """How what it reads or writes is encoded, where another pipeline may be at the other end."""
    alone: bool = False
    """Whether a sink must be the only one that writes there."""
    resumes: bool = True
    """Whether what a source read or a sink wrote is still there at the next run."""
    midway: bool = True
    """Whether a sink may be added to a query that has run before."""
    letters: bool = False
    """Whether what a source cannot decode is kept as dead letters."""
    columns: tuple[tuple[str, str], ...] = ()
    """The columns of its table that a sink's options name: the option and the column."""
    unique_columns: bool = False
    """Whether a sink refuses two columns of one name."""
    unkeyed: bool = False
    """Whether a sink writes records without a key, and readers need one to tell which row an update replaces."""
    deprecated: tuple[OptionMistake, ...] = ()
    """Notices about deprecated names and values of options, which still work."""


@dataclass(frozen=True)
class Connectors:
    """Where facts come from: one function for sources (streamed or static), one for the sinks of tables."""

    source: Callable[[Connection, bool], Facts]
    sink: Callable[[Connection, str], Facts]
