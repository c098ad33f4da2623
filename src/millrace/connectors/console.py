"""Standard output as a sink: tables of batches, and the records of feeds one a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millrace.clients.kafka.record import Done, Record
from millrace.connectors.base.api import RunContext, Sink, whole_batch
from millrace.connectors.base.record_sink import DeliveryReport, RecordSink, SinkTarget
from millrace.plugins import option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class ConsoleRecordSink(RecordSink):
    """Standard output, one value a line."""

    delivery_guarantee = "none: what reads the output may be gone"

    def __init__(self, target: SinkTarget) -> None:
        del target
        self._written = 0

    def write(self, records: Sequence[Record], done: Done | None = None) -> None:
        sys.stdout.buffer.write(b"".join((record.value or b"") + b"\n" for record in records))
        sys.stdout.buffer.flush()
        self._written += len(records)
        if done:
            done(None)

    def tally(self) -> DeliveryReport:
        return DeliveryReport(self._written)

    def close(self) -> DeliveryReport:
        return self.tally()


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Sink):
    """Standard output, a small table for each batch."""

    delivery_guarantee: ClassVar[str] = "none: what reads the output may be gone"
    transient: ClassVar[bool] = True
    realtime: ClassVar[bool] = True
    continuous: ClassVar[bool] = True

    rows: int = option(20, "Maximum number of rows of a batch that are shown.", least=1)
    truncate: int = option(0, "Maximum number of characters of a value.", shown_default="whole")

    def write(self, frame: DataFrame, batch: int, context: RunContext) -> None:
        shown = whole_batch(frame)._show_string(self.rows, self.truncate or False)
        context.print_line(f"{context.name}, batch {batch}\n{shown.rstrip()}")

    def stream(self, rows: DataStreamWriter, context: RunContext) -> DataStreamWriter:
        """Batch by batch through us; in the modes that have no batches Spark prints by itself."""
        if context.batches:
            return super().stream(rows, context)
        return rows.format("console").option("numRows", self.rows).option("truncate", bool(self.truncate))
