"""Kafka's protocol as far as bulk reads need it: Fetch, ListOffsets and the authentication before them.

confluent-kafka creates an object for each record, which costs more than decoding it; here records stay in the bytes of
a response (`record_batch` reads them). The versions of the requests are the oldest that Kafka 4 supports, so that every
broker since 0.11 supports them.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from millrace.clients.kafka.authentication import AuthenticationFailed, Sasl

T = TypeVar("T")

_FETCH, _LIST_OFFSETS, _HANDSHAKE, _AUTHENTICATE = (1, 4), (2, 2), (17, 1), (36, 0)
_CLIENT = b"millrace"
LATEST, EARLIEST = -1, -2
"""Timestamps that mean the end and the start of a partition."""
OUT_OF_RANGE, UNKNOWN = 1, 3
UNSUPPORTED_CODEC = 76
MOVED = {5, 6, 7, 9, 13, 56, 74, 75, 78}
"""Transient error codes: no leader, another leader, or a leader that is not ready."""

_CLOSED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""What a broker that stops, or a load balancer without one, makes of a TLS handshake: it refuses nobody."""


class ConnectionLost(Exception):
    """The connection cannot be used any more."""


@dataclass(frozen=True)
class FetchRequest:
    """A request for records of a partition from an offset on."""

    topic: str
    partition: int
    offset: int
    committed: bool
    most: int
    """Bytes; at least one record batch is returned, however large it is."""
    wait: float = 0.5
    """Seconds that the broker may wait for a record."""


class FetchResponse(NamedTuple):
    """The records of a partition from an offset on."""

    throttled: float
    """Seconds to wait before the next request; the response may have no records then."""
    error: int
    end: int
    """The high watermark."""
    stable: int
    """The last stable offset: before the first open transaction."""
    aborted: list[tuple[int, int]]
    """The producer id and first offset of each aborted transaction."""
    records: memoryview


class BrokerConnection:
    """A connection to a broker. Responses come in the order of the requests; several requests may be in flight."""

    def __init__(
        self, host: str, port: int, timeout: float, tls: ssl.SSLContext | None = None, sasl: Sasl | None = None
    ) -> None:
        self.where = f"{host}:{port}"
        self._sent = self._received = 0
        try:
            self._socket = socket.create_connection((host, port), timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            refused = isinstance(error, ssl.SSLError) and not isinstance(error, _CLOSED)
            raise (AuthenticationFailed if refused else ConnectionLost)(f"{self.where}: {error}") from error
        if sasl:
            self._authenticate(sasl)

    @property
    def idle(self) -> bool:
        """Whether no request is in flight and the broker has not closed it, as brokers do after ten idle minutes."""
        if self._sent != self._received or self._socket.fileno() < 0:
            return False
        unasked = select.poll()
        unasked.register(self._socket, select.POLLIN)
        return not unasked.poll(0) or (isinstance(self._socket, ssl.SSLSocket) and _has_only_tls_records(self._socket))

    def ask_records(self, asked: FetchRequest) -> None:
        """Send a Fetch request; `records` receives its response."""
        whose = _text(asked.topic) + struct.pack(">iiqi", 1, asked.partition, asked.offset, asked.most)
        head = struct.pack(">iiiib", -1, round(asked.wait * 1000), 1, asked.most, asked.committed)
        self._send(_FETCH, head + struct.pack(">i", 1) + whose)

    def records(self) -> FetchResponse:
        """Return the response to the next Fetch request."""
        return self._receive(_read_response)

    def offsets(
        self, partitions: Mapping[str, Sequence[int]], moment: int, *, committed: bool
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Return an error code and the offset of a timestamp for each partition."""
        asked = b"".join(
            _text(topic)
            + struct.pack(">i", len(numbers))
            + b"".join(struct.pack(">iq", number, moment) for number in numbers)
            for topic, numbers in partitions.items()
        )
        self._send(_LIST_OFFSETS, struct.pack(">ibi", -1, committed, len(partitions)) + asked)
        return self._receive(_read_offsets)

    def _authenticate(self, sasl: Sasl) -> None:
        self._send(_HANDSHAKE, _text(sasl.mechanism))
        if error := self._receive(lambda body: struct.unpack_from(">h", body, 4)[0]):
            raise AuthenticationFailed(f"{self.where}: the broker does not know {sasl.mechanism} (error {error})")

        def exchange(message: bytes) -> bytes:
            self._send(_AUTHENTICATE, struct.pack(">i", len(message)) + message)
            error, why, answer = self._receive(_read_authentication)
            if error:
                raise AuthenticationFailed(f"{self.where}: {why or f'error {error}'}")
            return answer

        sasl.authenticate(exchange)

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        with suppress(AttributeError):  # the connection failed
            self.close()

    def _send(self, kind: tuple[int, int], body: bytes) -> None:
        self._sent += 1
        head = struct.pack(">hhih", *kind, self._sent, len(_CLIENT)) + _CLIENT
        try:
            self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        except OSError as error:
            raise ConnectionLost(f"{self.where}: {error}") from error

    def _receive(self, read: Callable[[memoryview], T]) -> T:
        """Return what a function reads of the next response, which starts with its correlation id."""
        (size,) = struct.unpack(">i", self._exactly(4))
        body = self._exactly(max(size, 0))
        self._received += 1
        try:
            if struct.unpack_from(">i", body)[0] != self._received:
                raise ConnectionLost(f"{self.where}: a response to another request")
            return read(body)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ConnectionLost(f"{self.where}: a response that cannot be read") from error

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


def _read_response(body: memoryview) -> FetchResponse:
    throttled, topics = struct.unpack_from(">ii", body, 4)
    if not topics:  # a throttled response has no topics
        return FetchResponse(throttled / 1000, 0, -1, -1, [], body[:0])
    at = 12 + 2 + struct.unpack_from(">h", body, 12)[0]
    error, end, stable, count = struct.unpack_from(">hqqi", body, at + 8)
    at += 8 + 22
    aborted = [struct.unpack_from(">qq", body, at + 16 * number) for number in range(max(count, 0))]
    at += 16 * max(count, 0)
    size = max(struct.unpack_from(">i", body, at)[0], 0)
    return FetchResponse(throttled / 1000, error, end, stable, aborted, body[at + 4 : at + 4 + size])


def _read_offsets(body: memoryview) -> dict[tuple[str, int], tuple[int, int]]:
    offsets: dict[tuple[str, int], tuple[int, int]] = {}
    (topics,), at = struct.unpack_from(">i", body, 8), 12
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", body, at)
        topic, at = bytes(body[at + 2 : at + 2 + length]).decode(), at + 2 + length
        (count,), at = struct.unpack_from(">i", body, at), at + 4
        for _ in range(count):
            number, error, _, offset = struct.unpack_from(">ihqq", body, at)
            offsets[topic, number] = error, offset
            at += 22
    return offsets


def _read_authentication(body: memoryview) -> tuple[int, str, bytes]:
    error, length = struct.unpack_from(">hh", body, 4)
    at = 8 + max(length, 0)
    (size,) = struct.unpack_from(">i", body, at)
    return error, bytes(body[8:at]).decode(), bytes(body[at + 4 : at + 4 + max(size, 0)])


def _has_only_tls_records(connection: ssl.SSLSocket) -> bool:
    """Return whether what has come is nothing of the protocol, as the tickets that a server sends after a while."""
    timeout = connection.gettimeout()
    connection.settimeout(0.0)
    try:
        connection.recv(1)
    except ssl.SSLWantReadError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(timeout)
    return False  # the end of the connection, or an answer that nobody asked for


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
