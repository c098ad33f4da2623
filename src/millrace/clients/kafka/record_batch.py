"""Record batches of Kafka (magic 2) as columns, without an object for each record.

- `batches` splits a response into record batches, and leaves aborted transactions out.
- `read` makes `RecordColumns` of them: offsets, times, keys, values and headers, decompressed where needed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import google_crc32c
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

_HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, epoch of the leader, format, checksum, attributes, last offset from the base, first and last
time, producer, its epoch, its sequence, number of records."""
_CRC_START = 21
"""The checksum covers the bytes after it."""
_MAGIC = 2
_TARGET_ARRAY_BYTES, _MAX_ARRAY_BYTES = 32 * 2**20, 2**31 - 1
"""Size of an array of decompressed records: about, and at most."""
_CODEC, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0b111, 1 << 3, 1 << 4, 1 << 5


class DamagedBatch(Exception):
    """Bytes that are not a valid record batch."""


class RecordBatch(NamedTuple):
    """A record batch as it is stored; without records if these are not to be read."""

    base: int
    last: int
    attributes: int
    first_time: int
    last_time: int
    producer: int
    size: int
    records: memoryview


class RecordColumns(NamedTuple):
    """Records of one partition, in order."""

    data: memoryview
    offsets: Numbers
    times: Numbers
    """Milliseconds since 1970."""
    keys: tuple[Numbers, Numbers]
    """The start of each in the data, and its length: -1 for null."""
    values: tuple[Numbers, Numbers]
    headers: tuple[Numbers, Numbers]
    """The start of the headers, and their number."""

    def between(self, start: int, stop: int) -> RecordColumns:
        """Return the records with offsets from `start` to before `stop`."""
        if not len(self.offsets) or (self.offsets[0] >= start and self.offsets[-1] < stop):
            return self
        kept = slice(*np.searchsorted(self.offsets, (start, stop)).tolist())
        pairs = [(starts[kept], lengths[kept]) for starts, lengths in (self.keys, self.values, self.headers)]
        return RecordColumns(self.data, self.offsets[kept], self.times[kept], *pairs)

    def bytes_of(self, which: tuple[Numbers, Numbers]) -> pa.Array:
        """Return keys or values as an array of bytes.

        The array over all the data has the bytes between two values as elements too, so every second one is taken.
        """
        import pyarrow as pa

        starts, lengths = which
        absent = lengths < 0
        bounds = np.empty(2 * len(starts) + 1, np.int32)
        bounds[0] = 0
        bounds[1::2] = starts
        bounds[2::2] = starts + np.maximum(lengths, 0)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.data)]
        wanted = np.arange(1, 2 * len(starts) + 1, 2)
        chosen = pa.array(wanted, mask=absent) if absent.any() else pa.array(wanted)
        return pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers).take(chosen)

    def headers_of(self) -> list[list[dict[str, Any]] | None]:
        """Return the headers of each record as Spark has them: None if there are none."""
        return [_headers(self.data, at, count) if count else None for at, count in zip(*self.headers, strict=True)]


