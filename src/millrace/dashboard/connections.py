"""Connections that cannot hold the server: each has a time for what it must send, and their number is limited.

- A request head, a request body and an idle connection have a deadline each; so has an answer that is not read.
- When there are too many connections, the one that has waited longest without a request to answer is closed.
- When most of them are being answered, a new request finds its connection crowded, and gets only the health answers.
- A WebSocket client cannot make the server keep messages, fragments or pongs without end.

The account that owns the other end of a connection from this machine, as the kernel knows it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

KNOWN = sys.platform == "linux"
"""Whether the kernel can be asked; elsewhere the owner of a connection is not known."""
_LISTS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG of linux/netlink.h."""
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY of linux/sock_diag.h."""
_ANY = 0xFFFFFFFF
_TIMEOUT_S = 1.0

Address = tuple[str, int]


def account_of(client: Address, server: Address) -> int | None:
    """Return the user id that owns the client's socket of a connection; None if no process has that socket open.

    The kernel is asked for this one socket, which costs microseconds. Where it does not answer, its list of all
    sockets is read, which costs milliseconds.
    """
    uid, inode = next(chain(_asked(client, server), _listed(client, server)), (0, 0))
    # A socket that its process has closed belongs to no process, and is listed as root's.
    return uid if inode else None


def _asked(client: Address, server: Address) -> Iterator[tuple[int, int]]:
    """Ask for one socket by netlink (linux/inet_diag.h)."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = [socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (client, server)]
    wanted = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, _ANY)
    wanted += struct.pack("!HH16s16s", client[1], server[1], *ends) + struct.pack("=III", 0, _ANY, _ANY)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_S)
            kernel.send(struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, 1, 0, 0) + wanted)
            answer = kernel.recv(4096)
    except OSError:
        return
    if struct.unpack_from("=H", answer, 4)[0] == _BY_FAMILY:
        # Behind the header (16 bytes): four bytes, the socket's id (48), three numbers, then these two.
        yield struct.unpack_from("=II", answer, 16 + 4 + 48 + 12)


def _listed(client: Address, server: Address) -> Iterator[tuple[int, int]]:
    """Look for a socket in the lists of /proc; one of IPv6 may have an address of IPv4."""
    forms = [(_hexadecimal(client, mapped), _hexadecimal(server, mapped)) for mapped in (False, True)]
    for path in _LISTS:
        try:
            lines = path.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if (fields[1], fields[2]) in forms:
                yield int(fields[7]), int(fields[9])


def _hexadecimal(address: Address, mapped: bool) -> str:
    """An address as /proc writes it: words of 32 bits in the byte order of the machine."""
    host = ipaddress.ip_address(address[0])
    packed = host.packed if host.version == 6 or not mapped else b"\0" * 10 + b"\xff\xff" + host.packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


STATE = "connection"
"""The name under which a request finds its connection in the state of its scope."""
HEAD_S = 10.0
BODY_S = 10.0
IDLE_S = 5
STALL_S = 30.0
"""How long an answer may wait in the send buffer unread."""
MAX_HEAD_BYTES = 32_768
_MAX_CONNECTIONS = 256
_MAX_RECEIVE_BYTES = 16_384
_MAX_WEBSOCKET_HEADERS = 100
_MAX_WEBSOCKET_LINE_BYTES = 8000
"""Both are below the limits of the WebSocket library, which drops the connection instead of answering."""
_MAX_WAITING_MESSAGES = 100
_MAX_FRAGMENTS = 100
_SPARE = 4
"""The part of the room that answers do not take up: a fourth of it."""
_POLICY_VIOLATION = 1008

Ends = tuple[tuple[str, int], tuple[str, int]]


