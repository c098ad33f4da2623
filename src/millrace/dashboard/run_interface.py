"""What the server of the dashboard needs of a run.

`RunPage` fills a `RunInterface`: channels that change, and functions that answer requests. `api.py`, `app.py` and
`live.py` read it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from millrace.errors import NoCluster, UnknownName
from millrace.telemetry.channels import Channels
from millrace.telemetry.metrics import Health

Work = Callable[[threading.Event], None]
"""Fills a channel until the event is set; subscribers get a note of what it raises."""


@dataclass(frozen=True)
class DeadLetterQuery:
    """Which dead letters are meant; None is any."""

    source: str | None = None
    reason: str | None = None
    most: int | None = None
    topic: str | None = None
    """Their topic, as `posts.dead`."""
    redriven: bool = False
    """Also those that were sent again."""


@dataclass(frozen=True)
class LetterGroup:
    """Dead letters to be sent again: of one source, in one topic (None: in files), for one reason, or one of them."""

    source: str
    topic: str | None = None
    reason: str | None = None
    letter: str | None = None


def _no_sql(*_: Any) -> Any:
    raise UnknownName("there are no tables in memory here", hint="add a memory sink to the pipeline")


def _no_kafka(*_: Any) -> Any:
    raise NoCluster("this run uses no Kafka")


@dataclass(frozen=True)
class RunInterface:
    """Everything that the server needs of a run; each question raises a MillraceError when it has no answer."""

    channels: Channels
    health: Callable[[], Health]
    pipeline: Callable[[], Mapping[str, Any]]
    sql: Callable[[str, int], Mapping[str, Any]] = _no_sql
    """Rows of a SELECT, and their maximum number."""
    topics: Callable[[], list[Mapping[str, Any]]] = _no_kafka
    records: Callable[[str, str, int], list[Mapping[str, Any]]] = _no_kafka
    """Records of a topic: from `newest`, `earliest` or a time, and their maximum number."""
    letters: Callable[[DeadLetterQuery], Iterator[Mapping[str, Any]]] = _no_kafka
    work: Callable[[str], Work | None] = field(default=lambda _: None)
    """How a channel is filled that exists only while it has subscribers (`topics`, `tail:posts`, `dead`)."""
    opened: Callable[[], None] = field(default=lambda: None)
    """Called for each dashboard that is opened."""
    redrive: Callable[[LetterGroup], Mapping[str, Any]] = _no_kafka
    """Send dead letters again; returns the result. The channel `redrive` shows its progress."""
