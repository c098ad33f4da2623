"""A client in a process of its own: with another account, or behind a link into a network namespace of its own.

Each line of the input is a JSON list of a host, a port, the text of a request, and whether to wait for the answer; each
line of the output is the answer as a JSON text, or what went wrong. It imports all that it needs before it gives up its
rights.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def join(link: str, address: str) -> None:
    """Take a link that was put into this namespace, and give it an address."""
    from pyroute2 import IPRoute

    with IPRoute() as routes:
        (index,) = routes.link_lookup(ifname=link)
        host, _, length = address.partition("/")
        routes.addr("add", index=index, address=host, prefixlen=int(length))
        routes.link("set", index=index, state="up")


def become(uid: int) -> None:
    """Go on as another account, for good."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def ask(host: str, port: int, request: str, wait: bool) -> str:
    """Send a request; give back all that is answered until the server closes, or close at once."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as connection:
        connection.settimeout(60)
        connection.connect((host, port))
        connection.sendall(request.encode("latin-1"))
        parts: list[bytes] = []
        while wait and (part := connection.recv(65536)):
            parts.append(part)
    return b"".join(parts).decode("latin-1")


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Serve the questions of a test until it has no more."""
    say("ready")
    how = json.loads(sys.stdin.readline())
    if "link" in how:
        join(how["link"], how["address"])
    if "uid" in how:
        become(how["uid"])
    say("set")
    for line in sys.stdin:
        host, port, request, wait = json.loads(line)
        try:
            answer = ask(host, port, request, wait)
        except OSError as error:
            answer = f"{type(error).__name__}: {error}"
        say(json.dumps(answer))


if __name__ == "__main__":
    main()
