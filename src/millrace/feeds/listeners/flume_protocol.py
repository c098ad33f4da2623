"""Avro's remote calls as the agents of Flume make them: what a message says, and what is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from millrace.clients.records import Record

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


class Garbled(ValueError):
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
        reading = Reading(message)
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

    def _greet(self, reading: Reading) -> bytes:
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

    def _records(self, call: str, reading: Reading) -> tuple[Record, ...]:
        if call == "append":
            return (self._event(reading),)
        found: list[Record] = []
        while count := reading.block():
            found.extend(self._event(reading) for _ in range(count))
        return tuple(found)

    def _event(self, reading: Reading) -> Record:
        headers = reading.pairs()
        key = next((value for name, value in headers if name == self._key), None)
        return Record(reading.blob(), key, headers=headers)


class Reading:
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
        raise Garbled("a number that does not end")

    def take(self, length: int) -> bytes:
        """So many bytes."""
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise Garbled(f"{length:,} bytes where {len(self._data) - self._at:,} are left")
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
            raise Garbled("a text that is not UTF-8") from None

    def union(self) -> bool:
        """Whether there is something, where there may be nothing."""
        which = self.number()
        if which not in (0, 1):
            raise Garbled(f"{which} where there are two possibilities")
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
            raise Garbled(f"{count:,} more elements in {len(self._data) - self._at:,} bytes")
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
            raise Garbled(f"{len(self._data) - self._at:,} bytes after the end of the call")


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
        raise Garbled("it speaks another protocol than Flume's AvroSourceProtocol")


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
