"""A record on its way to Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millrace.errors import MillraceError


class Record(NamedTuple):
    """What a producer sends; what is None is left to Kafka (no key, now, any partition)."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


Done = Callable[[MillraceError | None], None]
"""Called once for several records sent together: with None when all are safe, else with the reason."""
