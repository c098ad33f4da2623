"""What Spark starts as `python` on this machine: it lets the worker host fork, or runs Python itself.

This is a program that must start quickly: it is run without site packages, and imports nothing of Millrace.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import NamedTuple, NoReturn

HOST_VARIABLE = "MILLRACE_WORKER_HOST"
"""Names the socket of the host."""
PYTHON_VARIABLE = "MILLRACE_WORKER_PYTHON"
"""Names the Python that runs what the host does not."""
MODULES = ("pyspark", "millrace")
"""How the names of modules begin that a fork runs."""
_STREAMS = (0, 1, 2)
_LENGTH_BYTES = 4


class WorkerRequest(NamedTuple):
    """What is to be run."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    descriptors: list[int]
    """Of the standard streams."""


def send_request(connection: socket.socket, arguments: list[str]) -> None:
    """Send what this process is to run."""
    request = json.dumps([arguments, dict(os.environ), os.getcwd()]).encode()  # noqa: PTH109 - pathlib is slow to load
    socket.send_fds(connection, [len(request).to_bytes(_LENGTH_BYTES)], _STREAMS)
    connection.sendall(request)


def receive_request(connection: socket.socket) -> WorkerRequest | None:
    """Return what a launcher has sent; None if it has ended."""
    size, descriptors, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, len(_STREAMS))
    wanted, received = int.from_bytes(size), b""
    while size and len(received) < wanted and (part := connection.recv(wanted - len(received))):
        received += part
    if not wanted or len(received) < wanted:
        for descriptor in descriptors:
            os.close(descriptor)
        return None
    arguments, environment, folder = json.loads(received)
    return WorkerRequest(arguments, environment, folder, descriptors)


def _connect(connection: socket.socket, path: str) -> None:
    """Connect to a socket by its name only: its path may be longer than the system takes."""
    here = os.getcwd()  # noqa: PTH109 - pathlib is slow to load
    folder, _, name = path.rpartition("/")
    os.chdir(folder)
    try:
        connection.connect(name)
    finally:
        os.chdir(here)


def main() -> NoReturn:
    """Wait for the end of what the host has forked, or become Python."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["-m"] and len(arguments) > 1 and arguments[1].startswith(MODULES):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                _connect(connection, os.environ[HOST_VARIABLE])
                send_request(connection, arguments)
                if connection.recv(1) == b"y":
                    for stream in _STREAMS:  # the child has them
                        os.close(stream)
                    code = connection.recv(1) or b"\1"  # nothing if the host has ended, which ends the child
                    os._exit(code[0])
        except (OSError, KeyError):
            pass
    python = os.environ.get(PYTHON_VARIABLE, sys.executable)
    os.execv(python, [python, *arguments])  # noqa: S606 - that is what it is for


if __name__ == "__main__":
    main()
