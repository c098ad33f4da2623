"""WebSocket clients that flood, do not read, or subscribe to what is made up: they hold neither memory nor others."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import psutil
import pytest
from websockets.sync.client import connect

from millrace.dashboard import connections
from millrace.dashboard.server import Dashboard
from millrace.telemetry.channels import Channels

from .security_http import ask, closing, connected, everything, head, serving, status

UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
TEXT, CONTINUATION, PING = 0x1, 0x0, 0x9
_MEGABYTE = 1 << 20
ROOM = 64 * _MEGABYTE
"""What a flood may cost at most, however long it lasts; what is sent is more."""


@pytest.fixture
def channels() -> Channels:
    return Channels()


@pytest.fixture
def server(channels: Channels) -> Iterator[Dashboard]:
    with serving(channels=channels) as served:
        yield served


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def frame(kind: int, content: bytes = b"", *, last: bool = True) -> bytes:
    """A frame as clients send it, masked with zeros."""
    size = bytes([0x80 | len(content)]) if len(content) < 126 else bytes([0xFE]) + struct.pack("!H", len(content))
    return bytes([(0x80 if last else 0) | kind]) + size + b"\0\0\0\0" + content


def upgraded(server: Dashboard) -> socket.socket:
    """A connection that has become a WebSocket; what is sent before that is known is not part of it."""
    connection = connected(server, head(server, "GET /ws", *UPGRADE))
    answer = b""
    while b"hello" not in answer:
        answer += connection.recv(65536)
    return connection


def memory() -> int:
    return int(psutil.Process().memory_info().rss)


def healthy(server: Dashboard) -> bool:
    return status(ask(server, closing(server, "GET /healthz"))) == 200


def flood(server: Dashboard, content: bytes, size: int) -> None:
    """Send the same again and again, as long as it is taken, and read nothing."""
    with upgraded(server) as connection:
        connection.settimeout(1)  # one who is no longer listened to has to wait
        try:
            for _ in range(size // len(content)):
                connection.sendall(content)
        except (TimeoutError, ConnectionError):
            pass
        assert healthy(server)


@pytest.mark.long
@pytest.mark.parametrize(
    "content",
    [
        frame(TEXT, b"{}") * 1000,
        frame(TEXT) * 1000,
        frame(TEXT, b"x" * 60_000) * 4,
        frame(PING, b"x" * 125) * 500,
        frame(TEXT, last=False) + frame(CONTINUATION, last=False) * 10_000,
        frame(TEXT, orjson.dumps({"type": "subscribe", "channels": [f"tail:made-up-{n}" for n in range(2000)]})),
        frame(TEXT, orjson.dumps({"type": "subscribe", "channels": [f"nonsense-{n}" for n in range(3000)]})),
        frame(TEXT, orjson.dumps({"type": "subscribe", "channels": ["tail:" + "x" * 60_000]})),
        frame(TEXT, b"[" * 60_000),
        frame(TEXT, b'{"type": "ack", "seq": ' + b"9" * 60_000 + b"}"),
    ],
    ids=lambda content: f"{content[:1].hex()}-{len(content)}",
)
def test_a_flood_is_bounded(server: Dashboard, content: bytes) -> None:
    before = memory()
    # Pings and fragments are taken as fast as they come; messages are not, so there is no need to send as much.
    flood(
        server,
        content,
        100 * _MEGABYTE if content[:1] in (frame(PING)[:1], frame(TEXT, last=False)[:1]) else 8 * _MEGABYTE,
    )
    assert memory() - before < ROOM


def test_very_many_fragments_end_the_conversation(server: Dashboard) -> None:
    said = frame(TEXT, last=False) + frame(CONTINUATION, last=False) * 1000
    with upgraded(server) as connection:
        connection.sendall(said)
        assert struct.pack("!H", 1008) in everything(connection)


def test_a_message_that_is_too_large_ends_the_conversation(server: Dashboard) -> None:
    large = frame(TEXT, b"x" * 40_000, last=False) + frame(CONTINUATION, b"x" * 40_000)
    with upgraded(server) as connection:
        connection.sendall(large)
        assert struct.pack("!H", 1009) in everything(connection)


def test_many_pages_with_made_up_channels_leave_others_alone(
    server: Dashboard, channels: Channels, opened: ExitStack
) -> None:
    address = f"ws://127.0.0.1:{server.port}/ws"
    before = memory()
    for page in range(60):
        client = opened.enter_context(connect(address))
        names = [f"tail:made-up-{page}-{number}" for number in range(1000)]
        client.send(orjson.dumps({"type": "subscribe", "channels": names}).decode())
    channels.slot("state").set({"phase": "running"})
    with connect(address) as honest:
        honest.send('{"type": "subscribe", "channels": ["state"]}')
        while orjson.loads(honest.recv(60))["type"] != "frame":
            pass
    assert healthy(server)
    assert memory() - before < ROOM
    assert not [name for name in channels.names() if "made-up" in name]


def test_a_client_that_does_not_read_is_given_up(
    server: Dashboard, channels: Channels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    subscribe = frame(TEXT, b'{"type": "subscribe", "channels": ["state"]}')
    before = memory()
    with upgraded(server) as lazy:
        lazy.sendall(subscribe)
        large = ["x" * 4000] * 3000  # more than what the kernel keeps of one frame
        channels.slot("state").set(large)
        while _connections_to(server) > 0:
            assert healthy(server)
        assert len(everything(lazy)) < len(large) * 4000
    assert memory() - before < 2 * ROOM


def _connections_to(server: Dashboard) -> int:
    """The connections that the server has open, but for the one that has just been answered."""
    port = f":{server.port:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(fields[1].endswith(port) and fields[3] == "01" for fields in map(str.split, lines))


def test_very_many_connections_do_not_exhaust_files(server: Dashboard, opened: ExitStack) -> None:
    before = _open_files()
    ours = [opened.enter_context(connected(server, head(server, "GET /ws", *UPGRADE))) for _ in range(400)]
    assert healthy(server)
    taken = _open_files() - before - len(ours)
    assert taken <= connections.max_connections()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
