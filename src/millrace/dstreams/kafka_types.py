"""Topics, partitions, offsets and messages with the classes of PySpark 2.4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Decoder = Callable[[bytes | None], Any]


def utf8_decoder(s: bytes | None) -> str | None:
    """Decode UTF-8; None stays None."""
    return None if s is None else s.decode("utf-8")


@dataclass(frozen=True)
class TopicAndPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    @property
    def _topic(self) -> str:  # programs for PySpark 2.4 read these, which had no others
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
        return TopicAndPartition(self.topic, self.partition)

    def count(self) -> int:
        return self.untilOffset - self.fromOffset

    def __str__(self) -> str:
        partition = f"topic: {self.topic}, partition: {self.partition}"
        return f"OffsetRange({partition}, range: [{self.fromOffset} -> {self.untilOffset}])"


@dataclass(frozen=True)
class Broker:
    """The address of a broker."""

    host: str
    port: int


class KafkaMessageAndMetadata:
    """A message and its partition and offset; key and message are decoded on access."""

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
        self.topic, self.partition, self.offset = topic, partition, offset
        self._raw, self._decoders = (key, message), decoders

    @property
    def key(self) -> Any:
        return self._decoders[0](self._raw[0])

    @property
    def message(self) -> Any:
        return self._decoders[1](self._raw[1])

    def __repr__(self) -> str:
        return f"KafkaMessageAndMetadata({self.topic!r}, {self.partition}, {self.offset})"
