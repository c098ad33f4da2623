"""Columns of records are replaced by others: the same value always by the same one, and none can be read back."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

KEY = "key"
"""The name that masks the record's key, where the value has no such column."""


class Unmaskable(Exception):
    """A record whose columns cannot be told apart: it may hold anything anywhere."""


class Disguise:
    """What is put in the place of values, for columns that are named (within others as `user.name`).

    `phrase` makes several recordings agree; without one, each has its own.
    """

    def __init__(self, columns: Iterable[str], phrase: str | None = None) -> None:
        self._columns = tuple(columns)
        self._secret = secrets.token_bytes(32) if phrase is None else hashlib.sha256(phrase.encode()).digest()
        self.met: set[str] = set()
        """The columns that some record had."""

    def record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record with its named columns replaced; where it has none of them, its bytes stay as they were."""
        if not self._columns:
            return dict(record)
        key, value = record["key"], record["value"]
        if KEY in self._columns and key is not None:
            self.met.add(KEY)
            key = str(self._other(key.decode("utf-8", "replace"))).encode()
        named = [column for column in self._columns if column != KEY]
        return {**record, "key": key, "value": self._value(value, named) if named and value is not None else value}

    def _value(self, value: bytes, columns: list[str]) -> bytes:
        try:
            told = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise Unmaskable from error
        if not isinstance(told, dict):
            raise Unmaskable
        found = [self._replace(told, column.split("."), column) for column in columns]
        return orjson.dumps(told) if any(found) else value

    def _replace(self, within: Any, path: list[str], column: str) -> bool:
        if isinstance(within, list):
            return sum(self._replace(one, path, column) for one in within) > 0
        if not isinstance(within, dict) or path[0] not in within:
            return False
        if len(path) > 1:
            return self._replace(within[path[0]], path[1:], column)
        within[path[0]] = self._other(within[path[0]])
        self.met.add(column)
        return True

    def _other(self, value: Any) -> Any:
        """Another value of the same kind; what is null stays so, as does yes or no, which tells nobody apart."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, list):
            return [self._other(one) for one in value]
        if isinstance(value, dict):
            return {name: self._other(one) for name, one in value.items()}
        told = repr(float(value)) if isinstance(value, int | float) else str(value)
        digest = hashlib.blake2b(told.encode(), key=self._secret, digest_size=8).hexdigest()
        if isinstance(value, int | float):
            number = int(digest[:7], 16)
            return number if isinstance(value, int) else number / 16.0
        return f"masked-{digest[:12]}"
