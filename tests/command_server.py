"""The `millrace` program for tests, without the second that Python needs to import it each time.

A process imports the command line once and forks for each command. The child has the arguments, the environment, the
folder and the standard streams of the command, runs `millrace.cli.main.main` and ends as every Python program ends.
What Python reads only when it starts is that of the server: PYTHON* variables, the search path, entry points.
`CommandLine.start` runs the installed program itself.

Run as a program, this is the server: its argument is the descriptor of a socket.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import psutil

MILLRACE = Path(sys.executable).parent / "millrace"
_PRELOADED = ("confluent_kafka.admin", "millrace.connectors.base.registry", "millrace.cli.commands.check")
_MAX_REQUEST_BYTES = 1 << 20


class CommandServer:
    """The client's side: one server for each test process, started by the first command."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(
        self, arguments: list[str], stdin: bytes, folder: Path, environment: dict[str, str], timeout_s: float
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its exit code and what it wrote to both streams."""
        with self._lock, ExitStack() as opened:
            server = self._connected()
            (in_read, in_write), (out_read, out_write), (err_read, err_write) = (os.pipe() for _ in range(3))
            ends = ((in_write, "wb"), (out_read, "rb"), (err_read, "rb"))
            given, *outputs = [opened.enter_context(os.fdopen(end, mode, buffering=0)) for end, mode in ends]
            try:
                request = json.dumps([arguments, str(folder), environment]).encode()
                try:
                    socket.send_fds(server, [len(request).to_bytes(4)], [in_read, out_write, err_write])
                finally:
                    for descriptor in (in_read, out_write, err_write):
                        os.close(descriptor)
                server.sendall(request)
                written = _exchange(given, stdin, outputs, time.monotonic() + timeout_s)
                return os.waitstatus_to_exitcode(int.from_bytes(_received(server, 4))), *written
            except BaseException as error:  # the answer of this command must not become that of the next
                self.stop()
                if isinstance(error, TimeoutError):
                    raise subprocess.TimeoutExpired(["millrace", *arguments], timeout_s) from None
                raise

    def stop(self) -> None:
        """End the server, and a command that still runs."""
        if self._process and self._socket:
            self._socket.close()
            processes = [self._process, *psutil.Process(self._process.pid).children()]
            for process in processes:
                process.kill()
            self._process.wait()
            self._process = self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, other = socket.socketpair()
            environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # a process that forks has no other threads
            command = [sys.executable, __file__, str(other.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], env=environment)
            other.close()
        return self._socket


COMMANDS = CommandServer()
"""That of this test process. It is here because conftest.py is imported more than once."""


def _exchange(stdin: Any, given: bytes, outputs: Sequence[Any], deadline: float) -> tuple[bytes, bytes]:
    """Write to the command and read from it until it has closed both streams."""
    written = [bytearray() for _ in outputs]
    unsent = memoryview(given)
    os.set_blocking(stdin.fileno(), False)
    with selectors.DefaultSelector() as ready:
        for output, part in zip(outputs, written, strict=True):
            ready.register(output, selectors.EVENT_READ, part)
        ready.register(stdin, selectors.EVENT_WRITE)
        while ready.get_map():
            if time.monotonic() > deadline:
                raise TimeoutError
            for key, _ in ready.select(1.0):
                if key.fileobj is stdin:
                    unsent = _sent(stdin.fileno(), unsent)
                    if not unsent:
                        ready.unregister(stdin)
                        stdin.close()
                elif read := os.read(key.fd, 1 << 16):
                    key.data.extend(read)
                else:
                    ready.unregister(key.fileobj)
    out, err = map(bytes, written)
    return out, err


def _sent(stdin: int, unsent: memoryview) -> memoryview:
    try:
        return unsent[os.write(stdin, unsent[: 1 << 16]) :] if unsent else unsent
    except BrokenPipeError:  # the command does not read its input
        return unsent[:0]


def _received(server: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = server.recv(count - len(received))
        assert part, "the process that runs commands has ended"
        received += part
    return received


# The server's side


def serve(client: socket.socket) -> None:
    """Fork for each request, until the client is gone; return in the child."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(client, 4, 3)
        if not size:
            sys.exit(0)
        arguments, folder, environment = json.loads(_received(client, int.from_bytes(size)))
        child = os.fork()
        if child == 0:
            client.close()
            become(arguments, folder, environment, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        client.sendall(os.waitpid(child, 0)[1].to_bytes(4))


def become(arguments: list[str], folder: str, environment: dict[str, str], descriptors: list[int]) -> None:
    """Give this process what a new process of the command would have."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(MILLRACE), *arguments]
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


def _main() -> NoReturn:
    import importlib

    from millrace.cli.main import main

    for module in _PRELOADED:
        importlib.import_module(module)
    sys.path[0] = str(MILLRACE.parent)
    client = socket.socket(fileno=int(sys.argv[1]))
    serve(client)
    main()
    sys.exit(0)


if __name__ == "__main__":
    _main()
