"""Fixes: a Python function or a SQL expression that changes a dead letter before it is sent again.

- `python_fix` loads `FILE.py:function`, `sql_fix` compiles an expression of SQLite.
- `apply_fix` runs a fix on a letter; the letter stays where it is if the fix fails or returns None.
"""

from __future__ import annotations

import re
import runpy
import sqlite3
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from millrace.clients.kafka.record import Record, text_or_none
from millrace.dead_letters.letter import DeadLetter
from millrace.errors import FileUnusable, InvalidOption, InvalidSql, SourceLocation

_MAX_SQLITE_STEPS = 10_000_000
"""Steps of SQLite for one letter: a second or so."""
_MAX_VALUE_BYTES = 100_000_000
"""Bytes that an expression may make."""
_NEAR = re.compile(r'near "(.*)": syntax error', re.DOTALL)
_BYTES = ("value", "key")
_PLAIN = ("topic", "partition", "offset", "timestamp", "file", "reason", "pipeline", "source", "attempts")
FIX_COLUMNS = (*_BYTES, "headers", *_PLAIN)
"""What a SQL expression may use."""


@dataclass(frozen=True)
class Fix:
    """A function that changes letters; its name is stored with each letter that was sent."""

    name: str | None
    _function: Callable[[DeadLetter], object]
    file: str | None = None
    """The user's file that it is in."""

    def __call__(self, letter: DeadLetter) -> DeadLetter | None:
        """The letter as it is to be sent; None leaves it where it is. Raises what the fix raises."""
        made = self._function(letter)
        match made:
            case None:
                return None
            case DeadLetter():
                return made
            case Record():
                return replace(letter, value=made.value, key=made.key, headers=made.headers or letter.headers)
            case str():
                return replace(letter, value=made.encode("utf-8"))
            case bytes() | bytearray() | memoryview():
                return replace(letter, value=bytes(made))
        kind = type(made).__name__
        raise TypeError(f"the fix gave {'an' if kind[0] in 'aeiou' else 'a'} {kind}, not bytes, text, a letter or None")


NO_FIX = Fix(None, lambda letter: letter)


def python_fix(spec: str) -> Fix:
    """The fix `FILE.py:function`."""
    file, colon, name = spec.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise InvalidOption(f"{spec!r} is no fix", hint="write it as fix.py:function")
    if not Path(file).is_file():
        raise FileUnusable(f"there is no file {file}", hint="--fix takes FILE.py:function")
    folder = str(Path(file).absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python FILE` does
    try:
        found = runpy.run_path(file, run_name="millrace_fix").get(name)
    except (Exception, SystemExit) as error:
        raise FileUnusable(f"{file} raised {fix_failure(error, file)}", place=SourceLocation(file)) from error
    if not callable(found):
        raise InvalidOption(f"{file} has no function {name!r}", hint="--fix takes FILE.py:function")
    return Fix(spec, found, file)


def sql_fix(expression: str) -> Fix:
    """The fix that is a SQL expression over a letter's columns, in SQLite's words: text or bytes; NULL leaves it."""
    if not expression.strip():
        raise InvalidSql(
            "the fix is empty", hint="write an expression for the new value: replace(value, 'NaN', 'null')"
        )
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.create_function("regexp_replace", 3, _regexp_replace, deterministic=True)
    database.create_function("regexp", 2, _regexp, deterministic=True)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    database.set_authorizer(_may)
    columns = ", ".join(f"? AS {name}" for name in FIX_COLUMNS)
    query = f"SELECT (\n{expression}\n) FROM (SELECT {columns})"  # noqa: S608 - it is asked for, and may only compute
    try:
        database.execute(f"EXPLAIN {query}", [None] * len(FIX_COLUMNS))
    except (sqlite3.Error, sqlite3.Warning) as error:
        hint = f"it may use the columns {', '.join(FIX_COLUMNS)}, and the functions of SQLite and regexp_replace"
        raise InvalidSql(f"the fix {expression!r} {_problem(expression, str(error))}", hint=hint) from None

    def evaluate(letter: DeadLetter) -> object:
        steps = iter(range(_MAX_SQLITE_STEPS // 10_000))
        database.set_progress_handler(lambda: next(steps, None) is None, 10_000)
        made = database.execute(query, _values(letter)).fetchone()[0]
        return str(made) if isinstance(made, int | float) else made

    return Fix(expression, evaluate)


def _problem(expression: str, said: str) -> str:
    """SQLite's words about an expression, without those that stand around it and that the user did not write."""
    if said.startswith("unrecognized token"):
        bad = said.partition('"')[2].partition("\n")[0].removesuffix('"')
        return f"cannot be read from {bad} on: is a quote not closed?"
    near = _NEAR.match(said)
    if said == "incomplete input" or (near and near[1] not in expression):
        return "is not whole: something is missing at its end, a closing parenthesis perhaps"
    return f"is no SQL expression: {said}"


def fix_failure(error: BaseException, file: str | None = None) -> str:
    """What a fix raised, and on which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if file is not None and Path(one.filename).absolute() == Path(file).absolute()]
    other = [one for one in frames if "millrace" not in Path(one.filename).parts]
    at = (own or other)[-1:]
    where = f" ({Path(at[0].filename).name}:{at[0].lineno})" if at else ""
    return f"{type(error).__name__}: {error}{where}" if str(error) else f"{type(error).__name__}{where}"


def _values(letter: DeadLetter) -> list[Any]:
    headers = orjson.dumps({name: text_or_none(content) for name, content in letter.headers}).decode()
    bytes_ = [_readable(getattr(letter, name)) for name in _BYTES]
    return [*bytes_, headers, *(getattr(letter, name) for name in _PLAIN)]


def _readable(content: bytes | None) -> str | bytes | None:
    """Text where bytes are text."""
    words = text_or_none(content)
    return content if words is None else words


def _regexp_replace(words: str | None, pattern: str, by: str) -> str | None:
    return None if words is None else re.sub(pattern, by, words)


def _regexp(pattern: str, words: str | None) -> bool | None:
    """`words REGEXP pattern`."""
    return None if words is None else re.search(pattern, words) is not None


def _may(action: int, *_: object) -> int:
    """An expression computes; it makes no tables and opens no files."""
    computes = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in computes else sqlite3.SQLITE_DENY


def apply_fix(fix: Fix, letter: DeadLetter) -> DeadLetter | str | None:
    """Return the letter to send, None if it stays, or why the fix failed."""
    try:
        return fix(letter)
    except Exception as error:  # a fix may raise anything; the letter stays, with this reason
        return fix_failure(error, fix.file)
