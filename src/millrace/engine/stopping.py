"""Queries stopped between two batches, so that none is cut in the middle and run again next time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_WORKING = "Processing new data"
_LOOK = 0.005
PATIENCE = 60.0
"""Seconds that a batch may still take before it is cut off; it will be run again at the next start."""


def interrupted(failure: BaseException) -> bool:
    """Whether a query ended because it was stopped in the middle of something, which Spark may take for a failure.

    A batch may begin at the very moment of the stop. Nothing is lost: it is run again at the next start.
    """
    return "java.lang.InterruptedException" in str(failure)


def stop_all(
    queries: Sequence[StreamingQuery], patience: float = PATIENCE, at_once: Sequence[StreamingQuery] = ()
) -> None:
    """Stop queries, each when its batch has ended; and others, of whose batches nothing is kept, at once."""
    waits = [*((query, patience) for query in queries), *((query, 0.0) for query in at_once)]
    if waits:
        with ThreadPoolExecutor(len(waits)) as pool:
            list(pool.map(lambda one: _stop(*one), waits))


def _stop(query: StreamingQuery, patience: float) -> None:
    deadline = time.monotonic() + patience
    # Between batches, and while it looks for new data, nothing has been written that would be written again.
    with suppress(Exception):  # a JVM that is gone, or a query that does not stop in time: both end with the session
        while query.isActive and _WORKING in query.status["message"] and time.monotonic() < deadline:
            time.sleep(_LOOK)
        query.stop()
