"""One query of a trial: started, given a step at a time, and looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.clients.letters import Letter, from_line
from millrace.engine.failures import explain
from millrace.engine.structured import Workshop, writer_of
from millrace.errors import MillraceError
from millrace.pipeline.model import Sink
from millrace.pipeline.plan import Query
from millrace.testing.comparing import difference, plain_rows
from millrace.testing.feeding import FedTables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_CRASH = "millrace: cut off after the rows of batch"


@dataclass
class Played:
    """What came of a step."""

    rows: pa.Table
    late: int
    dead: dict[str, list[Letter]] = field(default_factory=dict)


class Play:
    """A query on a stream in memory. Its rows are taken batch by batch, under the number of their batch."""

    def __init__(
        self,
        workshop: Workshop,
        query: Query,
        stream: Any,
        static: Mapping[str, DataFrame],
        ticking: bool,
        chaos: bool,
    ) -> None:
        self.steps: list[Played] = []
        self.unstable: list[str] = []
        self.failed = False
        self.query, self._stream, self._chaos = query, stream, chaos
        self._folder = workshop.ground.state
        self._frame = FedTables(workshop, query, stream, static, ticking).frame(query.table)
        for sink in query.sinks:
            _require_shape(self._frame, sink)
        self._written: dict[int, pa.Table] = {}
        self._cut: set[int] = set()
        self._counted: dict[int, int] = {}
        self._letters: set[Path] = set()
        self._running = self._started()

    def step(self, rows: Any) -> None:
        """Give rows, and wait until nothing more comes of them."""
        before = len(self._written)
        self._stream.addData(rows)
        self._await()
        batches = [self._written[number] for number in sorted(self._written)[before:]]
        late = self._late()
        self.steps.append(Played(self._together(batches), late, self._dead()))

    def stop(self) -> None:
        """End it."""
        self._running.stop()

    def _started(self) -> StreamingQuery:
        try:
            writer = self._frame.writeStream.foreachBatch(self._take).outputMode(self.query.mode)
            return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        except Exception as error:
            raise explain(error, place=self.query.place) from error

    def _take(self, frame: DataFrame, batch: int) -> None:
        rows: Any = frame.toArrow()
        first = self._written.get(batch)
        self._written[batch] = rows
        if first is not None:
            if told := difference(self.query.table, rows, plain_rows(first)):
                self.unstable.append(f"batch {batch} gave other rows when it was run again\n{told}")
        elif self._chaos and batch not in self._cut:
            self._cut.add(batch)
            raise RuntimeError(f"{_CRASH} {batch}")

    def _await(self) -> None:
        while True:
            try:
                self._running.processAllAvailable()
                return
            except MillraceError:
                raise
            except Exception as error:
                if not (self._chaos and _CRASH in str(error)):
                    self.failed = True
                    raise explain(error, place=self.query.place) from error
                self._late()  # of the batches until here
                self._running = self._started()

    def _together(self, batches: list[pa.Table]) -> pa.Table:
        import pyarrow as pa

        if batches:
            return batches[-1] if self.query.mode == "complete" else pa.concat_tables(batches)
        if self._written:
            return next(iter(self._written.values())).slice(0, 0)
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._frame.schema, timezone="UTC").empty_table()

    def _late(self) -> int:
        """How many rows the watermark left out since somebody asked; a batch is told of more than once."""
        new = 0
        for progress in self._running.recentProgress:
            batch = progress["batchId"]
            told = sum(one["numRowsDroppedByWatermark"] for one in progress["stateOperators"])
            new += max(0, told - self._counted.get(batch, 0))
            self._counted[batch] = max(told, self._counted.get(batch, 0))
        return new

    def _dead(self) -> dict[str, list[Letter]]:
        found: dict[str, list[Letter]] = {}
        for file in sorted(self._folder.glob("dead/*/*.jsonl")):
            if file not in self._letters:
                self._letters.add(file)
                found.setdefault(file.parent.name, []).extend(map(from_line, file.read_bytes().splitlines()))
        return found


def _require_shape(frame: DataFrame, sink: Sink) -> None:
    """A sink's key that is no column is found in a test, not in production."""
    try:
        writer_of(sink).shape(frame)
    except MillraceError as error:
        error.place = error.place or sink.place
        raise
    except Exception as error:
        raise explain(error, place=sink.place) from error
