"""Standard output as a sink for records, one a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from millrace.clients.records import Done, Record
from millrace.connectors.base import Sink, Tally, Target


class ConsoleSink(Sink):
    """Standard output, one value a line."""

    guarantee = "none: what reads the output may be gone"

    def __init__(self, target: Target) -> None:
        del target
        self._written = 0

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        """Print the values; a record without a value is an empty line."""
        sys.stdout.buffer.write(b"".join((record.value or b"") + b"\n" for record in records))
        sys.stdout.buffer.flush()
        self._written += len(records)
        if done:
            done(None)

    def tally(self) -> Tally:
        """Lines printed so far."""
        return Tally(self._written)

    def close(self) -> Tally:
        """Nothing is open."""
        return self.tally()
