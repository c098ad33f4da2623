"""Recordings: a slice of a topic in a file, with columns masked.

- `recording_line` and `read_recording` write and read a record a line, with its exact bytes.
- `ColumnMasker` replaces columns, keys and headers: equal values by equal ones, and none can be recovered.
- `NumberMasker` replaces numbers by numbers of the same kind and range.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from millrace.clients.kafka.record import text_field
from millrace.errors import FileUnusable

_INT, _BIGINT = 2**31, 2**63
_MAX_WHOLE_DIGITS = 40
"""Digits of a whole number that is written with an exponent and is still masked as a whole number."""
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")


def recording_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line: text where bytes are UTF-8, else base64 under the name with `_base64`."""
    metadata = {name: record[name] for name in ("topic", "partition", "offset", "timestamp")}
    headers = [[name, *text_field(name, content).values()] for name, content in record.get("headers") or ()]
    return orjson.dumps(
        {**metadata, **_field("key", record["key"]), **_field("value", record["value"]), "headers": headers},
        option=orjson.OPT_APPEND_NEWLINE,
    )


def read_recording(data: bytes, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, which may also be the output of `kafka consume --json`."""
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            fields = orjson.loads(line)
            yield {
                **{name: fields[name] for name in ("topic", "partition", "offset", "timestamp") if name in fields},
                "key": _content(fields, "key"),
                "value": _content(fields, "value"),
                "headers": [{"key": name, "value": value} for name, value in _headers(fields.get("headers"))],
            }
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            hint = "millrace record writes such files"
            raise FileUnusable(f"{path}:{number} is no record", why=str(error), hint=hint) from None


def _field(name: str, content: bytes | None) -> dict[str, str | None]:
    fields = text_field(name, content)
    return fields if len(fields) == 1 else {f"{name}_base64": fields[f"{name}_base64"]}


def _content(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded, text = fields.get(f"{name}_base64"), fields.get(name)
    if encoded is not None:
        return b64decode(encoded, validate=True)
    return None if text is None else str(text).encode()


def _headers(headers: Any) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(headers, dict):  # as `kafka consume --json` prints them
        lists = {name: value if isinstance(value, list) else [value] for name, value in headers.items()}
        headers = [[name, value] for name, values in lists.items() for value in values]
    for name, text, *encoded in headers or ():
        yield name, b64decode(encoded[0]) if encoded else None if text is None else str(text).encode()


class NumberMasker:
    """Replaces numbers by keyed hashes.

    A number stays whole if it was, keeps its sign and its number of decimals, and still fits an int or a bigint if it
    did. Equal numbers are replaced by equal ones, and different ones by different ones, for which the numbers of a
    recording are remembered: when two have the same hash, the later one gets another.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._masked: dict[tuple[int, bool], int] = {}
        self._used: set[tuple[int, bool]] = set()

    def mask(self, text: str) -> str:
        """Return the number that replaces one of JSON."""
        if text.lstrip("-").isdigit():
            return str(self._integer(int(text)))
        number = Decimal(text)
        exponent = int(number.as_tuple().exponent)
        digits = int("".join(map(str, number.as_tuple().digits)))
        while digits and digits % 10 == 0:
            digits, exponent = digits // 10, exponent + 1
        signed = -digits if number.is_signed() else digits
        if not digits or (exponent >= 0 and exponent + len(str(digits)) <= _MAX_WHOLE_DIGITS):
            return f"{self._integer(signed * 10 ** max(exponent, 0))}.0"
        masked = self._integer(signed, has_decimals=True)
        return str(Decimal((masked < 0, tuple(map(int, str(abs(masked)))), exponent))).replace("E", "e")

    def _integer(self, number: int, *, has_decimals: bool = False) -> int:
        if (number, has_decimals) in self._masked:
            return self._masked[number, has_decimals]
        for masked in self._hashes(number):
            # As the digits of a number with decimals, a multiple of ten would have one decimal fewer.
            if (masked, has_decimals) not in self._used and not (has_decimals and masked % 10 == 0):
                break
        self._masked[number, has_decimals] = masked
        self._used.add((masked, has_decimals))
        return masked

    def _hashes(self, number: int) -> Iterator[int]:
        """Yield hashes of a number that are in its range: of ints, of bigints, or of numbers with as many bits."""
        magnitude = number if number >= 0 else -1 - number
        bits = magnitude.bit_length()
        low, high = (
            (0, _INT) if magnitude < _INT else (_INT, _BIGINT) if magnitude < _BIGINT else (1 << bits - 1, 1 << bits)
        )
        for attempt in count():
            digest = hashlib.shake_256(self._secret + f"{attempt} {number}".encode()).digest(bits // 8 + 16)
            masked = low + int.from_bytes(digest) % (high - low)
            yield masked if number >= 0 else -1 - masked


KEY, HEADERS = "key", "headers"
"""The parts of a record beside its value: both are masked whenever a column is, unless they are to be kept."""


class UnmaskableColumn(Exception):
    """A record whose columns cannot be found: any of its bytes may have to be masked."""


class ColumnMasker:
    """Replaces the values of columns (`user.name` is one within another).

    A record's key and headers may repeat a column, so they are replaced as well, unless `keep` names them. The names
    within an object are those of a struct's fields and stay, unless `names` has its column: then it is a map, and its
    names are values too. Recordings with the same `phrase` mask in the same way; without one, each has its own key.
    """

    def __init__(
        self, columns: Iterable[str], phrase: str | None = None, keep: Collection[str] = (), names: Collection[str] = ()
    ) -> None:
        self._columns, self._keep = tuple(dict.fromkeys((*columns, *names))), frozenset(keep)
        self._names = frozenset(names)
        self._secret = secrets.token_bytes(32) if phrase is None else hashlib.sha256(phrase.encode()).digest()
        self._numbers = NumberMasker(self._secret)
        self.met: set[str] = set()
        """The columns that some record had."""
        self.names: dict[str, set[str]] = {}
        """The names that stayed, by the masked column that they are in."""

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record with its columns, its key and its headers replaced."""
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
            "headers": [
                (name, content if HEADERS in self._keep else self._content(content, HEADERS))
                for name, content in headers
            ],
        }

    def _value(self, value: bytes | None) -> bytes | None:
        """Mask a value; its bytes stay as they are if it has none of the columns."""
        if value is None:
            return None
        try:
            if not isinstance(fields := _read(value), dict):
                raise UnmaskableColumn
        except UnmaskableColumn:
            if not {*self._columns} - {KEY, *(self._names & {HEADERS})}:  # none of the columns is in values
                return value
            raise
        within_others = tuple(f"{column}." for column in self._columns)
        outer = [column for column in self._columns if not column.startswith(within_others)]
        replaced = [self._replace(fields, column, column) for column in outer]
        return _written(fields) if any(replaced) else value

    def _content(self, content: bytes | None, part: str) -> bytes | None:
        """Mask a whole key or header: a text is replaced as the same text in a column is."""
        if content is None:
            return None
        try:
            return _written(self._masked(_read(content), part, part))
        except UnmaskableColumn:
            return self._masked_text(content).encode()

    def _replace(self, within: Any, path: str, column: str) -> bool:
        if isinstance(within, list):
            return sum(self._replace(element, path, column) for element in within) > 0
        if not isinstance(within, dict):
            return False
        present = path in within
        if present:
            within[path] = self._masked(within[path], column, column)
            self.met.add(column)
        name, _, below = path.partition(".")
        return (bool(below) and name in within and self._replace(within[name], below, column)) or present

    def _masked(self, value: Any, column: str, path: str) -> Any:
        """Return another value of the same type; null stays null, and a boolean becomes false.

        A path that is a column of its own is masked as that column.
        """
        if path in self._columns:
            self.met.add(path)
            column = path
        if isinstance(value, list):
            return [self._masked(element, column, path) for element in value]
        if isinstance(value, dict):
            return {
                self._name(name, column): self._masked(field, column, f"{path}.{name}") for name, field in value.items()
            }
        if isinstance(value, _Number):
            return self._number(value)
        if value is None or isinstance(value, bool):
            return None if value is None else False
        return self._masked_text(value.encode("utf-8", "surrogatepass"))

    def _name(self, name: str, column: str) -> str:
        """Return a name within an object; that of a map is replaced as a value would be."""
        if column not in self._names:
            self.names.setdefault(column, set()).add(name)
            return name
        if _INTEGER.fullmatch(name):
            return self._number(_Number(name)).text
        return self._masked_text(name.encode("utf-8", "surrogatepass"))

    def _number(self, value: _Number) -> _Number:
        try:
            return _Number(self._numbers.mask(value.text))
        except (ValueError, ArithmeticError) as error:  # thousands of digits, or an exponent of them
            raise UnmaskableColumn from error

    def _masked_text(self, text: bytes) -> str:
        return f"masked-{hashlib.blake2b(text, key=self._secret, digest_size=8).hexdigest()}"


class _Number:
    """A number as it is written: unmasked ones keep every digit."""

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
    if len(fields := dict(pairs)) != len(pairs):
        raise UnmaskableColumn  # a duplicate name: only one of the two would be masked
    return fields


def _refuse(word: str) -> Any:
    raise UnmaskableColumn(word)


def _written(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=lambda number: orjson.Fragment(number.text))
    except orjson.JSONEncodeError as error:
        raise UnmaskableColumn from error
