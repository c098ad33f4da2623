"""Topics, partitions, offsets and messages as programs of the era name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Decoder = Callable[[bytes | None], Any]
Place = tuple[str, int]
"""A topic and a partition."""


def utf8_decoder(s: bytes | None) -> str | None:
    """Text of its UTF-8; None stays None."""
    return None if s is None else s.decode("utf-8")


@dataclass(frozen=True)
class TopicAndPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def _topic(self) -> str:  # programs of the era read these, for want of others
        return self.topic

    @property
    def _partition(self) -> int:
        return self.partition


@dataclass(frozen=True)
class OffsetRange:
    """Records of one partition, from an offset to the one before another."""

    topic: str
    partition: int
    fromOffset: int  # noqa: N815 - as it was
    untilOffset: int  # noqa: N815

    def topicAndPartition(self) -> TopicAndPartition:  # noqa: N802
        """Where it is."""
        return TopicAndPartition(self.topic, self.partition)

    def count(self) -> int:
        """How many offsets it has."""
        return self.untilOffset - self.fromOffset

    def __str__(self) -> str:
        place = f"topic: {self.topic}, partition: {self.partition}"
        return f"OffsetRange({place}, range: [{self.fromOffset} -> {self.untilOffset}])"


@dataclass(frozen=True)
class Broker:
    """The address of a broker."""

    host: str
    port: int


class KafkaMessageAndMetadata:
    """A message and where it lay; key and message are decoded when they are asked for."""

    __slots__ = ("_decoders", "_raw", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        message: bytes | None,
        decoders: tuple[Decoder, Decoder] = (utf8_decoder, utf8_decoder),
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._raw = key, message
        self._decoders = decoders

    @property
    def key(self) -> Any:
        """The decoded key."""
        return self._decoders[0](self._raw[0])

    @property
    def message(self) -> Any:
        """The decoded message."""
        return self._decoders[1](self._raw[1])

    def __repr__(self) -> str:
        return f"KafkaMessageAndMetadata({self.topic!r}, {self.partition}, {self.offset})"
