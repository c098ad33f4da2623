"""A record as the page shows it: text where it is text, bounded, and marked where it is not all."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from millrace.telemetry.plain import LONGEST

COLUMNS = ("time", "partition", "offset", "key", "value", "cut", "binary", "headers", "skipped")


def shown(message: Message, skipped: int = 0) -> dict[str, Any]:
    """All of a record that fits on a page; bytes that are not UTF-8 stand as hex."""
    value, cut, binary = _text(message.value())
    key, _, _ = _text(message.key())
    kind, timestamp = message.timestamp()
    return {
        "time": timestamp if kind else None,
        "partition": message.partition(),
        "offset": message.offset(),
        "key": key,
        "value": value,
        "cut": cut,
        "binary": binary,
        "headers": _headers(message),
        "skipped": skipped,
    }


def _headers(message: Message) -> dict[str, str | None]:
    headers: list[tuple[str, bytes | None]] = message.headers() or []  # type: ignore[assignment]  # declared wider
    return {name: _text(content)[0] for name, content in headers[:50]}


def _text(content: bytes | str | None) -> tuple[str | None, bool, bool]:
    """Text, whether it was cut, and whether it stands for bytes that are no text."""
    if content is None:
        return None, False, False
    raw = content.encode("utf-8", "replace") if isinstance(content, str) else bytes(content)
    cut = len(raw) > LONGEST
    try:
        return _whole_characters(raw[:LONGEST], cut=cut), cut, False
    except UnicodeDecodeError:
        half = LONGEST // 3
        return raw[:half].hex(" "), len(raw) > half, True


def _whole_characters(raw: bytes, *, cut: bool) -> str:
    """Text, without the part of a character that a cut has left at its end."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if cut and error.start > len(raw) - 4 and error.reason == "unexpected end of data":
            return raw[: error.start].decode("utf-8")
        raise
