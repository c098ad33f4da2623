"""Read offset ranges into an RDD: Spark's own Kafka reader on the executors, then decoders in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from millrace.clients.kafka.consumer import FETCH_MAX_WAIT_MS
from millrace.dstreams.errors import decoder_failed
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_types import Decoder, KafkaMessageAndMetadata, OffsetRange, utf8_decoder

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("key", "value", "topic", "partition", "offset")
Handler = Callable[[KafkaMessageAndMetadata], Any]


class RddDecoder:
    """The decoders of a program, sent to the executors. It is pickled into Spark's checkpoint."""

    def __init__(self, key: Decoder, value: Decoder, handler: Handler | None = None) -> None:
        self.key, self.value, self.handler = key, value, handler

    def records(self, batches: Iterable[bytes]) -> Iterator[Any]:
        """Return the records of a partition of the RDD, from Arrow batches."""
        import pyarrow as pa

        kinds = pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64()
        schema = pa.schema(list(zip(_COLUMNS, kinds, strict=True)))
        for content in batches:
            batch = pa.ipc.read_record_batch(pa.py_buffer(content), schema)
            if self.handler:
                yield from self._handled(batch)
            else:
                yield from zip(self._decoded(batch, 0, self.key), self._decoded(batch, 1, self.value), strict=True)

    def _decoded(self, batch: pa.RecordBatch, column: int, decoder: Decoder) -> Iterable[Any]:
        import pyarrow as pa

        if decoder is utf8_decoder:
            try:
                return batch.column(column).cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
            except pa.ArrowInvalid:  # one value is not UTF-8: the loop below finds it
                pass
        return self._one_by_one(batch, column, decoder)

    def _one_by_one(self, batch: pa.RecordBatch, column: int, decoder: Decoder) -> Iterator[Any]:
        for row, raw in enumerate(batch.column(column).to_pylist()):
            try:
                decoded = decoder(raw)
            except Exception as error:
                raise _decoder_failed(batch, row, f"{_COLUMNS[column]} decoder", error) from error
            yield decoded

    def _handled(self, batch: pa.RecordBatch) -> Iterator[Any]:
        assert self.handler is not None  # noqa: S101 - for the type
        decoders = self.key, self.value
        keys, values, *positions = (batch.column(index).to_pylist() for index in range(len(_COLUMNS)))
        for row, (topic, partition, offset) in enumerate(zip(*positions, strict=True)):
            message = KafkaMessageAndMetadata(topic, partition, offset, keys[row], values[row], decoders)
            try:
                handled = self.handler(message)
            except Exception as error:
                raise _decoder_failed(batch, row, "messageHandler", error) from error
            yield handled


def read_ranges(
    session: SparkSession, parameters: Parameters, ranges: Sequence[OffsetRange], decoding: RddDecoder
) -> RDD[Any]:
    """Return the records of the ranges; several ranges of one partition are read separately, in their order."""
    context = session.sparkContext
    filled = [range_ for range_ in ranges if range_.count() > 0]
    if not filled:
        return context.parallelize([], 1)
    partitions = {range_.topicAndPartition() for range_ in filled}
    groups = [filled] if len(partitions) == len(filled) else [[range_] for range_ in filled]
    batches = [_frame(session, parameters, group)._jdf.toArrowBatchRdd().toJavaRDD() for group in groups]
    rdds = [RDD(batch, context, NoOpSerializer()).mapPartitions(decoding.records) for batch in batches]
    return rdds[0] if len(rdds) == 1 else context.union(rdds)


def _frame(session: SparkSession, parameters: Parameters, ranges: Sequence[OffsetRange]) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    start: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for range_ in ranges:
        assigned.setdefault(range_.topic, []).append(range_.partition)
        start.setdefault(range_.topic, {})[str(range_.partition)] = range_.fromOffset
        end.setdefault(range_.topic, {})[str(range_.partition)] = range_.untilOffset
    selection = {"assign": assigned, "startingOffsets": start, "endingOffsets": end}
    options = {"kafka.fetch.max.wait.ms": str(FETCH_MAX_WAIT_MS), **parameters.for_spark(), "failOnDataLoss": "true"}
    options |= {name: json.dumps(offsets) for name, offsets in selection.items()}
    return session.read.format("kafka").options(**options).load().select(*_COLUMNS)


def _decoder_failed(batch: pa.RecordBatch, row: int, what: str, error: Exception) -> BaseException:
    topic, partition, offset = (batch.column(index)[row].as_py() for index in (2, 3, 4))
    return decoder_failed(what, f"the record at offset {offset} of partition {partition} of {topic!r}", error)
