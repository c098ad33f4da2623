"""Split JSON payloads into records without changing a byte of them.

- `from_json` takes an object or an array of objects, `from_ndjson` an object a line.
- `elements` returns the elements of an array as their own bytes.
- `Malformed` names the line or element that cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from millrace.clients.kafka.record import Record

# It only finds the end of an element, so numbers stay text.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_SEPARATORS = " \t\n\r,"


class Malformed(ValueError):
    """A payload that cannot be read; `where` is the line or element, counted from 1."""

    def __init__(self, message: str, where: dict[str, int] | None = None) -> None:
        super().__init__(message)
        self.where = where or {}


def from_json(body: bytes, key: str | None = None) -> list[Record]:
    """Return one record for an object, several for an array of objects."""
    body = body.strip()
    if body.startswith(b"["):
        return _records(elements(body), "element", key)
    return [_record(body, {}, key)]


def from_ndjson(body: bytes, key: str | None = None) -> list[Record]:
    """Return a record for each line that is not empty."""
    return _records(body.split(b"\n"), "line", key)


def elements(array: bytes) -> list[bytes]:
    """Return the elements of a JSON array as their own bytes: writing parsed ones again would round numbers."""
    if not isinstance(_parsed(array, {}), list):
        raise Malformed("not a JSON array")
    try:
        return [part.encode() for part in _parts(array.decode())]
    except RecursionError:
        raise Malformed("nested too deeply") from None


def _parts(text: str) -> Iterator[str]:
    # The text is a valid JSON array, so only commas and white space separate elements.
    start = text.index("[") + 1
    while True:
        while text[start] in _SEPARATORS:
            start += 1
        if text[start] == "]":
            return
        _, end = _DECODER.raw_decode(text, start)
        yield text[start:end]
        start = end


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
    content = event.get(field)
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bool):
        return b"true" if content else b"false"
    if isinstance(content, int | float):
        # The number as it was written: two different long ones may be the same float.
        return str(_DECODER.decode(value.decode())[field]).encode()
    problem = f"the field {field!r} is neither text nor a number" if content is not None else f"no field {field!r}"
    raise Malformed(f"{problem}, and it is to be the key", where)
