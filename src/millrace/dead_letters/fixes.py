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
        match self._function(letter):
            case None | DeadLetter() as result:
                return result
            case Record() as record:
                return replace(letter, value=record.value, key=record.key, headers=record.headers or letter.headers)
            case str() as text:
                return replace(letter, value=text.encode("utf-8"))
            case bytes() | bytearray() | memoryview() as content:
                return replace(letter, value=bytes(content))
            case other:
                kind = type(other).__name__
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
        function = runpy.run_path(file, run_name="millrace_fix").get(name)
    except (Exception, SystemExit) as error:
        raise FileUnusable(f"{file} raised {fix_failure(error, file)}", place=SourceLocation(file)) from error
    if not callable(function):
        raise InvalidOption(f"{file} has no function {name!r}", hint="--fix takes FILE.py:function")
    return Fix(spec, function, file)


def sql_fix(expression: str) -> Fix:
    """The fix that is a SQL expression over a letter's columns, in SQLite's words: text or bytes; NULL leaves it."""
    if not expression.strip():
        hint = "write an expression for the new value: replace(value, 'NaN', 'null')"
        raise InvalidSql("the fix is empty", hint=hint)
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
        value = database.execute(query, _values(letter)).fetchone()[0]
        return str(value) if isinstance(value, int | float) else value

    return Fix(expression, evaluate)


def _problem(expression: str, message: str) -> str:
    """SQLite's words about an expression, without those that stand around it and that the user did not write."""
    if message.startswith("unrecognized token"):
        bad = message.partition('"')[2].partition("\n")[0].removesuffix('"')
        return f"cannot be read from {bad} on: is a quote not closed?"
    near = _NEAR.match(message)
    if message == "incomplete input" or (near and near[1] not in expression):
        return "is not whole: something is missing at its end, a closing parenthesis perhaps"
    return f"is no SQL expression: {message}"


def fix_failure(error: BaseException, file: str | None = None) -> str:
    """What a fix raised, and on which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if file is not None and Path(frame.filename).absolute() == Path(file).absolute()]
    other = [frame for frame in frames if "millrace" not in Path(frame.filename).parts]
    at = (own or other)[-1:]
    where = f" ({Path(at[0].filename).name}:{at[0].lineno})" if at else ""
    return f"{type(error).__name__}: {error}{where}" if str(error) else f"{type(error).__name__}{where}"


def _values(letter: DeadLetter) -> list[Any]:
    headers = orjson.dumps({name: text_or_none(content) for name, content in letter.headers}).decode()
    contents = [getattr(letter, name) for name in _BYTES]
    texts = [content if (text := text_or_none(content)) is None else text for content in contents]
    return [*texts, headers, *(getattr(letter, name) for name in _PLAIN)]


def _regexp_replace(text: str | None, pattern: str, by: str) -> str | None:
    return None if text is None else re.sub(pattern, by, text)


def _regexp(pattern: str, text: str | None) -> bool | None:
    return None if text is None else re.search(pattern, text) is not None


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
