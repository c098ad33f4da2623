"""Listening sockets of feeds and of the dashboard's server."""

from __future__ import annotations

import errno
import ipaddress
import socket

from millrace.errors import InvalidOption, PortInUse


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; the caller closes it."""
    family, address = address_of(host, port)
    # Named as TCP, because asyncio sends small answers at once only on sockets that say they are.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"port {port} is in use", hint="choose another port, or 0 for a free one") from None
        raise InvalidOption(f"cannot listen at {host} port {port}", why=error.strerror) from None
    return listener


def address_of(host: str, port: int = 0) -> tuple[socket.AddressFamily, str]:
    """The address that a name means."""
    if not 0 <= port <= 65535:
        raise InvalidOption(f"{port} is not a port", hint="a port is a number from 0 to 65535")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidOption(f"{host!r} is not an address to listen at", why=error.strerror) from None
    return family, str(address[0])


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def format_address(listener: socket.socket) -> str:
    """HOST:PORT of a socket."""
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"
