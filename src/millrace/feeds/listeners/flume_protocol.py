"""The protocol of Flume's agents: Avro RPC over Avro's Netty transport.

- `FlumeConnection` reads messages, plain or compressed, bounded in size and in time.
- `Conversation` turns a message into a `Request` with its records, and builds the response.
- `AvroReader` reads Avro's binary encoding.

A message is a serial, a number of buffers, and each buffer after its length, in four bytes each. With Flume's
`compression-type = deflate` each direction is one zlib stream.
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

MAX_ELEMENTS = 500_000
"""Events and headers in one call: each may take two bytes on the wire, and hundreds in memory."""
_MAX_PROTOCOLS = 100
"""Protocols of agents that are remembered; there is one for each version of Flume."""
_MAX_NUMBER_BYTES = 10

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
_PROTOCOL_HASH = md5(PROTOCOL, usedforsecurity=False).digest()
_EVENT = [("headers", {"map": "string"}), ("body", "bytes")]
_CALLS: dict[str, Any] = {"append": _EVENT, "appendBatch": {"array": _EVENT}}
_BOTH, _CLIENT, _NONE = b"\x00", b"\x02", b"\x04"
_NOTHING, _SOMETHING, _TRUE = b"\x00", b"\x02", b"\x01"
_OK, _FAILED = b"\x00", b"\x02"


class MalformedFlumeData(ValueError):
    """Bytes that are no call of Flume's protocol."""


@dataclass(frozen=True)
class Request:
    """A call of an agent."""

    handshake: bytes = b""
    """The response to Avro's handshake, in the first message of a connection."""
    call: str = ""
    """Empty for a handshake without a call, or one that the agent has to repeat."""
    records: tuple[Record, ...] = ()
    unknown: bool = False
    """Whether there is no such call."""

    def response(self, *, safe: bool = True) -> bytes:
        """Return the response: OK, or FAILED, after which an agent keeps its events and sends them again."""
        if not self.call:
            return self.handshake
        if self.unknown:
            return self.handshake + _NOTHING + _TRUE + _NOTHING + _bytes(f"there is no call {self.call!r}".encode())
        return self.handshake + _NOTHING + _NOTHING + (_OK if safe else _FAILED)


class Conversation:
    """One connection of an agent; `protocols` are the protocols (by MD5) that were accepted as Flume's."""

    def __init__(self, key: str | None = None, protocols: set[bytes] | None = None) -> None:
        self._key = key
        self._protocols = protocols if protocols is not None else set()
        self._handshake_done = False

    def parse(self, message: bytes) -> Request:
        """Return the request in a message; raise MalformedFlumeData if it is none."""
        reader = AvroReader(message)
        handshake = b"" if self._handshake_done else self._handshake(reader)
        if not self._handshake_done:
            return Request(handshake)
        reader.pairs()  # what Avro calls metadata of the call
        call = reader.text()
        if call and call not in _CALLS:
            return Request(handshake, call[:100], unknown=True)
        records = self._records(call, reader) if call else ()
        reader.end()
        return Request(handshake, call, records)

    def _handshake(self, reader: AvroReader) -> bytes:
        client_hash = reader.take(16)
        protocol = reader.bytes_() if reader.union() else None
        server_hash = reader.take(16)
        if reader.union():
            reader.pairs()
        if protocol is not None and client_hash not in self._protocols:
            require_flume(protocol)
            if len(self._protocols) < _MAX_PROTOCOLS and md5(protocol, usedforsecurity=False).digest() == client_hash:
                self._protocols.add(client_hash)
        self._handshake_done = protocol is not None or client_hash in self._protocols
        if self._handshake_done and server_hash == _PROTOCOL_HASH:
            return _BOTH + 3 * _NOTHING
        match = _CLIENT if self._handshake_done else _NONE
        return match + _SOMETHING + _bytes(PROTOCOL) + _SOMETHING + _PROTOCOL_HASH + _NOTHING

    def _records(self, call: str, reader: AvroReader) -> tuple[Record, ...]:
        if call == "append":
            return (self._event(reader),)
        records: list[Record] = []
        while count := reader.block():
            records.extend(self._event(reader) for _ in range(count))
        return tuple(records)

    def _event(self, reader: AvroReader) -> Record:
        headers = reader.pairs()
        key = next((value for name, value in headers if name == self._key), None)
        return Record(reader.bytes_(), key, headers=headers)