def batches(answer: memoryview, aborted: Sequence[tuple[int, int]]) -> Iterator[RecordBatch]:
    """Yield the batches of a response; those of aborted transactions and control batches come without records.

    They still count for the next offset.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    dropped: set[int] = set()
    for batch in _all(answer):
        while waiting and waiting[-1][1] <= batch.last:
            dropped.add(waiting.pop()[0])
        if batch.attributes & _CONTROL:
            if batch.size and _is_abort(batch):  # compaction may have removed the marker
                dropped.discard(batch.producer)
        elif not (batch.attributes & _TRANSACTIONAL and batch.producer in dropped):
            yield batch
            continue
        yield batch._replace(size=0, records=batch.records[:0])


def read(batches: Sequence[RecordBatch]) -> Iterator[RecordColumns]:
    """Yield the records of the batches of a response, in columns."""
    filled = [batch for batch in batches if batch.size]
    if any(batch.attributes & _CODEC for batch in filled):
        yield from map(_join, _groups(filled))
    elif filled:  # they are not copied
        whole = memoryview(filled[0].records.obj)
        yield _columns(filled, whole, [_address(batch.records) - _address(whole) for batch in filled])


def _groups(batches: Sequence[RecordBatch]) -> Iterator[list[tuple[RecordBatch, bytes]]]:
    """Yield groups of batches with their decompressed bytes, limited in size."""
    group: list[tuple[RecordBatch, bytes]] = []
    for batch in batches:
        group.append((batch, _decompressed(batch)))
        if sum(len(content) for _, content in group) > _TARGET_ARRAY_BYTES:
            yield group
            group = []
    if group:
        yield group


def _join(group: Sequence[tuple[RecordBatch, bytes]]) -> RecordColumns:
    """Return the columns of batches whose bytes are joined."""
    ends = np.cumsum([0, *(len(content) for _, content in group)]).tolist()
    if ends[-1] >= _MAX_ARRAY_BYTES:
        raise DamagedBatch(f"the batch at offset {group[-1][0].base} is larger than Arrow's arrays")
    return _columns([batch for batch, _ in group], memoryview(b"".join(content for _, content in group)), ends[:-1])


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def _all(answer: memoryview) -> Iterator[RecordBatch]:
    at, size = 0, len(answer)
    while at + _HEADER.size <= size:
        base, length, _, form, checksum, attributes, last, first_time, last_time, producer, _, _, count = (
            _HEADER.unpack_from(answer, at)
        )
        if form != _MAGIC:
            raise DamagedBatch(f"the batch at offset {base} has the format {form} of an old Kafka")
        end = at + 12 + length
        if end > size:
            return  # the response ends within a batch, which is fetched again
        if google_crc32c.value(bytes(answer[at + _CRC_START : end])) != checksum:
            raise DamagedBatch(f"the checksum of the batch at offset {base} is wrong")
        records = answer[at + _HEADER.size : end]
        yield RecordBatch(base, base + last, attributes, first_time, last_time, producer, count, records)
        at = end


def _is_abort(batch: RecordBatch) -> bool:
    """Return whether a control batch is an abort marker: its key is a version and a 0."""
    at = _varint(batch.records, 0)[1] + 1
    for _ in range(3):  # time, offset, length of the key
        _, at = _varint(batch.records, at)
    return bytes(batch.records[at + 2 : at + 4]) == b"\0\0"


def _columns(batches: Sequence[RecordBatch], data: memoryview, begins: Sequence[int]) -> RecordColumns:
    starts: list[int] = []
    for batch, begin in zip(batches, begins, strict=True):
        _note_starts(data, begin, batch.size, starts)
    counts = [batch.size for batch in batches]
    whole = np.frombuffer(data, np.uint8)
    at = np.array(starts, np.int64) + 1  # after the attributes, which are unused
    since, at = _varints(whole, at)
    after, at = _varints(whole, at)
    keys, at = _varints(whole, at)
    key_starts, at = at, at + np.maximum(keys, 0)
    values, at = _varints(whole, at)
    value_starts, at = at, at + np.maximum(values, 0)
    headers, at = _varints(whole, at)
    appended = np.repeat([bool(batch.attributes & _LOG_APPEND_TIME) for batch in batches], counts)
    times = np.repeat(np.array([batch.first_time for batch in batches], np.int64), counts) + since
    if appended.any():
        times = np.where(appended, np.repeat(np.array([batch.last_time for batch in batches], np.int64), counts), times)
    offsets = np.repeat(np.array([batch.base for batch in batches], np.int64), counts) + after
    return RecordColumns(data, offsets, times, (key_starts, keys), (value_starts, values), (at, headers))


def _note_starts(data: memoryview, at: int, count: int, starts: list[int]) -> None:
    """Append the start of each record of a batch, after its length."""
    append = starts.append
    for _ in range(count):
        length, at = data[at], at + 1
        if length > 127:
            more, at = data[at], at + 1
            length += (more - 1) << 7
            shift = 7
            while more > 127:
                length -= 128 << shift
                more, at, shift = data[at], at + 1, shift + 7
                length += more << shift
        append(at)
        at += length >> 1


def _varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the varint at each position, and the positions after them."""
    byte = data[at]
    value = (byte & 127).astype(np.int64)
    at = at + 1
    more = np.flatnonzero(byte > 127)
    shift = 7
    while len(more):
        byte = data[at[more]]
        value[more] |= (byte & 127).astype(np.int64) << shift
        at[more] += 1
        more = more[byte > 127]
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value, at = _unsigned_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _unsigned_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _headers(data: memoryview, at: int, count: int) -> list[dict[str, Any]]:
    headers = []
    for _ in range(count):
        length, at = _varint(data, at)
        name, at = bytes(data[at : at + length]).decode("utf-8", "replace"), at + length
        length, at = _varint(data, at)
        headers.append({"key": name, "value": bytes(data[at : at + length]) if length >= 0 else None})
        at += max(length, 0)
    return headers


def _decompressed(batch: RecordBatch) -> bytes:
    codec = batch.attributes & _CODEC
    if not codec or not batch.size:
        return bytes(batch.records)
    if codec not in _CODECS:
        raise DamagedBatch(f"the batch at offset {batch.base} is compressed in an unknown way ({codec})")
    try:
        return _CODECS[codec](batch.records)
    except (OSError, ValueError, struct.error) as error:
        raise DamagedBatch(f"the batch at offset {batch.base} cannot be decompressed: {error}") from error


def _decompress_stream(kind: str, packed: memoryview) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(packed), kind) as stream:
        return bytes(stream.read())


_XERIAL = b"\x82SNAPPY\x00"


def _snappy(packed: memoryview) -> bytes:
    """Decompress one block, or the blocks of the Java library's own framing."""
    if bytes(packed[:8]) != _XERIAL:
        return _decompress_snappy_block(packed)
    pieces, at = [], 16
    while at < len(packed):
        (size,) = struct.unpack_from(">i", packed, at)
        pieces.append(_decompress_snappy_block(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(pieces)


def _decompress_snappy_block(packed: memoryview) -> bytes:
    import pyarrow as pa

    size, _ = _unsigned_varint(packed, 0)  # the length comes first
    return bytes(pa.decompress(packed, size, "snappy", asbytes=True))


_CODECS: dict[int, Callable[[memoryview], bytes]] = {
    1: partial(_decompress_stream, "gzip"),
    2: _snappy,
    3: partial(_decompress_stream, "lz4"),
    4: partial(_decompress_stream, "zstd"),
}
