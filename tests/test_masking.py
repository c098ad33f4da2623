"""What is known to be a secret is in no text that is shown."""

from __future__ import annotations

import json
import pickle
from base64 import b64encode
from urllib.parse import quote

import pytest

from millrace.errors import MillraceError, Problem
from millrace.masking import bytes_without_secrets, masked, without_passwords, without_secrets
from millrace.pipeline.secret import Secret

VALUE = 'q7"\\x §&kept-back'


@pytest.fixture(autouse=True)
def known() -> Secret:
    return Secret(VALUE)


@pytest.mark.parametrize(
    "form", [VALUE, json.dumps(VALUE), json.dumps(VALUE, ensure_ascii=False), repr(VALUE), quote(VALUE, safe="")]
)
def test_a_secret_in_any_form(form: str) -> None:
    assert "kept-back" not in without_secrets(f"before {form} after")
    assert b"kept-back" not in bytes_without_secrets(f"before {form} after".encode())


def test_a_secret_in_a_header() -> None:
    assert without_secrets(b64encode(VALUE.encode()).decode()) == "***"


def test_a_secret_within_a_secret() -> None:
    Secret("https://me:part-of-4n-address@host/")
    Secret('module required username="ann" password="part-of-4-line";')
    assert without_secrets("part-of-4n-address, part-of-4-line") == "***, ***"


def test_a_key_line_by_line() -> None:
    line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
    Secret(f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n")
    assert without_secrets(f"said {line}") == "said ***"


@pytest.mark.parametrize("word", ["1048576", "-12.345678", "secret", "password", "kafka", "a1b2"])
def test_what_is_a_word_a_number_or_too_short_is_left_in_peace(word: str) -> None:
    Secret(word)
    assert without_secrets(f"no {word} here") == f"no {word} here"


def test_errors_and_problems() -> None:
    error = MillraceError(f"a {VALUE}", why=f"b {VALUE} http://me:other@host", hint=f"c {VALUE}")
    problem = Problem("a.b", f"a {VALUE}", hint=VALUE, why=VALUE)
    assert "kept-back" not in "".join([*error.lines(), *problem.lines(), str(error), repr(error), repr(problem)])
    assert "other" not in "".join(error.lines())


def test_a_secret_is_known_where_it_arrives() -> None:
    packed = pickle.dumps(Secret("arrives-1n-pieces")).replace(b"1n", b"2n")
    assert isinstance(pickle.loads(packed), Secret)  # noqa: S301 - our own
    assert without_secrets("arrives-2n-pieces") == "***"


def test_passwords_that_nobody_knows() -> None:
    assert without_passwords("https://me:unheard@host") == "https://me:***@host"
    assert masked("password=unheard, token: 'unheard2'") == "password=***, token: ***"
