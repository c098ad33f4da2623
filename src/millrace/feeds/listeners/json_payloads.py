"""JSON payloads cut into records, without changing a byte of what was sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from millrace.clients.kafka.record import Record

# Only where an element ends is asked of it, so a number need not be made of its digits.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_BETWEEN = " \t\n\r,"


class Malformed(ValueError):
    """A payload is not what it should be; `where` says in which line or element of it, counted from 1."""

    def __init__(self, message: str, where: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.where = where or {}


def from_json(body: bytes, key: str | None = None) -> list[Record]:
    """One record for an object, several for an array of objects."""
    body = body.strip()
    if body.startswith(b"["):
        return _records(elements(body), "element", key)
    return [_record(body, {}, key)]


def from_ndjson(body: bytes, key: str | None = None) -> list[Record]:
    """One record a line; empty lines are none."""
    return _records(body.split(b"\n"), "line", key)


def elements(array: bytes) -> list[bytes]:
    """The elements of a JSON array, each as its own bytes: parsing and writing them anew would round numbers."""
    if not isinstance(_parsed(array, {}), list):
        raise Malformed("not a JSON array")
    try:
        return [part.encode() for part in _parts(array.decode())]
    except RecursionError:
        raise Malformed("nested too deeply") from None


def _parts(text: str) -> Iterator[str]:
    # The text is known to be a JSON array, so what stands between two elements is a comma and space.
    place = text.index("[") + 1
    while True:
        while text[place] in _BETWEEN:
            place += 1
        if text[place] == "]":
            return
        _, end = _DECODER.raw_decode(text, place)
        yield text[place:end]
        place = end


def _records(parts: Iterable[bytes], unit: str, key: str | None) -> list[Record]:
    numbered = ((number, part.strip()) for number, part in enumerate(parts, 1))
    return [_record(part, {unit: number}, key) for number, part in numbered if part]


def _record(value: bytes, where: dict[str, int], key: str | None) -> Record:
    event = _parsed(value, where)
    if not isinstance(event, dict):
        raise Malformed("not a JSON object", where)
    return Record(value, None if key is None else _key(value, event, key, where))


def _parsed(value: bytes, where: dict[str, int]) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error}", where) from None


def _key(value: bytes, event: dict[str, Any], field: str, where: dict[str, int]) -> bytes:
    found = event.get(field)
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, bool):
        return b"true" if found else b"false"
    if isinstance(found, int | float):
        # The number as it was written: two long ones may be different and yet be the same float.
        return str(_DECODER.decode(value.decode())[field]).encode()
    what = f"the field {field!r} is neither text nor a number" if found is not None else f"no field {field!r}"
    raise Malformed(f"{what}, and it is to be the key", where)
