"""A record as text: its value as it is, its value as JSON, or all of it as one JSON object."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import orjson
from confluent_kafka import Message


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
    kind, timestamp = message.timestamp()
    shown: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        **_text("key", message.key()),
        **_text("value", message.value()),
        "headers": _headers(message),
    }
    return orjson.dumps(shown)


def _headers(message: Message) -> dict[str, Any]:
    every: dict[str, list[str | None]] = {}
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]  # declared wider
    for header, content in headers:
        for name, text in _text(header, content).items():
            every.setdefault(name, []).append(text)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in every.items()}


def _text(name: str, content: bytes | str | None) -> dict[str, str | None]:
    if content is None or isinstance(content, str):
        return {name: content}
    try:
        return {name: content.decode("utf-8")}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": b64encode(content).decode("ascii")}


SHOWN: dict[str, Callable[[Message], bytes]] = {
    "text": value_bytes,
    "keys": key_and_value,
    "json": json_value,
    "record": record_line,
}