class AvroReader:
    """Reads Avro's binary encoding; raises MalformedFlumeData for anything else."""

    __slots__ = ("_at", "_data", "_elements")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._elements = 0

    def number(self) -> int:
        """Read a long: seven bits a byte, the lowest first, the sign in the lowest bit."""
        number = shift = 0
        for byte in self._data[self._at : self._at + _MAX_NUMBER_BYTES]:
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise MalformedFlumeData("a number that does not end")

    def take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise MalformedFlumeData(f"{length:,} bytes where {len(self._data) - self._at:,} are left")
        content = self._data[self._at : end]
        self._at = end
        return content

    def bytes_(self) -> bytes:
        """Read bytes, or the bytes of a text, after their length."""
        return self.take(self.number())

    def text(self) -> str:
        try:
            return self.bytes_().decode()
        except UnicodeDecodeError:
            raise MalformedFlumeData("a text that is not UTF-8") from None

    def union(self) -> bool:
        """Read whether an optional value follows."""
        branch = self.number()
        if branch not in (0, 1):
            raise MalformedFlumeData(f"{branch} where there are two possibilities")
        return branch == 1

    def block(self) -> int:
        """Read the number of elements in the next block of an array or a map; 0 at its end."""
        count = self.number()
        if count < 0:
            self.number()  # how many bytes they take
            count = -count
        self._elements += count
        if count > len(self._data) - self._at or self._elements > MAX_ELEMENTS:
            raise MalformedFlumeData(f"{count:,} more elements in {len(self._data) - self._at:,} bytes")
        return count

    def pairs(self) -> tuple[tuple[str, bytes], ...]:
        """Read a map of texts (or bytes, which are encoded in the same way)."""
        pairs: list[tuple[str, bytes]] = []
        while count := self.block():
            pairs.extend((self.text(), self.bytes_()) for _ in range(count))
        return tuple(pairs)

    def end(self) -> None:
        """Raise MalformedFlumeData if bytes are left."""
        if self._at != len(self._data):
            raise MalformedFlumeData(f"{len(self._data) - self._at:,} bytes after the end of the call")


def require_flume(protocol: bytes) -> None:
    """Raise MalformedFlumeData unless a protocol has the calls and the events of Flume's."""
    try:
        description = json.loads(protocol)
        types = {named["name"]: named for named in description["types"]}
        calls = {name: [arg["type"] for arg in call["request"]] for name, call in description["messages"].items()}
        common = [name for name in _CALLS if name in calls]
        valid = bool(common) and all(len(calls[name]) == 1 for name in common)
        valid = valid and all(_fits(calls[name][0], _CALLS[name], types) for name in common)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise MalformedFlumeData("it speaks another protocol than Flume's AvroSourceProtocol")


def _fits(schema: Any, expected: Any, types: Mapping[str, Any]) -> bool:
    """Return whether a type is the expected one, to the depth of the expected one."""
    schema = types.get(schema.rpartition(".")[2], schema) if isinstance(schema, str) else schema
    name = schema if isinstance(schema, str) else schema["type"]  # {"type": "string", "avro.java.string": "String"}
    if isinstance(expected, str):
        return bool(name == expected)
    if isinstance(expected, dict):
        ((container, inner),) = expected.items()
        return name == container and _fits(schema["values" if container == "map" else "items"], inner, types)
    fields = schema["fields"] if name == "record" else []
    pairs = zip(fields, expected, strict=False)
    return len(fields) == len(expected) and all(
        field["name"] == name and _fits(field["type"], inner, types) for field, (name, inner) in pairs
    )


def _bytes(content: bytes) -> bytes:
    """Return bytes after their length, as `AvroReader.bytes_` reads them."""
    length, encoded = len(content) << 1, bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*encoded, length)) + content


MAX_BUFFERS = 250_000
MESSAGE_TIMEOUT_S = 60.0
"""The connection is closed when a message, or sending a response, takes longer."""
UNBUDGETED_BYTES = 65_536
"""Bytes of a message that every connection may hold; longer ones share a budget."""
_CHUNK_BYTES = 65_536
_TLS = 0x1603
_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


