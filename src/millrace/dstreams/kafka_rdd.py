"""Ranges of offsets to records, by Spark's own Kafka reader on the executors and decoders in Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from millrace.dstreams.errors import decoder_failed
from millrace.dstreams.kafka_params import Parameters
from millrace.dstreams.kafka_types import Decoder, KafkaMessageAndMetadata, OffsetRange, utf8_decoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = ("key", "value", "topic", "partition", "offset")
Handler = Callable[[KafkaMessageAndMetadata], Any]


class RddDecoder:
    """How a record's bytes become what the program gets; travels to the executors."""

    def __init__(self, key: Decoder, value: Decoder, handler: Handler | None = None) -> None:
        self.key, self.value, self.handler = key, value, handler

    def records(self, batches: Iterable[bytes]) -> Iterator[Any]:
        """The records of a partition of the RDD, from Arrow's batches."""
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
            except pa.ArrowInvalid:  # one of them is not UTF-8: below it is known which
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
        keys, values, *places = (batch.column(at).to_pylist() for at in range(len(_COLUMNS)))
        for row, (topic, partition, offset) in enumerate(zip(*places, strict=True)):
            message = KafkaMessageAndMetadata(topic, partition, offset, keys[row], values[row], decoders)
            try:
                made = self.handler(message)
            except Exception as error:
                raise _decoder_failed(batch, row, "messageHandler", error) from error
            yield made


def read_ranges(
    session: SparkSession, parameters: Parameters, ranges: Sequence[OffsetRange], decoding: RddDecoder
) -> RDD[Any]:
    """The records of the ranges; several of one partition are read apart, in their order."""
    from pyspark import RDD
    from pyspark.serializers import NoOpSerializer

    context = session.sparkContext
    full = [one for one in ranges if one.count() > 0]
    if not full:
        return context.parallelize([], 1)
    places = {one.topicAndPartition() for one in full}
    groups = [full] if len(places) == len(full) else [[one] for one in full]
    read = []
    for group in groups:
        batches = _frame(session, parameters, group)._jdf.toArrowBatchRdd().toJavaRDD()
        read.append(RDD(batches, context, NoOpSerializer()).mapPartitions(decoding.records))
    return read[0] if len(read) == 1 else context.union(read)


def _frame(session: SparkSession, parameters: Parameters, ranges: Sequence[OffsetRange]) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    start: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for one in ranges:
        assigned.setdefault(one.topic, []).append(one.partition)
        start.setdefault(one.topic, {})[str(one.partition)] = one.fromOffset
        end.setdefault(one.topic, {})[str(one.partition)] = one.untilOffset
    options = {
        **parameters.for_spark(),
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(start),
        "endingOffsets": json.dumps(end),
        "failOnDataLoss": "true",
    }
    return session.read.format("kafka").options(**options).load().select(*_COLUMNS)


def _decoder_failed(batch: pa.RecordBatch, row: int, what: str, error: Exception) -> BaseException:
    topic, partition, offset = (batch.column(at)[row].as_py() for at in (2, 3, 4))
    return decoder_failed(what, f"the record at offset {offset} of partition {partition} of {topic!r}", error)
