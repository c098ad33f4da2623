"""Numbers that stand for other numbers: under one secret each has exactly one, and no two have the same."""

from __future__ import annotations

import hashlib
from decimal import Decimal

_ROUNDS = 8
_INT, _BIGINT = 2**31, 2**63
_LONGEST = 40
"""Digits of a whole number that is written with an exponent and is still taken for one."""


def other_number(text: str, secret: bytes) -> str:
    """Another number in the place of one of JSON: whole if it was, with as many decimals, and of the same sign.

    A whole number that fits an int, or a bigint, still does.
    """
    if text.lstrip("-").isdigit():
        return str(_whole(int(text), secret))
    found = Decimal(text)
    exponent = int(found.as_tuple().exponent)
    digits = int("".join(map(str, found.as_tuple().digits)))
    while digits and digits % 10 == 0:
        digits, exponent = digits // 10, exponent + 1
    signed = -digits if found.is_signed() else digits
    if exponent >= 0 and exponent + len(str(digits)) <= _LONGEST:
        return f"{_whole(signed * 10**exponent, secret)}.0"
    if not digits:
        return f"{_whole(0, secret)}.0"
    other = _whole(signed, secret)
    while other % 10 == 0:  # else it would have fewer decimals, and be the other of one that does
        other = _whole(other, secret)
    return str(Decimal((other < 0, tuple(map(int, str(abs(other)))), exponent))).replace("E", "e")


def _whole(number: int, secret: bytes) -> int:
    """Another whole number of the same range: of ints, of bigints, or of those with so many bits."""
    if number < 0:
        return -1 - _whole(-1 - number, secret)
    bits = number.bit_length()
    low, high = (0, _INT) if number < _INT else (_INT, _BIGINT) if number < _BIGINT else (1 << bits - 1, 1 << bits)
    other = _shuffled(number, high.bit_length() // 2, secret)
    while not low <= other < high:  # a shuffle walks in a circle, which leads back into the range
        other = _shuffled(other, high.bit_length() // 2, secret)
    return other


def _shuffled(number: int, half: int, secret: bytes) -> int:
    """A number of twice so many bits in another's place: a Feistel network, which can be no two's."""
    mask = (1 << half) - 1
    left, right = number >> half, number & mask
    for turn in range(_ROUNDS):
        left, right = right, left ^ (_mixed(right, turn, half, secret) & mask)
    return left << half | right


def _mixed(number: int, turn: int, bits: int, secret: bytes) -> int:
    told = f"{turn} {bits} {number}".encode()
    return int.from_bytes(hashlib.shake_256(secret + told).digest(bits // 8 + 1))
