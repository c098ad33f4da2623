"""A record as text: its value as it is, its value as JSON, or all of it as one JSON object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from confluent_kafka import Message

from millrace.clients.kafka.record import message_fields, text_field


def value_bytes(message: Message) -> bytes:
    """The value's bytes, nothing for a null."""
    return bytes(message.value() or b"")


def key_and_value(message: Message) -> bytes:
    """Key, tab, value."""
    return bytes(message.key() or b"") + b"\t" + value_bytes(message)


def json_value(message: Message) -> bytes:
    """The value as JSON in one line, its numbers as they are; one that is not JSON becomes a JSON string."""
    content = b"null" if message.value() is None else value_bytes(message)
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        return orjson.dumps(content.decode("utf-8", "replace"))
    return content.replace(b"\r", b" ").replace(b"\n", b" ")  # within strings they are always escaped


def record_line(message: Message) -> bytes:
    """Everything: topic, partition, offset, timestamp, key, value, headers.

    Bytes that are not UTF-8 stand under `key_base64`, `value_base64` or the header's name with `_base64`, beside a
    null. A header that is there several times has a list.
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


SHOWN: dict[str, Callable[[Message], bytes]] = {
    "text": value_bytes,
    "keys": key_and_value,
    "json": json_value,
    "record": record_line,
}
