"""Messages of Avro's Netty transport, read from a connection: plain or compressed, bounded in size and in time.

A message is a serial, a number of buffers, and each buffer after its length, in four bytes each. With Flume's
`compression-type = deflate` both directions are one zlib stream each.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from dataclasses import dataclass

from millrace.feeds.avro_rpc import Garbled
from millrace.feeds.holding import Budget
from millrace.units import format_bytes

MOST_BUFFERS = 250_000
SLOW_SECONDS = 60.0
"""A message that takes longer to come, or an answer to go, is given up with its connection."""
FREE = 65_536
"""Bytes of a message that every connection may hold without asking; longer ones share a budget."""
_CHUNK = 65_536
_TLS = 0x1603
_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


@dataclass
class Held:
    """What one message holds of the budget."""

    budget: Budget
    largest: int
    held: int = 0

    async def cover(self, size: int) -> None:
        """Have room for so many bytes. All that it may come to is asked for at once: nobody waits with half."""
        if size > FREE and not self.held:
            await self.budget.take(self.largest)
            self.held = self.largest

    def shrink(self, size: int) -> None:
        """It has become no longer than this."""
        if self.held:
            self.budget.give(self.held - size)
            self.held = size

    def release(self) -> None:
        """Nothing of it is held any more."""
        self.budget.give(self.held)
        self.held = 0


class Inflow:
    """What a connection brings, and the form of what is sent back."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self._inflate: zlib._Decompress | None = None
        self._deflate: zlib._Compress | None = None
        self._begun = False
        self._full = False
        """Whether there may be more in what was compressed than was taken out of it."""

    async def message(self, held: Held) -> tuple[int, bytes]:
        """The next message and its serial: waits for its first bytes as long as it takes, for the rest not."""
        await self._fill(2)
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                return await self._message(held)
        except TimeoutError:
            raise Garbled("a message that did not come to its end in time") from None

    def framed(self, serial: int, payload: bytes) -> bytes:
        """An answer as it goes over the wire."""
        frame = _HEAD.pack(serial, 1) + _LENGTH.pack(len(payload)) + payload
        if self._deflate is None:
            return frame
        return self._deflate.compress(frame) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def _message(self, held: Held) -> tuple[int, bytes]:
        serial, count = _HEAD.unpack(await self._exactly(_HEAD.size))
        if not 0 <= count <= MOST_BUFFERS:
            raise Garbled("this is not Avro's transport")
        parts: list[bytes] = []
        size = 0
        for _ in range(count):
            (length,) = _LENGTH.unpack(await self._exactly(_LENGTH.size))
            size += _LENGTH.size + length
            if length < 0 or size > held.largest:
                raise Garbled(f"a message of more than {format_bytes(held.largest)}")
            await held.cover(size)
            parts.append(await self._exactly(length))
        held.shrink(size)
        return serial, b"".join(parts)

    async def _exactly(self, length: int) -> bytes:
        await self._fill(length)
        found = bytes(self._buffer[:length])
        del self._buffer[:length]
        return found

    async def _fill(self, length: int) -> None:
        """Have so many bytes; raises IncompleteReadError when there are no more."""
        while len(self._buffer) < length:
            self._buffer += await self._more()
            if not self._begun and len(self._buffer) >= 2:
                self._begun = True
                self._look()

    async def _more(self) -> bytes:
        if self._inflate and self._full and not self._inflate.eof:
            return self._inflated(self._inflate.unconsumed_tail)
        chunk = await self._reader.read(_CHUNK)
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(self._buffer[:_CHUNK]), None)
        return self._inflated(chunk) if self._inflate else chunk

    def _inflated(self, chunk: bytes) -> bytes:
        if self._inflate is None or self._inflate.eof:
            raise Garbled("bytes after the end of what is compressed")
        try:
            found = self._inflate.decompress(chunk, _CHUNK)
        except zlib.error as error:
            raise Garbled(f"it cannot be decompressed: {error}") from None
        self._full = len(found) == _CHUNK
        return found

    def _look(self) -> None:
        """Serials begin with 1; none gets so high that it looks like the beginning of a zlib stream, or of TLS."""
        first = int.from_bytes(self._buffer[:2], "big")
        if first == _TLS:
            raise Garbled("it speaks TLS; leave ssl out of the agent's sink")
        if first >> 8 == 0x78 and first % 31 == 0:
            self._inflate, self._deflate = zlib.decompressobj(), zlib.compressobj()
            compressed = bytes(self._buffer)
            self._buffer.clear()
            self._buffer += self._inflated(compressed)