def max_connections() -> int:
    """Return how many connections may be open: far fewer than the files that the process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(16, min(_MAX_CONNECTIONS, files // 4))


def backlog() -> int:
    """Return how many connections are accepted at once: few enough that none of them must make room for the next."""
    return max_connections() // 4


class _Watch:
    """What is known of a connection over time: how long it has been in its stage, and whether its peer reads."""

    def __init__(self, now: float) -> None:
        self.stage, self.since, self.gone = "head", now, False
        self._unread, self._read = 0, now

    def enter(self, stage: str, now: float) -> None:
        if stage != self.stage:
            self.stage, self.since = stage, now

    def stalled(self, unread: int, now: float) -> bool:
        """Whether the peer has read nothing for too long, of what lies in the send buffer."""
        if unread == 0 or unread != self._unread:
            self._unread, self._read = unread, now
        return now - self._read > STALL_S


class HttpConnection(H11Protocol):
    """An HTTP connection; it becomes a `WebSocketConnection` when it is upgraded."""

    def __init__(self, *, app_state: dict[str, Any], **of_uvicorn: Any) -> None:
        super().__init__(app_state={**app_state, STATE: self}, **of_uvicorn)
        self.watch = _Watch(self.loop.time())
        self._account: tuple[int | None] | None = None

    @property
    def account(self) -> int | None:
        """The user id at the other end, looked up once."""
        if self._account is None:
            connected = self.client is not None and self.server is not None
            self._account = (account_of(*cast("Ends", (self.client, self.server))) if connected else None,)
        return self._account[0]

    @property
    def crowded(self) -> bool:
        """Whether most of the room is taken by requests that are being answered: health has the rest."""
        return any(
            sum(connection.watch.stage == "answer" for connection in among) > limit - limit // _SPARE
            for among, limit in _limits(self)
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for it."""
        super().connection_made(transport)
        # What is read at once is worked on at once, while all others wait.
        transport.max_size = _MAX_RECEIVE_BYTES  # type: ignore[attr-defined]
        make_room(self)

    def data_received(self, data: bytes) -> None:
        """Take what has come, and note how far the request is."""
        super().data_received(data)
        self.note_stage()

    def handle_events(self) -> None:
        """Close what breaks the protocol while it is answered: no other answer can be sent then."""
        try:
            super().handle_events()
        except h11.LocalProtocolError:
            _close_now(self)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one."""
        super().on_response_complete()
        self.note_stage()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Refuse what the WebSocket library would drop without an answer."""
        long = any(len(name) + len(value) > _MAX_WEBSOCKET_LINE_BYTES for name, value in self.headers)
        if long or len(self.headers) > _MAX_WEBSOCKET_HEADERS or len(event.target) > _MAX_WEBSOCKET_LINE_BYTES:
            self.send_400_response("The head of the request is too large.")
            return
        super().handle_websocket_upgrade(event)

    def note_stage(self) -> None:
        """Note what is waited for: a head, a body, an answer of ours, or the end."""
        if self.transport.get_protocol() is not self:  # it is a WebSocket now
            return
        theirs, answering = self.conn.their_state, self.cycle is not None and not self.cycle.response_complete
        waiting = "head" if theirs is h11.IDLE else "closing"
        stage = "body" if theirs is h11.SEND_BODY else "answer" if answering else waiting
        self.watch.enter(stage, self.loop.time())

    def overdue(self, now: float) -> bool:
        """Whether it has had its time."""
        limits = {"head": HEAD_S, "body": BODY_S, "closing": HEAD_S}
        unread = self.transport.get_write_buffer_size()
        if unread:  # what is being read may take its time
            return self.watch.stalled(unread, now)
        return now - self.watch.since > limits.get(self.watch.stage, now)


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket; its connection is that of the request that asked for it."""

    def __init__(self, *, app_state: dict[str, Any], **of_uvicorn: Any) -> None:
        super().__init__(app_state=app_state, **of_uvicorn)
        self.watch: _Watch = app_state[STATE].watch
        self.watch.enter("answer", self.loop.time())

    def send_receive_event_to_app(self) -> None:
        """End a conversation in which more is said than can be listened to."""
        if self.queue.qsize() >= _MAX_WAITING_MESSAGES and not self.close_sent:
            self._refuse()
        else:
            super().send_receive_event_to_app()

    def handle_cont(self, event: Frame) -> None:
        """End a message of very many fragments: empty ones have no size that could be limited."""
        if len(self.frames) >= _MAX_FRAGMENTS:
            self._refuse()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer pings, unless the answers are not read."""
        pongs = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pongs)

    def overdue(self, now: float) -> bool:
        """Whether the client has stopped reading."""
        return self.watch.stalled(self.transport.get_write_buffer_size(), now)

    def _refuse(self) -> None:
        if not self.close_sent:
            self.conn.send_close(_POLICY_VIOLATION, "too many messages at once")
            self.handle_parser_exception()


def make_room(newest: HttpConnection) -> None:
    """Close the connections that have waited longest for their client, where there are too many."""
    for among, limit in _limits(newest):
        waiting = [
            connection for connection in among if connection is not newest and connection.watch.stage != "answer"
        ]
        waiting.sort(key=lambda connection: connection.watch.since)
        for connection in waiting[: max(0, len(among) - limit)]:
            _close_now(connection)


def close_overdue(connections: Iterable[object], now: float) -> None:
    """Close the connections that have had their time."""
    for connection in list(connections):
        if isinstance(connection, HttpConnection | WebSocketConnection) and connection.overdue(now):
            _close_now(connection)


def _close_now(connection: HttpConnection | WebSocketConnection) -> None:
    connection.watch.gone = True
    connection.transport.abort()


def _limits(of: HttpConnection) -> Iterator[tuple[list[HttpConnection | WebSocketConnection], int]]:
    """The connections of one address, which may have half of the room, and all of them; each with the limit."""
    most = max_connections()
    ours = (connection for connection in of.connections if isinstance(connection, HttpConnection | WebSocketConnection))
    everyone = [connection for connection in ours if not connection.watch.gone]
    address = (of.client or "")[:1]
    yield [connection for connection in everyone if (connection.client or "")[:1] == address], most // 2
    yield everyone, most