@dataclass
class HeldRequest:
    """The share of the budget that one message holds."""

    budget: ByteBudget
    max_bytes: int
    held: int = 0

    async def reserve(self, size: int) -> None:
        """Wait for room for a message of this size.

        The maximum is reserved at once, so that no message waits while it holds a part of the budget.
        """
        if size > UNBUDGETED_BYTES and not self.held:
            await self.budget.take(self.max_bytes)
            self.held = self.max_bytes

    def shrink(self, size: int) -> None:
        """Release what the complete message does not need."""
        if self.held:
            self.budget.give(self.held - size)
            self.held = size

    def release(self) -> None:
        self.budget.give(self.held)
        self.held = 0


class FlumeConnection:
    """Reads the messages of a connection, and frames the responses in the same form."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._buffer = bytearray()
        self._inflate: zlib._Decompress | None = None
        self._deflate: zlib._Compress | None = None
        self._detected = False
        self._more_to_inflate = False

    async def message(self, held: HeldRequest) -> tuple[int, bytes]:
        """Return the next message and its serial; only the wait for its first bytes has no time limit."""
        await self._fill(2)
        try:
            async with asyncio.timeout(MESSAGE_TIMEOUT_S):
                return await self._message(held)
        except TimeoutError:
            raise MalformedFlumeData("a message that did not come to its end in time") from None

    def framed(self, serial: int, payload: bytes) -> bytes:
        """Return a response as it is sent."""
        frame = _HEAD.pack(serial, 1) + _LENGTH.pack(len(payload)) + payload
        if self._deflate is None:
            return frame
        return self._deflate.compress(frame) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def _message(self, held: HeldRequest) -> tuple[int, bytes]:
        serial, count = _HEAD.unpack(await self._exactly(_HEAD.size))
        if not 0 <= count <= MAX_BUFFERS:
            raise MalformedFlumeData("this is not Avro's transport")
        parts: list[bytes] = []
        size = 0
        for _ in range(count):
            (length,) = _LENGTH.unpack(await self._exactly(_LENGTH.size))
            size += _LENGTH.size + length
            if length < 0 or size > held.max_bytes:
                raise MalformedFlumeData(f"a message of more than {format_bytes(held.max_bytes)}")
            await held.reserve(size)
            parts.append(await self._exactly(length))
        held.shrink(size)
        return serial, b"".join(parts)

    async def _exactly(self, length: int) -> bytes:
        await self._fill(length)
        content = bytes(self._buffer[:length])
        del self._buffer[:length]
        return content

    async def _fill(self, length: int) -> None:
        """Read until the buffer has `length` bytes; raise IncompleteReadError at the end of the connection."""
        while len(self._buffer) < length:
            self._buffer += await self._read_chunk()
            if not self._detected and len(self._buffer) >= 2:
                self._detected = True
                self._detect_compression()

    async def _read_chunk(self) -> bytes:
        if self._inflate and self._more_to_inflate and not self._inflate.eof:
            return self._inflated(self._inflate.unconsumed_tail)
        chunk = await self._reader.read(_CHUNK_BYTES)
        if not chunk:
            raise asyncio.IncompleteReadError(bytes(self._buffer[:_CHUNK_BYTES]), None)
        return self._inflated(chunk) if self._inflate else chunk

    def _inflated(self, chunk: bytes) -> bytes:
        if self._inflate is None or self._inflate.eof:
            raise MalformedFlumeData("bytes after the end of what is compressed")
        try:
            content = self._inflate.decompress(chunk, _CHUNK_BYTES)
        except zlib.error as error:
            raise MalformedFlumeData(f"it cannot be decompressed: {error}") from None
        self._more_to_inflate = len(content) == _CHUNK_BYTES
        return content

    def _detect_compression(self) -> None:
        """Start decompression if this is a zlib stream; a serial never gets high enough to look like one, or TLS."""
        first = int.from_bytes(self._buffer[:2], "big")
        if first == _TLS:
            raise MalformedFlumeData("it speaks TLS; leave ssl out of the agent's sink")
        if first >> 8 == 0x78 and first % 31 == 0:
            self._inflate, self._deflate = zlib.decompressobj(), zlib.compressobj()
            compressed = bytes(self._buffer)
            self._buffer.clear()
            self._buffer += self._inflated(compressed)
