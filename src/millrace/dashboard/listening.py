"""Where the server listens: the port that was asked for, or the first free one of ours."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass

from millrace.errors import InvalidOption, PortInUse

FIRST = 4040
"""The port that is tried first when none is asked for."""
_TRIED = 50


@dataclass(frozen=True)
class Place:
    """A socket that listens, and how it is called."""

    socket: socket.socket
    host: str
    port: int
    loopback: bool


def listen(host: str, port: int | None) -> Place:
    """Listen at an address; without a port at the first one that is free."""
    if port is not None and not 0 <= port <= 65535:
        raise InvalidOption(f"--port: {port} is not a port", hint="a port is a number from 0 to 65535")
    family, address = _address(host)
    wanted = [port] if port is not None else [*range(FIRST, FIRST + _TRIED), 0]
    for one in wanted:
        opened = _opened(family, address, one)
        if opened is not None:
            return Place(opened, host, opened.getsockname()[1], _is_loopback(address))
    raise PortInUse(
        f"port {port} is in use, so the page cannot be there",
        hint="choose another with --port, or leave it out to get a free one",
    )


def _opened(family: socket.AddressFamily, address: str, port: int) -> socket.socket | None:
    # Named as TCP, because asyncio sends small messages at once only on sockets that say they are.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise InvalidOption(f"cannot listen at {address} port {port}", why=error.strerror) from None
    return listener


def _address(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidOption(f"--host: {host!r} is not an address", why=error.strerror) from None
    return family, str(address[0])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
