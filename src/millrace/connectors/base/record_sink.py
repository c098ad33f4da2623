"""The contract of a sink for records, and where sinks are found.

A sink is one module of `millrace.connectors` (or one entry point in the group `millrace.connectors`) that defines one
subclass of `RecordSink`. docs/extending.md shows a whole one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.record import Done, Record
from millrace.errors import MillraceError
from millrace.plugins import PluginRegistry


@dataclass(frozen=True)
class SinkTarget:
    """What the user said about where records go."""

    topic: str | None = None
    path: str | None = None
    cluster: Callable[[], Cluster] | None = None
    say: Callable[[str], None] = lambda _: None
    """Shows the user one line about what is being waited for."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the run is over: a sink that waits for room must not wait any longer. Set by it when it fails."""
    patience: float | None = None
    """Seconds after which records that have not arrived have failed; None is the sink's own choice."""


@dataclass(frozen=True)
class DeliveryReport:
    """What became of the records so far."""

    delivered: int = 0
    failed: int = 0
    reason: MillraceError | None = None


class RecordSink(ABC):
    """Where a feed's records go. The first line of the docstring is its help."""

    delivery_guarantee: ClassVar[str]
    place: str | None = None
    """Names where the records go, for a feed to remember how far it has come there; None where nothing is kept."""

    @abstractmethod
    def __init__(self, target: SinkTarget) -> None:
        """Open what the target names; raise an InputError when it does not fit."""

    @abstractmethod
    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Take records, blocking while the sink is full. `done` is called when they are safe, or are not."""

    @abstractmethod
    def tally(self) -> DeliveryReport:
        """What became of the records so far."""

    @abstractmethod
    def close(self) -> DeliveryReport:
        """Wait until every record is safe or has failed; then let go of everything."""


RECORD_SINKS = PluginRegistry("millrace.connectors", RecordSink, "sink")
