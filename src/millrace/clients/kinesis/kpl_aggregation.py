"""Records of the Kinesis Producer Library, which packs many records of its users into one of Kinesis.

The form: four bytes of magic, a protobuf message, the MD5 of the message. The message has a table of partition keys
(field 1), one of hash keys (2), and the records (3): index of the key (1), index of the hash key (2), the data (3).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5

MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST = 16


def deaggregate(data: bytes) -> list[tuple[str, bytes]] | None:
    """The records inside, each with its partition key; None where it is a plain record (or only looks like one)."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + _DIGEST:
        return None
    message = data[len(MAGIC) : -_DIGEST]
    if md5(message, usedforsecurity=False).digest() != data[-_DIGEST:]:
        return None
    try:
        fields = list(_fields(message))
        keys = [bytes(value).decode("utf-8") for number, value in fields if number == 1 and isinstance(value, bytes)]
        records = [dict(_fields(value)) for number, value in fields if number == 3 and isinstance(value, bytes)]
        pairs = [(record.get(1, 0), record.get(3, b"")) for record in records]
        if not all(isinstance(index, int) and isinstance(data, bytes) for index, data in pairs):
            return None
        return [(keys[index], data) for index, data in pairs]  # type: ignore[index,misc]  # checked above
    except (IndexError, ValueError, TypeError):
        return None


def aggregate(records: list[tuple[str, bytes]]) -> bytes:
    """The other way, as the library does it: keys once each, then the records."""
    keys = list(dict.fromkeys(key for key, _ in records))
    message = b"".join(_field(1, key.encode()) for key in keys)
    message += b"".join(_field(3, b"\x08" + _varint(keys.index(key)) + _field(3, data)) for key, data in records)
    return MAGIC + message + md5(message, usedforsecurity=False).digest()


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message, numbered."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        size, at = _read_varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind] if kind in (1, 5) else -1, at)
        if size < 0 or at + size > len(message):
            raise ValueError("no such protobuf message")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*content, value))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content
