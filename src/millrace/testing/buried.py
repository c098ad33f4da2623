"""Expected dead letters beside those that were buried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millrace.clients import letters as forms
from millrace.clients.letters import Letter
from millrace.errors import InvalidTest, did_you_mean
from millrace.testing.comparing import Row, counted, expected_rows, table_of
from millrace.units import so_many

ANY = "any"
"""What a test says in the place of dead letters that it does not look at."""
_PARTS = ("value", "key", "reason", "topic", "partition", "offset", "file")


def dead_difference(source: str, found: Sequence[Letter], expected: Any, folder: Path) -> str | None:
    """What is not as expected: their number, or a row each, of which every part that is named must be in it."""
    if expected == ANY:
        return None
    if is_count(expected):
        unlike = f"{source}: {so_many(len(found), 'dead letter')}, not {expected}{listed(found)}"
        return None if len(found) == expected else unlike
    rows = expected_rows(expected, folder)
    for name in (name for row in rows for name in row if name not in _PARTS):
        raise InvalidTest(f"a dead letter has no {name!r}", hint=did_you_mean(name, _PARTS))
    return _unmatched(source, rows, [_letter(one) for one in found])


def unexpected(source: str, letters: Sequence[Letter]) -> str:
    """Dead letters that a test says nothing about, in words."""
    said = f"{source}: {so_many(len(letters), 'dead letter')}, and the test expects none"
    return f"{said}; it may say dead: {{{source}: {len(letters)}}}, or {ANY}{listed(letters)}"


def is_count(expected: Any) -> bool:
    """Whether a test says how many."""
    return isinstance(expected, int) and not isinstance(expected, bool)


def listed(letters: Sequence[Letter]) -> str:
    """Letters, one a line."""
    told = [_letter(one) for one in letters]
    return "".join(f"\n  {one['value']}: {one['reason']}" for one in told)


def plain_letters(letters: Sequence[Letter], like: Any, folder: Path) -> Any:
    """Dead letters as a test would expect them: counted, or told by the same parts, as those before were."""
    if is_count(like) or like == ANY:
        return len(letters)
    named = dict.fromkeys(name for row in expected_rows(like, folder) for name in row)
    return [{name: _letter(one)[name] for name in named or ("value", "reason")} for one in letters]


def _unmatched(source: str, rows: Sequence[Row], found: list[dict[str, Any]]) -> str | None:
    takers: dict[int, int] = {}
    missing = [row for at, row in enumerate(rows) if not _seated(at, rows, found, takers, set())]
    left = [one for at, one in enumerate(found) if at not in takers]
    if not missing and not left:
        return None
    names = list(dict.fromkeys(["value", "reason", *(name for row in missing for name in row)]))
    shown = [("-", [row.get(name) for name in names]) for row in missing]
    shown += [("+", [one.get(name) for name in names]) for one in left]
    return f"dead letters of {source}: {counted(len(missing), len(left))}\n{table_of(names, shown)}"


def _seated(at: int, rows: Sequence[Row], found: list[dict[str, Any]], takers: dict[int, int], asked: set[int]) -> bool:
    """Give a row a letter that fits it; one that another row has, if that one can have another."""
    for number, letter in enumerate(found):
        if number in asked or not all(_within(value, letter[name]) for name, value in rows[at].items()):
            continue
        asked.add(number)
        if number not in takers or _seated(takers[number], rows, found, takers, asked):
            takers[number] = at
            return True
    return False


def _letter(letter: Letter) -> dict[str, Any]:
    return {name: _told(getattr(letter, name)) for name in _PARTS}


def _told(part: Any) -> Any:
    """Bytes as text, or in hexadecimal."""
    if not isinstance(part, bytes):
        return part
    text = forms.text(part)
    return part.hex() if text is None else text


def _within(expected: Any, found: Any) -> bool:
    """Whether a part of a letter is what a test says; of words it may say a part."""
    return expected == found or (isinstance(expected, str) and isinstance(found, str) and expected in found)
