"""What the attacks on the dashboard's server share: a real server, requests by the byte, clients from elsewhere."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol, cast

from pyroute2 import IPRoute

from millrace.dashboard.run_interface import RunInterface
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.telemetry.channels import Channels
from millrace.telemetry.metrics import Health

NOBODY = 65534
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
_PREFIX = 30
_CLIENT = Path(__file__).with_name("security_client.py")


@contextmanager
def serving(
    options: ServerOptions | None = None, static: Path = Path("/nowhere"), **changes: Any
) -> Iterator[Dashboard]:
    """Serve a run of which little is known; what is given changes it."""
    subject = RunInterface(Channels(), lambda: Health(True, True), lambda: {"name": "the-run"})
    with Dashboard(replace(subject, **changes), options or ServerOptions(port=0), static) as server:
        yield server


def head(server: Dashboard, line: str = "GET /healthz", *more: str, host: str = "127.0.0.1") -> str:
    """The head of a request."""
    return "\r\n".join((f"{line} HTTP/1.1", f"Host: {host}:{server.port}", *more, "", ""))


def closing(server: Dashboard, line: str, *more: str, host: str = "127.0.0.1") -> str:
    """The head of the only request of a connection."""
    return head(server, line, "Connection: close", *more, host=host)


def connected(server: Dashboard, said: str | bytes = b"") -> socket.socket:
    """A connection on which something has been sent."""
    connection = socket.create_connection(("127.0.0.1", server.port), 60)
    connection.sendall(said.encode("latin-1") if isinstance(said, str) else said)
    return connection


def everything(connection: socket.socket) -> bytes:
    """All that comes until the server closes, in whichever way."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def ask(server: Dashboard, said: str | bytes) -> bytes:
    """The answer to what is sent on a connection of its own."""
    with connected(server, said) as connection:
        return everything(connection)


def status(answer: bytes | str) -> int:
    """The status of an answer; 0 if there was none."""
    words = (answer if isinstance(answer, str) else answer.decode("latin-1")).split(" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/1") else 0


class Ask(Protocol):
    """Asks from elsewhere: what is sent to a host and port, and whether the answer is waited for."""

    def __call__(self, host: str, port: int, request: str, *, wait: bool = True) -> str:
        """Send a request; give back the answer, or what went wrong."""


@contextmanager
def _client(*command: str) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    assert os.geteuid() == 0, (
        "these tests act as other accounts and make network namespaces: "
        "run them as root, or in `unshare --map-root-user --map-auto`"
    )
    line = [*command, sys.executable, str(_CLIENT)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said, answered = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        try:
            assert answered.readline() == "ready\n"
            yield process, said, answered
        finally:
            process.kill()


def _asking(said: IO[str], answered: IO[str], **how: object) -> Ask:
    def tell(value: object) -> str:
        said.write(json.dumps(value) + "\n")
        said.flush()
        return answered.readline()

    def asking(host: str, port: int, request: str, *, wait: bool = True) -> str:
        return str(json.loads(tell([host, port, request, wait])))

    assert tell(how) == "set\n"
    return asking


@contextmanager
def as_account(uid: int = NOBODY) -> Iterator[Ask]:
    """A client that runs as another account of this machine."""
    with _client() as (_, said, answered):
        yield _asking(said, answered, uid=uid)


@contextmanager
def from_elsewhere(link: str = f"mr{os.getpid()}") -> Iterator[tuple[str, Ask]]:
    """Our address, and a client in a network namespace of its own that reaches it over a link.

    The kernel removes both when the process of the client ends.
    """
    with ExitStack() as stack:
        routes = stack.enter_context(IPRoute())
        process, said, answered = stack.enter_context(_client("unshare", "--net"))
        ours, theirs = map(str, _unused_network(routes).hosts())
        peer = {"ifname": f"{link}p", "net_ns_pid": process.pid}
        routes.link("add", ifname=link, kind="veth", peer=peer)
        stack.callback(_remove, routes, link)
        (index,) = routes.link_lookup(ifname=link)
        routes.addr("add", index=index, address=ours, prefixlen=_PREFIX)
        routes.link("set", index=index, state="up")
        yield ours, _asking(said, answered, link=f"{link}p", address=f"{theirs}/{_PREFIX}")


def _unused_network(routes: IPRoute) -> ipaddress.IPv4Network:
    """Two addresses of the range for tests of networks (RFC 2544) that this machine does not use."""
    own = [(one.get("address"), one["prefixlen"]) for one in routes.get_addr(family=socket.AF_INET)]
    used = [ipaddress.IPv4Network(f"{address}/{length}", strict=False) for address, length in own]
    every = ipaddress.IPv4Network("198.18.0.0/15").subnets(new_prefix=_PREFIX)
    return next(one for one in every if not any(one.overlaps(other) for other in used))


def _remove(routes: IPRoute, link: str) -> None:
    for index in routes.link_lookup(ifname=link):
        routes.link("del", index=index)
