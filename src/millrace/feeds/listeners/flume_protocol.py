"""Avro's remote calls as the agents of Flume make them: what a message says, and what is answered.

Messages of Avro's Netty transport, read from a connection: plain or compressed, bounded in size and in time.

A message is a serial, a number of buffers, and each buffer after its length, in four bytes each. With Flume's
`compression-type = deflate` both directions are one zlib stream each.
"""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from millrace.clients.kafka.record import Record
from millrace.feeds.listeners.backpressure import ByteBudget
from millrace.units import format_bytes

MOST_ELEMENTS = 500_000
"""Events and headers in one call: each may take two bytes on the wire, and hundreds in memory."""
_MOST_KNOWN = 100
"""Protocols of agents that are remembered; there is one for each version of Flume."""
_LONGEST = 10
"""Bytes of a number."""

PROTOCOL = json.dumps(
    {
        "protocol": "AvroSourceProtocol",
        "namespace": "org.apache.flume.source.avro",
        "types": [
            {"type": "enum", "name": "Status", "symbols": ["OK", "FAILED", "UNKNOWN"]},
            {
                "type": "record",
                "name": "AvroFlumeEvent",
                "fields": [
                    {"name": "headers", "type": {"type": "map", "values": "string"}},
                    {"name": "body", "type": "bytes"},
                ],
            },
        ],
        "messages": {
            "append": {"request": [{"name": "event", "type": "AvroFlumeEvent"}], "response": "Status"},
            "appendBatch": {
                "request": [{"name": "events", "type": {"type": "array", "items": "AvroFlumeEvent"}}],
                "response": "Status",
            },
        },
    },
    separators=(",", ":"),
).encode()
"""Flume's AvroSourceProtocol, which has been the same since its first release."""
_HASH = md5(PROTOCOL, usedforsecurity=False).digest()
_EVENT = [("headers", {"map": "string"}), ("body", "bytes")]
_TAKES: dict[str, Any] = {"append": _EVENT, "appendBatch": {"array": _EVENT}}
_BOTH, _CLIENT, _NONE = b"\x00", b"\x02", b"\x04"
_NOTHING, _SOMETHING, _TRUE = b"\x00", b"\x02", b"\x01"
_OK, _FAILED = b"\x00", b"\x02"


class MalformedFlumeData(ValueError):
    """Bytes that are no call of Flume's protocol."""


@dataclass(frozen=True)
class Request:
    """What an agent asks, after its greeting."""

    greeting: bytes = b""
    """What it is answered before anything else: Avro's handshake, in the first message of a connection."""
    call: str = ""
    """Empty when it has only greeted, or was not understood and will say again who it is."""
    records: tuple[Record, ...] = ()
    unknown: bool = False
    """Whether there is no such call."""

    def answered(self, *, safe: bool = True) -> bytes:
        """The answer: OK, or FAILED, after which an agent keeps its events and sends them again."""
        if not self.call:
            return self.greeting
        if self.unknown:
            return self.greeting + _NOTHING + _TRUE + _NOTHING + _bytes(f"there is no call {self.call!r}".encode())
        return self.greeting + _NOTHING + _NOTHING + (_OK if safe else _FAILED)


class Conversation:
    """One connection of an agent; `known` are the protocols (by MD5) that were seen to be Flume's."""

    def __init__(self, key: str | None = None, known: set[bytes] | None = None) -> None:
        self._key = key
        self._known = known if known is not None else set()
        self._greeted = False

    def heard(self, message: bytes) -> Request:
        """What a message asks; raises Garbled."""
        reading = AvroReader(message)
        greeting = b"" if self._greeted else self._greet(reading)
        if not self._greeted:
            return Request(greeting)
        reading.pairs()  # what Avro calls metadata of the call
        call = reading.text()
        if call and call not in _TAKES:
            return Request(greeting, call[:100], unknown=True)
        records = self._records(call, reading) if call else ()
        reading.end()
        return Request(greeting, call, records)

    def _greet(self, reading: AvroReader) -> bytes:
        theirs = reading.take(16)
        protocol = reading.perhaps()
        ours = reading.take(16)
        if reading.union():
            reading.pairs()
        if protocol is not None and theirs not in self._known:
            require_flume(protocol)
            if len(self._known) < _MOST_KNOWN and md5(protocol, usedforsecurity=False).digest() == theirs:
                self._known.add(theirs)
        self._greeted = protocol is not None or theirs in self._known
        if self._greeted and ours == _HASH:
            return _BOTH + 3 * _NOTHING
        match = _CLIENT if self._greeted else _NONE
        return match + _SOMETHING + _bytes(PROTOCOL) + _SOMETHING + _HASH + _NOTHING

    def _records(self, call: str, reading: AvroReader) -> tuple[Record, ...]:
        if call == "append":
            return (self._event(reading),)
        found: list[Record] = []
        while count := reading.block():
            found.extend(self._event(reading) for _ in range(count))
        return tuple(found)

    def _event(self, reading: AvroReader) -> Record:
        headers = reading.pairs()
        key = next((value for name, value in headers if name == self._key), None)
        return Record(reading.blob(), key, headers=headers)


