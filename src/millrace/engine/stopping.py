"""Queries stopped between two batches, so that none is cut in the middle and run again next time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from millrace.settings import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_WORKING = ("Processing new data", "No new data but cleaning up state")
"""What Spark says of a query while a batch runs; the second one closes windows, and writes them."""
_LOOK = 0.005
_CUT = re.compile(
    r"java\.lang\.InterruptedException|InterruptedIOException|ClosedByInterruptException"
    r"|Job \S+ cancelled|cancelled job group"
)


def interrupted(failure: BaseException) -> bool:
    """Whether a query ended because it was stopped in the middle of something, which Spark may take for a failure.

    A batch may begin at the very moment of the stop. Nothing is lost: it is run again at the next start.
    """
    return _CUT.search(str(failure)) is not None


def stop_all(
    queries: Sequence[StreamingQuery], patience: float = PATIENCE.default, at_once: Sequence[StreamingQuery] = ()
) -> list[StreamingQuery]:
    """Stop queries, each when its batch has ended; and others, of whose batches nothing is kept, at once.

    Gives those whose batch took too long and was cut off. Whoever interrupts this is not held up: the threads end with
    the process.
    """
    cut: list[StreamingQuery] = []
    waits = [*((query, patience) for query in queries), *((query, 0.0) for query in at_once)]
    threads = [threading.Thread(target=_stop, args=(*one, cut), daemon=True) for one in waits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return cut


def _stop(query: StreamingQuery, patience: float, cut: list[StreamingQuery]) -> None:
    deadline = time.monotonic() + patience
    # Between batches, and while it looks for new data, nothing has been written that would be written again.
    # A batch that begins between the last look and the stop is cut off untold: it is repeated, and a sink that
    # writes at least once may then have rows twice.
    with suppress(Exception):  # a JVM that is gone, or a query that does not stop in time: both end with the session
        while query.isActive and query.status["message"].startswith(_WORKING):
            if time.monotonic() >= deadline:
                cut.append(query)
                break
            time.sleep(_LOOK)
        query.stop()
