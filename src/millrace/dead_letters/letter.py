"""A dead letter: a record that could not be used, with its bytes, its place and the reason; as headers and as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from millrace.clients.kafka.record import from_base64, text_or_none, to_base64

DEAD_TOPIC_SUFFIX = ".dead"
"""The dead letters of topic `t` go to topic `t.dead`."""
MAX_REASON_CHARS = 2000
"""Characters of a reason that are kept: it may quote the record, and the letter must still fit into a topic."""

REDRIVEN_HEADER = "millrace.redriven"
"""The header of a record that was sent again: a JSON object with its origin, the reason and the number of attempts."""

Headers = tuple[tuple[str, bytes | None], ...]

_MARK = "millrace."
_ORDER = ("topic", "partition", "offset", "timestamp", "reason", "pipeline", "source")
_MARKS = [(name, _MARK + name) for name in _ORDER]
_NUMBERS = {"partition", "offset", "timestamp"}
_ORIGIN = ("file", "topic", "partition", "offset", "timestamp")
_REDRIVEN_FILE = re.compile(r"-redriven-(\d{1,9})-[0-9a-f]{16}(?=\.|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record as it came, where it came from, and why it could not be used.

    One from Kafka has `topic`, `partition` and `offset`; one from a file has `file`.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    """When the record was made, in milliseconds since 1970."""
    file: str | None = None
    reason: str
    pipeline: str = ""
    source: str = ""

    @property
    def origin(self) -> str:
        """Where the record was, for people."""
        if self.topic is None:
            return self.file or self.source
        return f"{self.topic}[{self.partition}]@{self.offset}"

    @property
    def attempts(self) -> int:
        """How often the record was tried: once, and once more for each time that it was sent again."""
        if self.topic is None:
            match = _REDRIVEN_FILE.search((self.file or "").rpartition("/")[2])
            return int(match[1]) if match else 1
        header = next((content for name, content in reversed(self.headers) if name == REDRIVEN_HEADER), None)
        try:
            return max(1, int(orjson.loads(header or b"")["attempt"]))
        except (ValueError, TypeError, KeyError):
            return 1


def redriven_file_name(name: str, attempt: int, digest: str) -> str:
    """The name of a file with lines of another that are tried again; `attempts` finds the number in it."""
    stem, dot, endings = _REDRIVEN_FILE.sub("", name).partition(".")
    return f"{stem}-redriven-{attempt}-{digest}{dot}{endings}"


def dead_topic(topic: str) -> str:
    """The topic for the dead letters of a topic."""
    return topic + DEAD_TOPIC_SUFFIX


def to_headers(letter: DeadLetter) -> list[tuple[str, bytes | None]]:
    """The headers of the record in the dead topic: those of the original, then ours, always in the same order."""
    ours = [(mark, getattr(letter, name)) for name, mark in _MARKS]
    return [*letter.headers, *((mark, _encoded(value)) for mark, value in ours if value is not None)]


def from_record(
    value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> DeadLetter | None:
    """The letter in a record of a dead topic; None when the record is not one of ours.

    Ours are the last headers. Any before them belong to the original, even those that look like ours: a letter that
    was sent again and died again has them.
    """
    rest = list(headers or ())
    fields: dict[str, Any] = {}
    for name in reversed(_ORDER):
        if rest and rest[-1][0] == _MARK + name:
            fields[name] = _decoded(name, rest.pop()[1])
        elif name != "timestamp":
            return None
    if None in fields.values():
        return None
    return DeadLetter(value=value, key=key, headers=tuple(rest), **fields)


def to_json(letter: DeadLetter) -> dict[str, Any]:
    """The letter as an object: bytes in base64, and as `text` beside it when the value is UTF-8."""
    origin = {name: getattr(letter, name) for name in _ORIGIN}
    text = text_or_none(letter.value)
    return {
        **{name: value for name, value in origin.items() if value is not None},
        # Without the halves of characters that a reason may quote from broken input: JSON has none.
        "reason": letter.reason.encode("utf-8", "backslashreplace").decode("utf-8"),
        "pipeline": letter.pipeline,
        "source": letter.source,
        "key": to_base64(letter.key),
        "headers": [[name, to_base64(content)] for name, content in letter.headers],
        "value": to_base64(letter.value),
        **({} if text is None else {"text": text}),
    }


def to_json_line(letter: DeadLetter, **more: Any) -> bytes:
    """The same as one line, with what else is to be said about it."""
    return orjson.dumps(to_json(letter) | more, option=orjson.OPT_APPEND_NEWLINE)


def from_json_line(line: bytes) -> DeadLetter:
    """The letter in a line; raises ValueError when the line is not one."""
    try:
        fields = orjson.loads(line)
        return DeadLetter(
            value=from_base64(fields["value"]),
            key=from_base64(fields["key"]),
            headers=tuple((name, from_base64(content)) for name, content in fields["headers"]),
            **{name: fields[name] for name in ("reason", "pipeline", "source")},
            **{name: fields.get(name) for name in _ORIGIN},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no dead letter: {type(error).__name__}: {error}") from error


def _encoded(value: str | int) -> bytes:
    text = str(value)
    short = text if len(text) <= MAX_REASON_CHARS else text[: MAX_REASON_CHARS - 1] + "…"
    return short.encode("utf-8", "backslashreplace")


def _decoded(name: str, content: bytes | None) -> str | int | None:
    text = text_or_none(content)
    if name not in _NUMBERS or text is None:
        return text
    return int(text) if text.lstrip("-").isdecimal() else None