class AvroReader:
    """Avro's binary encoding, read from its beginning; whatever does not fit raises Garbled."""

    __slots__ = ("_at", "_data", "_elements")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._elements = 0

    def number(self) -> int:
        """A long: seven bits a byte, the lowest first, the sign in the lowest bit."""
        found = shift = 0
        for byte in self._data[self._at : self._at + _LONGEST]:
            self._at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
            shift += 7
        raise MalformedFlumeData("a number that does not end")

    def take(self, length: int) -> bytes:
        """So many bytes."""
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise MalformedFlumeData(f"{length:,} bytes where {len(self._data) - self._at:,} are left")
        found = self._data[self._at : end]
        self._at = end
        return found

    def blob(self) -> bytes:
        """Bytes, or the bytes of a text, after their length."""
        return self.take(self.number())

    def text(self) -> str:
        """A text."""
        try:
            return self.blob().decode()
        except UnicodeDecodeError:
            raise MalformedFlumeData("a text that is not UTF-8") from None

    def union(self) -> bool:
        """Whether there is something, where there may be nothing."""
        which = self.number()
        if which not in (0, 1):
            raise MalformedFlumeData(f"{which} where there are two possibilities")
        return which == 1

    def perhaps(self) -> bytes | None:
        """Bytes, or nothing."""
        return self.blob() if self.union() else None

    def block(self) -> int:
        """How many elements come next in an array or a map; 0 at its end."""
        count = self.number()
        if count < 0:
            self.number()  # how many bytes they take
            count = -count
        self._elements += count
        if count > len(self._data) - self._at or self._elements > MOST_ELEMENTS:
            raise MalformedFlumeData(f"{count:,} more elements in {len(self._data) - self._at:,} bytes")
        return count

    def pairs(self) -> tuple[tuple[str, bytes], ...]:
        """A map of texts (or bytes, which look the same)."""
        found: list[tuple[str, bytes]] = []
        while count := self.block():
            found.extend((self.text(), self.blob()) for _ in range(count))
        return tuple(found)

    def end(self) -> None:
        """Nothing is left."""
        if self._at != len(self._data):
            raise MalformedFlumeData(f"{len(self._data) - self._at:,} bytes after the end of the call")


def require_flume(protocol: bytes) -> None:
    """Raise Garbled unless a protocol's calls carry the events that we read."""
    try:
        described = json.loads(protocol)
        named = {one["name"]: one for one in described["types"]}
        calls = {name: [one["type"] for one in told["request"]] for name, told in described["messages"].items()}
        theirs = [name for name in _TAKES if name in calls]
        sound = bool(theirs) and all(len(calls[name]) == 1 for name in theirs)
        sound = sound and all(_fits(calls[name][0], _TAKES[name], named) for name in theirs)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise MalformedFlumeData("it speaks another protocol than Flume's AvroSourceProtocol")


def _fits(kind: Any, wanted: Any, named: Mapping[str, Any]) -> bool:
    """Whether a type is what is wanted: looked at as deeply as that goes, however deep the type is."""
    kind = named.get(kind.rpartition(".")[2], kind) if isinstance(kind, str) else kind
    name = kind if isinstance(kind, str) else kind["type"]  # {"type": "string", "avro.java.string": "String"}
    if isinstance(wanted, str):
        return bool(name == wanted)
    if isinstance(wanted, dict):
        ((holder, inner),) = wanted.items()
        return name == holder and _fits(kind["values" if holder == "map" else "items"], inner, named)
    fields = kind["fields"] if name == "record" else []
    pairs = zip(fields, wanted, strict=False)
    return len(fields) == len(wanted) and all(
        field["name"] == name and _fits(field["type"], inner, named) for field, (name, inner) in pairs
    )


def _bytes(content: bytes) -> bytes:
    """Bytes after their length, as `Reading.blob` reads them."""
    left, made = len(content) << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*made, left)) + content


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
class HeldRequest:
    """What one message holds of the budget."""

    budget: ByteBudget
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


class FlumeConnection:
    """What a connection brings, and the form of what is sent back."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self._inflate: zlib._Decompress | None = None
        self._deflate: zlib._Compress | None = None
        self._begun = False
        self._full = False
        """Whether there may be more in what was compressed than was taken out of it."""

    async def message(self, held: HeldRequest) -> tuple[int, bytes]:
        """The next message and its serial: waits for its first bytes as long as it takes, for the rest not."""
        await self._fill(2)
        try:
            async with asyncio.timeout(SLOW_SECONDS):
                return await self._message(held)
        except TimeoutError:
            raise MalformedFlumeData("a message that did not come to its end in time") from None

    def framed(self, serial: int, payload: bytes) -> bytes:
        """An answer as it goes over the wire."""
        frame = _HEAD.pack(serial, 1) + _LENGTH.pack(len(payload)) + payload
        if self._deflate is None:
            return frame
        return self._deflate.compress(frame) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def _message(self, held: HeldRequest) -> tuple[int, bytes]:
        serial, count = _HEAD.unpack(await self._exactly(_HEAD.size))
        if not 0 <= count <= MOST_BUFFERS:
            raise MalformedFlumeData("this is not Avro's transport")
        parts: list[bytes] = []
        size = 0
        for _ in range(count):
            (length,) = _LENGTH.unpack(await self._exactly(_LENGTH.size))
            size += _LENGTH.size + length
            if length < 0 or size > held.largest:
                raise MalformedFlumeData(f"a message of more than {format_bytes(held.largest)}")
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
            raise MalformedFlumeData("bytes after the end of what is compressed")
        try:
            found = self._inflate.decompress(chunk, _CHUNK)
        except zlib.error as error:
            raise MalformedFlumeData(f"it cannot be decompressed: {error}") from None
        self._full = len(found) == _CHUNK
        return found

    def _look(self) -> None:
        """Serials begin with 1; none gets so high that it looks like the beginning of a zlib stream, or of TLS."""
        first = int.from_bytes(self._buffer[:2], "big")
        if first == _TLS:
            raise MalformedFlumeData("it speaks TLS; leave ssl out of the agent's sink")
        if first >> 8 == 0x78 and first % 31 == 0:
            self._inflate, self._deflate = zlib.decompressobj(), zlib.compressobj()
            compressed = bytes(self._buffer)
            self._buffer.clear()
            self._buffer += self._inflated(compressed)
