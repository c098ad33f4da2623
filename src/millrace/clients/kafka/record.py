"""Records of Kafka: as a producer sends them, and as text and JSON show them.

- `Record` is what a producer sends.
- `message_fields` has the parts of a record that a consumer received.
- `text_or_none`, `to_base64` and `text_field` write its bytes where only text can be.
- `limited_batches` divides what is sent into requests and transactions.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from millrace.errors import MillraceError

if TYPE_CHECKING:
    from confluent_kafka import Message

T = TypeVar("T")


class Record(NamedTuple):
    """A record to send; None leaves a part to Kafka (no key, the present time, any partition)."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


Done = Callable[[MillraceError | None], None]
"""Called once for several records sent together: with None when all are acknowledged, else with the error."""


def message_fields(message: Message) -> dict[str, Any]:
    """Return the parts of a received record by name; the timestamp is None if the record has none."""
    kind, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        "key": message.key(),
        "value": message.value(),
        "headers": message.headers() or [],
    }


def text_or_none(content: bytes | None) -> str | None:
    """Return bytes as text if they are UTF-8."""
    try:
        return None if content is None else content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def to_base64(content: bytes | None) -> str | None:
    """Return bytes as text that JSON can hold."""
    return None if content is None else b64encode(content).decode("ascii")


def from_base64(text: str | None) -> bytes | None:
    """Return the bytes of such a text."""
    return None if text is None else b64decode(text, validate=True)


def text_field(name: str, content: bytes | str | None) -> dict[str, str | None]:
    """Return bytes as a field of JSON: as text, or in base64 under NAME_base64 beside a null if they are not UTF-8."""
    if content is None or isinstance(content, str):
        return {name: content}
    text = text_or_none(content)
    return {name: text} if text is not None else {name: None, f"{name}_base64": to_base64(content)}


def limited_batches(
    items: Iterable[T], most: int, size_of: Callable[[T], int] = lambda _: 0, most_bytes: float = inf
) -> Iterator[list[T]]:
    """Yield items in order, at most `most` items and `most_bytes` bytes in a batch; a larger item comes alone."""
    batch: list[T] = []
    batch_bytes = 0
    for item in items:
        size = size_of(item)
        if batch and (len(batch) == most or batch_bytes + size > most_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += size
    if batch:
        yield batch
