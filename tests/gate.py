"""A way to a broker that can be shut: what a client behind it sees is a broker that is away."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from millrace.services.process import free_port


class Gate:
    """A port that leads to another one from when it is opened until the end of a block."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._behind = (host, int(port))
        self._port = free_port()
        self._sockets: list[socket.socket] = []

    @property
    def address(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self._port}"

    def open(self) -> None:
        """Let everybody through."""
        server = socket.create_server(("127.0.0.1", self._port))
        self._sockets.append(server)
        threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self, server: socket.socket) -> None:
        with suppress(OSError):  # it was shut
            while True:
                near, _ = server.accept()
                far = socket.create_connection(self._behind)
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
