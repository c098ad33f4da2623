"""Columns of records are replaced by others: the same value always by the same one, and none can be read back.

A slice of a topic in a file: a record a line, its bytes exactly as they were.

Numbers that stand for other numbers: under one secret each has exactly one, and no two have the same.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from millrace.clients.kafka.record import text_field
from millrace.errors import FileUnusable


def recording_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line: text where bytes are UTF-8, else base64 under the name with `_base64`."""
    told = {name: record[name] for name in ("topic", "partition", "offset", "timestamp")}
    headers = [[name, *text_field(name, content).values()] for name, content in record.get("headers") or ()]
    return orjson.dumps(
        {**told, **_field("key", record["key"]), **_field("value", record["value"]), "headers": headers},
        option=orjson.OPT_APPEND_NEWLINE,
    )


def read_recording(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; those that `kafka consume --json` printed as well."""
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            told = orjson.loads(line)
            yield {
                **{name: told[name] for name in ("topic", "partition", "offset", "timestamp") if name in told},
                "key": _content(told, "key"),
                "value": _content(told, "value"),
                "headers": [{"key": name, "value": value} for name, value in _headers(told.get("headers"))],
            }
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            hint = "millrace record writes such files"
            raise FileUnusable(f"{path}:{number} is no record", why=str(error), hint=hint) from None


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    fields = text_field(name, content)
    return fields if len(fields) == 1 else {f"{name}_base64": fields[f"{name}_base64"]}


def _content(told: Mapping[str, Any], name: str) -> bytes | None:
    encoded, text = told.get(f"{name}_base64"), told.get(name)
    if encoded is not None:
        return b64decode(encoded, validate=True)
    return None if text is None else str(text).encode()


def _headers(told: Any) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(told, dict):  # as `kafka consume --json` has them
        told = [[name, one] for name, value in told.items() for one in (value if isinstance(value, list) else [value])]
    for name, text, *encoded in told or ():
        yield name, b64decode(encoded[0]) if encoded else None if text is None else str(text).encode()


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


_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
KEY, HEADERS = "key", "headers"
"""What a record has beside its value: both are masked whenever something is, unless they are to be kept."""


class UnmaskableColumn(Exception):
    """A record whose columns cannot be told apart: it may hold anything anywhere."""


class ColumnMasker:
    """What is put in the place of values, for columns that are named (within others as `user.name`).

    A record's key and the contents of its headers may repeat a column, so they are replaced too, unless `keep` names
    them. The names within an object are those of a struct's fields, and stay, unless `names` has its column: then it
    is a map, whose names are values as well. `phrase` makes several recordings agree; without one, each has its own.
    """

    def __init__(
        self,
        columns: Iterable[str],
        phrase: str | None = None,
        keep: Collection[str] = (),
        names: Collection[str] = (),
    ) -> None:
        self._columns, self._keep = tuple(dict.fromkeys((*columns, *names))), frozenset(keep)
        self._names = frozenset(names)
        self._secret = secrets.token_bytes(32) if phrase is None else hashlib.sha256(phrase.encode()).digest()
        self.met: set[str] = set()
        """The columns that some record had."""
        self.names: dict[str, set[str]] = {}
        """The names that stayed, by the columns that were masked around them."""

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record with its named columns, its key and its headers replaced."""
        if not self._columns:
            return dict(record)
        key, headers = record["key"], record.get("headers") or ()
        value = self._value(record["value"])
        if key is not None and KEY in self._columns:
            self.met.add(KEY)
        if headers and HEADERS in self._names:
            self.met.add(HEADERS)
        return {
            **record,
            "value": value,
            "key": key if KEY in self._keep else self._content(key, KEY),
            "headers": [(name, one if HEADERS in self._keep else self._content(one, HEADERS)) for name, one in headers],
        }

    def _value(self, value: bytes | None) -> bytes | None:
        """Where it has none of the columns, its bytes stay as they were."""
        if value is None:
            return None
        try:
            told = _read(value)
            if not isinstance(told, dict):
                raise UnmaskableColumn
        except UnmaskableColumn:
            if not {*self._columns} - {KEY, *(self._names & {HEADERS})}:  # nothing in it was asked for
                return value
            raise
        found = [self._replace(told, column, column) for column in self._columns if not self._within_other(column)]
        return _written(told) if any(found) else value

    def _content(self, content: bytes | None, part: str) -> bytes | None:
        """A key or a header, replaced as a whole: the same text in a column is replaced by the same."""
        if content is None:
            return None
        try:
            return _written(self._other(_read(content), part, part))
        except UnmaskableColumn:
            return self._masked(content).encode()

    def _replace(self, within: Any, path: str, column: str) -> bool:
        if isinstance(within, list):
            return sum(self._replace(one, path, column) for one in within) > 0
        if not isinstance(within, dict):
            return False
        found = path in within
        if found:
            within[path] = self._other(within[path], column, column)
            self.met.add(column)
        name, _, below = path.partition(".")
        return (bool(below) and name in within and self._replace(within[name], below, column)) or found

    def _within_other(self, column: str) -> bool:
        """Whether a column lies in another one that is masked, and is masked with it."""
        return any(column.startswith(f"{one}.") for one in self._columns)

    def _other(self, value: Any, column: str, path: str) -> Any:
        """Another value of the same kind; null stays so, and of yes and no, which would tell each other, it is no.

        What lies at a path that is a column of its own is masked as that one.
        """
        if path in self._columns:
            self.met.add(path)
            column = path
        if isinstance(value, list):
            return [self._other(one, column, path) for one in value]
        if isinstance(value, dict):
            return {self._name(name, column): self._other(one, column, f"{path}.{name}") for name, one in value.items()}
        if isinstance(value, _Number):
            return self._number(value)
        if value is None or isinstance(value, bool):
            return None if value is None else False
        return self._masked(value.encode("utf-8", "surrogatepass"))

    def _name(self, name: str, column: str) -> str:
        """A name within an object; of a map it is replaced as a value would be, a number by a number."""
        if column not in self._names:
            self.names.setdefault(column, set()).add(name)
            return name
        if _WHOLE.fullmatch(name):
            return self._number(_Number(name)).text
        return self._masked(name.encode("utf-8", "surrogatepass"))

    def _number(self, value: _Number) -> _Number:
        try:
            return _Number(other_number(value.text, self._secret))
        except (ValueError, ArithmeticError) as error:  # thousands of digits, or an exponent of them
            raise UnmaskableColumn from error

    def _masked(self, text: bytes) -> str:
        return f"masked-{hashlib.blake2b(text, key=self._secret, digest_size=8).hexdigest()}"


class _Number:
    """A number as it is written: those that are not masked stay so, digit by digit."""

    def __init__(self, text: str) -> None:
        self.text = text


def _read(content: bytes) -> Any:
    try:
        return json.loads(
            content.decode("utf-8"),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse,
            object_pairs_hook=_object,
        )
    except (ValueError, RecursionError) as error:
        raise UnmaskableColumn from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise UnmaskableColumn  # a name that is there twice: only one of the two would be masked
    return found


def _refuse(word: str) -> Any:
    raise UnmaskableColumn(word)


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_as_written)
    except orjson.JSONEncodeError as error:
        raise UnmaskableColumn from error


def _as_written(value: Any) -> Any:
    if isinstance(value, _Number):
        return orjson.Fragment(value.text)
    raise TypeError
