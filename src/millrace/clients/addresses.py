"""Addresses of servers: HOST:PORT, several separated by commas."""

from __future__ import annotations

import re

from millrace.errors import InvalidOption

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(\d{1,5}))?")


def points(addresses: str, what: str, port: int | None = None) -> list[tuple[str, int]]:
    """The hosts and ports; one without a port has the usual one, where there is such. `what` would be there."""
    return [_point(one.strip(), what, port) for one in addresses.split(",")]


def tidy(addresses: str, what: str, port: int | None = None) -> str:
    """The same without blanks; raises when one is no address."""
    points(addresses, what, port)
    return ",".join(one.strip() for one in addresses.split(","))


def _point(address: str, what: str, port: int | None) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(address)
    number = int((found and found[2]) or port or 0)
    if not found or not 0 < number < 65536:
        raise InvalidOption(
            f"{address!r} is not an address of {what}", hint="write HOST:PORT, several separated by commas"
        )
    return found[1].strip("[]"), number
