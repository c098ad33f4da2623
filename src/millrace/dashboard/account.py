"""The account that owns the other end of a connection from this machine, as the kernel knows it."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

KNOWN = sys.platform == "linux"
"""Whether the kernel can be asked; elsewhere nobody knows whose a connection is."""
_LISTS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_SOCK_DIAG = 4
"""NETLINK_SOCK_DIAG of linux/netlink.h."""
_BY_FAMILY = 20
"""SOCK_DIAG_BY_FAMILY of linux/sock_diag.h."""
_ANY = 0xFFFFFFFF
_TIMEOUT_S = 1.0

Address = tuple[str, int]


def account_of(client: Address, server: Address) -> int | None:
    """Return the user id that owns the client's socket of a connection; None if no process has that socket open.

    The kernel is asked for this one socket, which costs microseconds. Where it does not answer, its list of all
    sockets is read, which costs milliseconds.
    """
    uid, inode = next(chain(_asked(client, server), _listed(client, server)), (0, 0))
    # A socket that its process has closed belongs to nobody, and is listed as root's.
    return uid if inode else None


def _asked(client: Address, server: Address) -> Iterator[tuple[int, int]]:
    """Ask for one socket by netlink (linux/inet_diag.h)."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = [socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (client, server)]
    wanted = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, _ANY)
    wanted += struct.pack("!HH16s16s", client[1], server[1], *ends) + struct.pack("=III", 0, _ANY, _ANY)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_S)
            kernel.send(struct.pack("=IHHII", 16 + len(wanted), _BY_FAMILY, 1, 0, 0) + wanted)
            answer = kernel.recv(4096)
    except OSError:
        return
    if struct.unpack_from("=H", answer, 4)[0] == _BY_FAMILY:
        # Behind the header (16 bytes): four bytes, the socket's id (48), three numbers, then these two.
        yield struct.unpack_from("=II", answer, 16 + 4 + 48 + 12)


def _listed(client: Address, server: Address) -> Iterator[tuple[int, int]]:
    """Look for a socket in the lists of /proc; one of IPv6 may have an address of IPv4."""
    forms = [(_hexadecimal(client, mapped), _hexadecimal(server, mapped)) for mapped in (False, True)]
    for path in _LISTS:
        try:
            lines = path.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if (fields[1], fields[2]) in forms:
                yield int(fields[7]), int(fields[9])


def _hexadecimal(address: Address, mapped: bool) -> str:
    """An address as /proc writes it: words of 32 bits in the byte order of the machine."""
    host = ipaddress.ip_address(address[0])
    packed = host.packed if host.version == 6 or not mapped else b"\0" * 10 + b"\xff\xff" + host.packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
