"""Records as lines of text: the value as it is, the value as JSON, or everything as one JSON object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from confluent_kafka import Message

from millrace.cli.output import CONTROL_CHARACTERS, without_controls
from millrace.clients.kafka.record import message_fields, text_field


def value_bytes(message: Message) -> bytes:
    """Return the value, which is empty for a null."""
    return bytes(message.value() or b"")


def key_and_value(message: Message) -> bytes:
    """Return key, tab, value."""
    return bytes(message.key() or b"") + b"\t" + value_bytes(message)


def json_value(message: Message) -> bytes:
    """Return the value as JSON in one line, with its numbers as written; a value that is no JSON becomes a string."""
    content = b"null" if message.value() is None else value_bytes(message)
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        return orjson.dumps(content.decode("utf-8", "replace"))
    return content.replace(b"\r", b" ").replace(b"\n", b" ")  # within strings they are always escaped


def record_line(message: Message) -> bytes:
    """Return topic, partition, offset, timestamp, key, value and headers as one JSON object.

    Bytes that are not UTF-8 are under `key_base64`, `value_base64` or the header's name with `_base64`, next to a
    null. A header that occurs several times has a list.
    """
    fields = message_fields(message)
    for name in ("key", "value"):
        fields |= text_field(name, fields[name])
    return orjson.dumps({**fields, "headers": _headers(fields["headers"])})


def _headers(headers: list[tuple[str, bytes | None]]) -> dict[str, Any]:
    every: dict[str, list[str | None]] = {}
    for header, content in headers:
        for name, text in text_field(header, content).items():
            every.setdefault(name, []).append(text)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in every.items()}


RECORD_FORMATS: dict[str, Callable[[Message], bytes]] = {
    "text": value_bytes,
    "keys": key_and_value,
    "json": json_value,
    "record": record_line,
}
_JSON_FORMATS = {"json", "record"}


def for_terminal(name: str) -> Callable[[Message], bytes]:
    """Return a format whose lines cannot control the terminal; JSON stays JSON."""
    to_line = RECORD_FORMATS[name]
    escape = _escaped_json if name in _JSON_FORMATS else without_controls
    return lambda message: escape(to_line(message).decode("utf-8", "replace")).encode()


def _escaped_json(text: str) -> str:
    """Return a JSON text with its control characters, which are within strings, as JSON escapes."""
    return CONTROL_CHARACTERS.sub(lambda character: f"\\u{ord(character[0]):04x}", text)
