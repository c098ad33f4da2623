"""A slice of a topic in a file: a record a line, its bytes exactly as they were."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from millrace.errors import FileUnusable


def to_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line: text where bytes are UTF-8, else base64 under the name with `_base64`."""
    told = {name: record[name] for name in ("topic", "partition", "offset", "timestamp")}
    headers = [[name, *_text(content)] for name, content in record.get("headers") or ()]
    return orjson.dumps(
        {**told, **_field("key", record["key"]), **_field("value", record["value"]), "headers": headers},
        option=orjson.OPT_APPEND_NEWLINE,
    )


def read(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; those that `kafka consume --json` printed as well."""
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = orjson.loads(line)
            yield {
                **{name: told[name] for name in ("topic", "partition", "offset", "timestamp") if name in told},
                "key": _content(told, "key"),
                "value": _content(told, "value"),
                "headers": [{"key": name, "value": value} for name, value in _headers(told.get("headers"))],
            }
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            hint = "millrace record writes such files"
            raise FileUnusable(f"{path}:{number} is no record", why=str(error), hint=hint) from None


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    text, *encoded = _text(content)
    return {f"{name}_base64": encoded[0]} if encoded else {name: text}


def _text(content: bytes | None) -> list[str | None]:
    if content is None:
        return [None]
    try:
        return [content.decode("utf-8")]
    except UnicodeDecodeError:
        return [None, b64encode(content).decode("ascii")]


def _content(told: Mapping[str, Any], name: str) -> bytes | None:
    encoded, text = told.get(f"{name}_base64"), told.get(name)
    if encoded is not None:
        return b64decode(encoded, validate=True)
    return None if text is None else str(text).encode()


def _headers(told: Any) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(told, dict):  # as `kafka consume --json` has them
        told = [[name, one] for name, value in told.items() for one in (value if isinstance(value, list) else [value])]
    for name, text, *encoded in told or ():
        yield name, b64decode(encoded[0]) if encoded else None if text is None else str(text).encode()
