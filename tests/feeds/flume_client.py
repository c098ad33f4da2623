"""A client of Flume's Avro RPC, made by hand; what it says is encoded by fastavro, not by ours."""

from __future__ import annotations

import io
import json
import socket
import struct
import zlib
from collections.abc import Mapping, Sequence
from hashlib import md5
from typing import Any

import fastavro

Event = tuple[Mapping[str, str], bytes]

EVENT: dict[str, Any] = {
    "type": "record",
    "name": "AvroFlumeEvent",
    "fields": [
        {"name": "headers", "type": {"type": "map", "values": {"type": "string", "avro.java.string": "String"}}},
        {"name": "body", "type": "bytes"},
    ],
}
PROTOCOL: dict[str, Any] = {
    "protocol": "AvroSourceProtocol",
    "namespace": "org.apache.flume.source.avro",
    "doc": "as a client of Java tells it",
    "types": [{"type": "enum", "name": "Status", "symbols": ["OK", "FAILED", "UNKNOWN"]}, EVENT],
    "messages": {
        "append": {"request": [{"name": "event", "type": "AvroFlumeEvent"}], "response": "Status"},
        "appendBatch": {
            "request": [{"name": "events", "type": {"type": "array", "items": "AvroFlumeEvent"}}],
            "response": "Status",
        },
    },
}
_MD5 = {"type": "fixed", "name": "MD5", "size": 16}
_META = ["null", {"type": "map", "values": "bytes"}]
HELLO = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HandshakeRequest",
        "fields": [
            {"name": "clientHash", "type": _MD5},
            {"name": "clientProtocol", "type": ["null", "string"]},
            {"name": "serverHash", "type": "MD5"},
            {"name": "meta", "type": _META},
        ],
    }
)
WELCOME = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HandshakeResponse",
        "fields": [
            {"name": "match", "type": {"type": "enum", "name": "Match", "symbols": ["BOTH", "CLIENT", "NONE"]}},
            {"name": "serverProtocol", "type": ["null", "string"]},
            {"name": "serverHash", "type": ["null", _MD5]},
            {"name": "meta", "type": _META},
        ],
    }
)
BATCH = fastavro.parse_schema({"type": "array", "items": EVENT})
ONE = fastavro.parse_schema(EVENT)
STATUS = fastavro.parse_schema(PROTOCOL["types"][0])


def encoded(schema: Any, value: Any) -> bytes:
    """A value in Avro's bytes."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def decoded(schema: Any, stream: io.BytesIO) -> Any:
    """The next value of Avro's bytes."""
    return fastavro.schemaless_reader(stream, schema, None)


def hello(protocol: Mapping[str, Any] | None = None, *, known: bytes = bytes(16), told: bool = True) -> bytes:
    """A handshake, with or without the text of the protocol."""
    text = json.dumps(protocol or PROTOCOL)
    said = {"clientHash": md5(text.encode(), usedforsecurity=False).digest(), "serverHash": known, "meta": None}
    return encoded(HELLO, {**said, "clientProtocol": text if told else None})


def call(name: str, content: bytes) -> bytes:
    """A call without metadata."""
    return encoded({"type": "map", "values": "bytes"}, {}) + encoded("string", name) + content


def batch(events: Sequence[Event]) -> bytes:
    """A call of appendBatch."""
    return call("appendBatch", encoded(BATCH, [{"headers": headers, "body": body} for headers, body in events]))


def one(event: Event) -> bytes:
    """A call of append."""
    return call("append", encoded(ONE, {"headers": event[0], "body": event[1]}))


def frame(serial: int, message: bytes, piece: int = 8192) -> bytes:
    """A message in Netty's framing, cut into buffers as Java's client cuts it."""
    parts = [message[at : at + piece] for at in range(0, len(message), piece)]
    return struct.pack(">ii", serial, len(parts)) + b"".join(struct.pack(">i", len(part)) + part for part in parts)


class Client:
    """An agent's Avro sink."""

    def __init__(self, port: int, *, compressed: bool = False, timeout: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._deflate = zlib.compressobj() if compressed else None
        self._inflate = zlib.decompressobj()
        self._buffer = b""
        self._serial = 0
        self._greeted = False
        self.server: bytes | None = None
        """The hash of the server's protocol, as it told."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: bytes) -> None:
        """A message, as it goes over the wire."""
        self._serial += 1
        self.raw(frame(self._serial, message))

    def raw(self, content: bytes) -> None:
        """Bytes, compressed if the connection is."""
        if self._deflate:
            content = self._deflate.compress(content) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self.socket.sendall(content)

    def ask(self, message: bytes) -> io.BytesIO:
        """Send a call (after the handshake, if there was none) and give the answer after the handshake."""
        if self._greeted:
            self.send(message)
            return io.BytesIO(self.answer())
        self.send(hello(told=False) + message)
        answer = io.BytesIO(self.answer())
        welcome = decoded(WELCOME, answer)
        if welcome["match"] == "NONE":
            self.send(hello() + message)
            answer = io.BytesIO(self.answer())
            welcome = decoded(WELCOME, answer)
        assert welcome["match"] in ("BOTH", "CLIENT")
        self.server = welcome["serverHash"]
        self._greeted = True
        return answer

    def append(self, events: Sequence[Event]) -> str:
        """The status of a batch."""
        return self.status(self.ask(batch(events)))

    def status(self, answer: io.BytesIO) -> str:
        """What an answer says."""
        assert decoded({"type": "map", "values": "bytes"}, answer) == {}
        assert decoded("boolean", answer) is False, answer.read()
        return str(decoded(STATUS, answer))

    def answer(self) -> bytes:
        """The next message from the server; EOFError when it has closed."""
        serial, count = struct.unpack(">ii", self._exactly(8))
        assert serial == self._serial
        return b"".join(self._exactly(*struct.unpack(">i", self._exactly(4))) for _ in range(count))

    def is_closed(self) -> bool:
        """Waits for the server to close the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, length: int) -> bytes:
        while len(self._buffer) < length:
            chunk = self.socket.recv(65536)
            if not chunk:
                raise EOFError
            self._buffer += self._inflate.decompress(chunk) if self._deflate else chunk
        found, self._buffer = self._buffer[:length], self._buffer[length:]
        return found
