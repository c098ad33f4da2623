"""Kafka's own protocol as far as bulk reading needs it: where a partition ends, and its records as the broker has them.

confluent-kafka makes an object of each record, which costs more than decoding it; here they stay in the bytes of an
answer (`log` finds them there). The versions of the requests are the oldest that Kafka 4 speaks, so that every broker
since 0.11 does.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

_FETCH, _LIST_OFFSETS = (1, 4), (2, 2)
_CLIENT = b"millrace"
LATEST, EARLIEST = -1, -2
"""Times that mean the end and the beginning of a partition."""
OUT_OF_RANGE, UNKNOWN = 1, 3
UNSUPPORTED_CODEC = 76
MOVED = {5, 6, 7, 9, 13, 56, 74, 75, 78}
"""Codes of errors that pass: no leader, another leader, one that is not ready; then a new look at the cluster helps."""


class ConnectionLost(Exception):
    """The connection is of no use any more."""


@dataclass(frozen=True)
class FetchRequest:
    """A request for records of a partition from an offset on."""

    topic: str
    partition: int
    offset: int
    committed: bool
    most: int
    """Bytes; at least one batch of records comes, however large it is."""
    wait: float = 0.5
    """Seconds that the broker may wait for a record."""


class FetchResponse(NamedTuple):
    """What a broker has of a partition from an offset on."""

    throttled: float
    """Seconds for which the broker wants to be left alone; then the answer may say nothing else."""
    error: int
    end: int
    """The offset of the next record that will be there for everybody."""
    stable: int
    """The same without what is in open transactions."""
    aborted: list[tuple[int, int]]
    """Producers whose transactions were aborted, and the first offset of each."""
    records: memoryview


class BrokerConnection:
    """A connection to one broker. Answers come in the order of the requests, which may be sent ahead of them."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.where = f"{host}:{port}"
        self._socket = _connected(host, port, timeout)
        self._sent = self._received = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return self._sent == self._received

    def ask_records(self, asked: FetchRequest) -> None:
        """Send a request for records; `records` takes its answer."""
        whose = _text(asked.topic) + struct.pack(">iiqi", 1, asked.partition, asked.offset, asked.most)
        head = struct.pack(">iiiib", -1, round(asked.wait * 1000), 1, asked.most, asked.committed)
        self._send(_FETCH, head + struct.pack(">i", 1) + whose)

    def records(self) -> FetchResponse:
        """The next answer to a request for records."""
        body = self._receive()
        try:
            return _answer(body)
        except (struct.error, IndexError) as error:
            raise ConnectionLost(f"{self.where}: an answer that cannot be read") from error

    def offsets(
        self, places: Mapping[str, Sequence[int]], moment: int, *, committed: bool
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """For each partition the code of an error, and the offset that a time means; the end is as `committed` says."""
        asked = b"".join(
            _text(topic)
            + struct.pack(">i", len(numbers))
            + b"".join(struct.pack(">iq", one, moment) for one in numbers)
            for topic, numbers in places.items()
        )
        self._send(_LIST_OFFSETS, struct.pack(">ibi", -1, committed, len(places)) + asked)
        body = self._receive()
        try:
            return dict(_offsets(body))
        except (struct.error, IndexError) as error:
            raise ConnectionLost(f"{self.where}: an answer that cannot be read") from error

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was never open
            self.close()

    def _send(self, kind: tuple[int, int], body: bytes) -> None:
        self._sent += 1
        head = struct.pack(">hhih", *kind, self._sent, len(_CLIENT)) + _CLIENT
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        except OSError as error:
            raise ConnectionLost(f"{self.where}: {error}") from error

    def _receive(self) -> memoryview:
        """The next answer, from its number on."""
        (size,) = struct.unpack(">i", self._exactly(4))
        body = self._exactly(size)
        self._received += 1
        if struct.unpack_from(">i", body)[0] != self._received:
            raise ConnectionLost(f"{self.where}: an answer to another question")
        return body

    def _exactly(self, size: int) -> memoryview:
        body = memoryview(bytearray(size))
        got = 0
        try:
            while got < size:
                more = self._socket.recv_into(body[got:])
                if not more:
                    raise ConnectionLost(f"{self.where}: the connection was closed")
                got += more
        except OSError as error:
            raise ConnectionLost(f"{self.where}: {error}") from error
        return body


def _answer(body: memoryview) -> FetchResponse:
    throttled, topics = struct.unpack_from(">ii", body, 4)
    if not topics:  # over its quota a reader is told nothing else
        return FetchResponse(throttled / 1000, 0, -1, -1, [], body[:0])
    at = 12 + 2 + struct.unpack_from(">h", body, 12)[0]
    error, end, stable, count = struct.unpack_from(">hqqi", body, at + 8)
    at += 8 + 22
    aborted = [struct.unpack_from(">qq", body, at + 16 * number) for number in range(max(count, 0))]
    at += 16 * max(count, 0)
    size = max(struct.unpack_from(">i", body, at)[0], 0)
    return FetchResponse(throttled / 1000, error, end, stable, aborted, body[at + 4 : at + 4 + size])


def _offsets(body: memoryview) -> Iterator[tuple[tuple[str, int], tuple[int, int]]]:
    (topics,), at = struct.unpack_from(">i", body, 8), 12
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", body, at)
        topic, at = bytes(body[at + 2 : at + 2 + length]).decode(), at + 2 + length
        (count,), at = struct.unpack_from(">i", body, at), at + 4
        for _ in range(count):
            number, error, _, offset = struct.unpack_from(">ihqq", body, at)
            yield (topic, number), (error, offset)
            at += 22


def _text(text: str) -> bytes:
    told = text.encode()
    return struct.pack(">h", len(told)) + told


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    try:
        made = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise ConnectionLost(f"{host}:{port}: {error}") from error
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
