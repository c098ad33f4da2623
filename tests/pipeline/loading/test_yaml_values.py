"""Values mean what YAML 1.2 says, take in the environment, and keep secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import Problem
from millrace.pipeline.secret import Secret

from ..conftest import Read


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("5", 5),
        ("-5", -5),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("007", "007"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("'5'", "5"),
        ("'true'", "true"),
        ("!!str 5", "5"),
        ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
        (".inf", ".inf"),
        ("[1, [a]]", (1, ("a",))),
        ("{b: 1, a: {0: x}}", (("a", (("0", "x"),)), ("b", 1))),
    ],
)
def test_values_mean_what_yaml_1_2_says(read: Read, written: str, meant: object) -> None:
    model, problems = read(f"name: a\nsources: {{x: {{kafka: t, option: {written}}}}}")
    assert problems == []
    assert model is not None
    assert dict(model.sources[0].connection.options)["option"] == meant


def test_an_option_without_a_value_is_left_out(read: Read) -> None:
    model, _ = read("name: a\nsources: {x: {kafka: t, a: , b: null, c: ~}}")
    assert model is not None
    assert model.sources[0].connection.options == ()


def test_interpolation_is_in_values_only(read: Read) -> None:
    text = "name: ${NAME}\nsources:\n  x:\n    kafka: a-${NAME}\n"
    text += "    rows: '${N}'\n    more: ${N}\n    plain: $${N}\n    no: ${E:-}\n    or: ${E:-5}\n"
    model, problems = read(text, NAME="mine", N="7", E="")
    assert problems == []
    assert model is not None
    assert model.name == "mine"
    assert model.sources[0].connection.argument == "a-mine"
    assert dict(model.sources[0].connection.options) == {"rows": "7", "more": 7, "plain": "${N}", "or": 5}
    assert read("name: a\nsources: {'${NAME}': {kafka: t}}")[1] == []


def test_what_the_environment_holds_is_never_structure(read: Read) -> None:
    model, problems = read("name: a\nsources:\n  x:\n    kafka: ${T}", T="{a: [b, *c]}: # x\n- y ${T}")
    assert problems == []
    assert model is not None
    assert model.sources[0].connection.argument == "{a: [b, *c]}: # x\n- y ${T}"


SECRETS = """
name: a
sources:
  x:
    kafka: t
    password: ${PW}
    config: {sasl.jaas.config: 'x ${PW} y', group.id: '${PW}', client.id: plain}
    url: https://me:${PW}@host/
sinks:
  - {from: x, console: , api_key: "${PW}", mode: "${PW}"}
"""


def test_secrets_are_used_and_not_shown(read: Read, problems: Callable[..., list[Problem]]) -> None:
    model, _ = read(SECRETS, PW="hunter2")
    assert model is not None
    assert "hunter2" not in repr(model).replace("mode='hunter2'", "")  # a mode is no secret
    options = dict(model.sources[0].connection.options)
    assert options["password"] == "hunter2"
    assert f"{options['password']}" == "hunter2"
    assert dict(options["config"])["sasl.jaas.config"] == "x hunter2 y"
    assert isinstance(dict(options["config"])["group.id"], Secret)
    shown = "\n".join(line for one in problems(SECRETS, PW="hunter2") for line in one.lines())
    assert "hunter2" not in shown.replace("unknown mode 'hunter2'", "")


def test_numbers_and_columns_of_the_environment_are_no_secrets(read: Read) -> None:
    source = "  x:\n    kafka: t\n    config:\n      max.bytes: ${MAX}\n"
    text = f"name: a\nsources:\n{source}sinks:\n  - {{from: x, kafka: o, key: '${{KEY}}'}}\n"
    model, _ = read(text, MAX="1048576", KEY="user_id")
    assert model is not None
    assert dict(dict(model.sources[0].connection.options)["config"])["max.bytes"] == 1048576
    assert not isinstance(dict(model.sinks[0].connection.options)["key"], Secret)


def test_a_secret_in_plain_text_is_told_and_not_shown(problems: Callable[..., list[Problem]]) -> None:
    text = (
        "name: a\n"
        "sources:\n"
        "  x:\n"
        "    kafka: t\n"
        "    key: tag\n"
        "    password: hunter2\n"
        "    token: ${T:-hunter2}\n"
        "    secret: ${T}\n"
        "    config: {sasl.password: hunter2, ssl.key.location: /a/b}\n"
        "    url: https://me:hunter2@host/\n"
        "sinks: [{from: x, console: }]\n"
    )
    told = problems(text, T="x")
    assert [(one.condition, one.severity, one.message.split()[0], one.place and one.place.line) for one in told] == [
        ("secret.plain", "error", "password", 6),
        ("secret.plain", "error", "token", 7),
        ("secret.plain", "error", "sasl.password", 9),
        ("secret.plain", "error", "url", 10),
    ]
    assert "hunter2" not in "".join(line for one in told for line in one.lines())


def test_secrets_from_files(read: Read, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("lies-1n-a-file\n")
    file.chmod(0o600)
    text = f"name: a\nsources:\n  x:\n    kafka: t\n    note: ${{file:{file}}}\n    password: ${{PW}}\n"
    model, problems = read(text, PW_FILE=str(file))
    assert problems == []
    assert model is not None
    options = dict(model.sources[0].connection.options)
    assert options == {"note": "lies-1n-a-file", "password": "lies-1n-a-file"}
    assert "lies" not in repr(model)
    file.chmod(0o644)
    assert [(one.condition, one.severity) for one in read(text, PW="x")[1]] == [("secret.readable", "warning")]
    file.unlink()
    told = [(one.condition, one.place and one.place.line) for one in read(text, PW="x")[1]]
    assert told == [("file.unusable", 5)]
