"""Where the server listens: the port that was asked for, or the first free one of ours."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from millrace.errors import PortInUse
from millrace.listening import address_of, is_loopback, listening

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
    _, address = address_of(host, port or 0)
    for one in [port] if port is not None else [*range(FIRST, FIRST + _TRIED), 0]:
        try:
            opened = listening(address, one)
        except PortInUse:
            continue
        return Place(opened, host, opened.getsockname()[1], is_loopback(address))
    raise PortInUse(
        f"port {port} is in use, so the page cannot be there",
        hint="choose another with --port, or leave it out to get a free one",
    )
