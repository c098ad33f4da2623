"""A server on a socket that says what a test tells it to say, as `nc -lk` does at a terminal."""

from __future__ import annotations

import socket
import threading
from types import TracebackType


class Talker:
    """Whoever connects is kept; `say` waits for somebody who listens."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._listeners: list[socket.socket] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.getsockname()[1]
        return port

    def __enter__(self) -> Talker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        self.hang_up()

    def say(self, *lines: str, seconds: float = 60) -> None:
        """Send lines to whoever came last, once somebody is there."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._listeners, seconds), "nobody has connected"
            self._listeners[-1].sendall("".join(f"{line}\n" for line in lines).encode())

    def hang_up(self) -> None:
        """Forget whoever is connected: what is said next waits for the next one."""
        with self._changed:
            for one in self._listeners:
                one.close()
            self._listeners.clear()

    def _accept(self) -> None:
        while True:
            try:
                found = self._server.accept()[0]
            except OSError:
                return
            with self._changed:
                self._listeners.append(found)
                self._changed.notify_all()
