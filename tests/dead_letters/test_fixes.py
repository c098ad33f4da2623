"""Fixes in Python and in SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.dead_letters.fixes import apply_fix, python_fix, sql_fix
from millrace.dead_letters.letter import DeadLetter
from millrace.errors import FileUnusable, InputError, InvalidOption, InvalidSql

LETTER = DeadLetter(
    value=b'{"id": NaN}',
    key=b"ann",
    headers=(("trace", b"x1"), ("raw", b"\xff")),
    topic="posts",
    partition=2,
    offset=7,
    timestamp=1000,
    reason="field 'id': not a number",
    pipeline="p",
    source="s",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with fixes."""
    path = tmp_path / "mend.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from millrace.clients.kafka.record import Record\n"
        "def as_bytes(letter): return letter.value.replace(b'NaN', b'0')\n"
        "def as_text(letter): return letter.topic\n"
        "def as_letter(letter): return replace(letter, value=b'x', key=b'bob')\n"
        "def as_record(letter): return Record(b'y')\n"
        "def leave(letter): return None\n"
        "def wrong(letter): return 5\n"
        "def broken(letter):\n"
        "    raise ValueError('not this one')\n"
        "def deep(letter):\n"
        "    import json\n"
        "    return json.loads('{')\n"
    )
    return path


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("as_bytes", b'{"id": 0}', b"ann"),
        ("as_text", b"posts", b"ann"),
        ("as_letter", b"x", b"bob"),
        ("as_record", b"y", None),
    ],
)
def test_a_function_gives_bytes_text_a_letter_or_a_record(file: Path, name: str, value: bytes, key: bytes) -> None:
    fixed = apply_fix(python_fix(f"{file}:{name}"), LETTER)
    assert isinstance(fixed, DeadLetter)
    assert (fixed.value, fixed.key, fixed.headers, fixed.offset) == (value, key, LETTER.headers, 7)


def test_a_function_may_leave_a_letter_and_may_fail(file: Path) -> None:
    assert apply_fix(python_fix(f"{file}:leave"), LETTER) is None
    assert apply_fix(python_fix(f"{file}:broken"), LETTER) == "ValueError: not this one (mend.py:10)"
    said = str(apply_fix(python_fix(f"{file}:deep"), LETTER))
    assert said.startswith("JSONDecodeError: ")
    assert said.endswith("(mend.py:13)"), "not a line of the library"
    assert apply_fix(python_fix(f"{file}:wrong"), LETTER) == (
        "TypeError: the fix gave an int, not bytes, text, a letter or None"
    )


def test_what_is_no_function_is_refused(file: Path) -> None:
    for spec, kind in {
        "mend.py": InvalidOption,
        "mend:fix": InvalidOption,
        f"{file}:none": InvalidOption,
        "nowhere.py:fix": FileUnusable,
    }.items():
        with pytest.raises(kind):
            python_fix(spec)
    file.write_text("1 / 0\n")
    with pytest.raises(FileUnusable) as raised:
        python_fix(f"{file}:fix")
    assert "ZeroDivisionError" in raised.value.message
    assert "mend.py:1" in raised.value.message


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("replace(value, 'NaN', 'null')", b'{"id": null}'),
        ("regexp_replace(value, 'N.N', '0')", b'{"id": 0}'),
        (
            "key || topic || partition || offset || timestamp || source || pipeline || attempts",
            b"annposts271000sp1",
        ),
        ("json_extract(headers, '$.trace')", b"x1"),
        ("CASE WHEN reason REGEXP 'number$' THEN json_set('{}', '$.id', 4) END", b'{"id":4}'),
        ("x'ff00'", b"\xff\x00"),
        ("1 + 1 -- a comment", b"2"),
    ],
)
def test_an_expression_gives_the_new_value(expression: str, value: bytes) -> None:
    fixed = apply_fix(sql_fix(expression), LETTER)
    assert isinstance(fixed, DeadLetter)
    assert (fixed.value, fixed.key) == (value, b"ann")


def test_an_expression_may_leave_a_letter_and_may_fail() -> None:
    assert apply_fix(sql_fix("CASE WHEN file IS NOT NULL THEN value END"), LETTER) is None
    failed = apply_fix(sql_fix("json_extract(value, '$.id')"), LETTER)
    assert isinstance(failed, str)
    assert "malformed JSON" in failed


def test_an_expression_that_never_ends_is_ended() -> None:
    endless = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n)"
    assert "interrupted" in str(apply_fix(sql_fix(endless), LETTER))


@pytest.mark.parametrize("expression", ["", "valu", "value); ATTACH 'x' AS y; --", "SELECT", "nothing(value)"])
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidSql):
        sql_fix(expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("replace(value, 'NaN', 'null'", "is not whole"),
        ("value +", "is not whole"),
        ("value /* why", "is not whole"),
        ("replace(value, 'NaN", "a quote not closed"),
        ("value value2 value3", 'near "value2": syntax error'),
        ("valu", "no such column: valu"),
    ],
)
def test_only_what_the_user_wrote_is_quoted(expression: str, said: str) -> None:
    with pytest.raises(InvalidSql) as raised:
        sql_fix(expression)
    assert said in raised.value.message
    assert repr(expression) in raised.value.message
    assert "FROM" not in raised.value.message


@pytest.mark.parametrize("expression", ["", " \n"])
def test_an_empty_fix(expression: str) -> None:
    with pytest.raises(InvalidSql, match="the fix is empty"):
        sql_fix(expression)


def test_bytes_that_are_no_text_stay_bytes() -> None:
    raw = DeadLetter(value=b"\xff\x00", file="f", reason="r")
    assert apply_fix(sql_fix("substr(value, 1, 1)"), raw) == DeadLetter(value=b"\xff", file="f", reason="r")
    assert issubclass(InvalidSql, InputError)
