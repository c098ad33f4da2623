"""The command as a whole: help, version, exit codes, and how errors look."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer

from conftest import MILLRACE, CommandLine
from millrace import __version__
from millrace.cli.main import app
from millrace.errors import deprecation_notice
from millrace.services.process import free_port

Run = Callable[..., Any]
PROGRAM = typer.main.get_command(app)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that lead to it."""
    yield path, command
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*path, name))


COMMANDS = {" ".join(path): command for path, command in commands(PROGRAM)}


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def test_every_command_is_there() -> None:
    topics = {f"kafka topics {name}" for name in ("create", "list", "describe", "alter", "delete")}
    groups = {f"kafka groups {name}" for name in ("list", "describe", "reset", "delete")}
    kafka = {f"kafka {name}" for name in ("up", "down", "status", "produce", "consume")}
    jars = {f"jars {name}" for name in ("fetch", "list", "path")}
    assert topics | groups | kafka | jars | {"demo", "doctor", "settings", "feed posts"} <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_tells_every_option(offline_run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = offline_run(*name.split(), "--help").out
    assert "--help" in shown
    for option in COMMANDS[name].params:
        if option.param_type_name == "option" and not option.hidden:
            assert option.opts[0] in shown
            assert option.help


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns(offline_run: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = offline_run(*name.split(), "--help").out
    command = COMMANDS[name] if name else PROGRAM
    assert "<" not in shown, "a type instead of a metavar"
    for option in command.params:
        if option.param_type_name == "option" and not option.hidden:
            for word in (*option.opts, *option.secondary_opts):
                assert re.search(rf"{word}(?![\w-])", shown), f"{word} is cut"
            assert name == "" or option.rich_help_panel in shown, f"{option.name} is in no panel"
    assert not re.search(r"--[\w-]*…", shown)


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("run", "--patience=5s", "--stop-timeout"),
        ("replay", "--patience=5s", "--stop-timeout"),
        ("run", "--accept=totals", "--accept-state-change"),
        ("plan", "--accept=totals", "--accept-state-change"),
    ],
)
def test_an_old_name_of_an_option_works_with_a_notice(offline_run: Run, command: str, old: str, new: str) -> None:
    ran = offline_run(command, "missing.yaml", old, *(["--list"] if command == "replay" else []), code=2)
    assert deprecation_notice(old.partition("=")[0], new) in ran.err.replace("\n", " ")
    assert "there is no file missing.yaml" in ran.err
    assert old.partition("=")[0] + " " not in offline_run(command, "--help").out


def test_no_arguments_is_help(offline_run: Run) -> None:
    assert "Usage" in offline_run(code=2).out + offline_run("kafka", code=2).out


def test_the_version_is_told(offline_millrace: CommandLine) -> None:
    assert offline_millrace("--version").stdout == f"millrace {__version__}\n"


def test_help_loads_neither_spark_nor_the_kafka_client() -> None:
    ran = python(
        "import sys\n"
        "from millrace.cli.main import main\n"
        "sys.argv = ['millrace', '--help']\n"
        "try:\n    main()\n"
        "finally:\n    sys.exit(any(name in sys.modules for name in ('pyspark', 'confluent_kafka', 'pandas')))\n"
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "kafka" in ran.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["kafka", "no-such-command"],
        ["kafka", "topics", "list", "--no-such-option"],
        ["kafka", "topics", "create"],
        ["kafka", "topics", "create", "t", "--partitions", "0"],
        ["kafka", "topics", "create", "t", "--partitions", "many"],
        ["kafka", "consume", "t", "--max", "0"],
        ["kafka", "consume", "t", "--offset", "-1"],
        ["feed", "no-such-feed"],
    ],
)
def test_what_is_not_a_command_or_an_option_exits_2(offline_run: Run, arguments: list[str]) -> None:
    assert offline_run(*arguments, code=2).err


@pytest.mark.parametrize(
    "arguments",
    [
        ["kafka", "topics", "list", "--kafka", "nonsense"],
        ["kafka", "topics", "create", "t", "--retention", "soon"],
        ["kafka", "topics", "create", "t", "--config", "nonsense"],
        ["kafka", "topics", "alter", "t"],
        ["kafka", "produce", "t", "--timeout", "soon"],
        ["kafka", "produce", "t", "--header", "nonsense"],
        ["kafka", "produce", "t", "--acks", "2"],
        ["kafka", "produce", "t", "--acks", "1", "--transaction"],
        ["kafka", "produce", "t", "--compression", "zip"],
        ["kafka", "produce", "t", "--key", "k", "--key-separator", ":"],
        ["kafka", "consume", "t", "--timeout", "5 parsecs"],
        ["kafka", "consume", "t", "--from-time", "noon"],
        ["kafka", "consume", "t", "--format", "xml"],
        ["kafka", "consume", "t", "--offset", "3"],
        ["kafka", "consume", "t", "--from-beginning", "--from-time", "now"],
        ["kafka", "consume", "t", "--group", "g", "--from-time", "now"],
        ["kafka", "groups", "reset", "g", "--topic", "t", "--to", "nowhere"],
        ["kafka", "up", "--heap", "lots"],
        ["feed", "posts", "--to", "console", "--rate", "foo"],
        ["feed", "posts", "--to", "console", "--for", "5 parsecs"],
        ["demo", "--rate", "foo"],
    ],
)
def test_malformed_options_exit_2_without_a_broker(
    offline_run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA", f"127.0.0.1:{free_port()}")
    assert offline_run(*arguments, code=2).err.startswith("error[option.invalid]")


@pytest.mark.parametrize(
    ("variable", "value", "condition"),
    [
        ("MILLRACE_KAFKA", "nonsense", "option.invalid"),
        ("MILLRACE_KAFKA_TIMEOUT", "soon", "setting.invalid"),
        ("MILLRACE_KAFKA_CONFIG", "/no/such/file", "file.unusable"),
    ],
)
def test_a_malformed_variable_exits_2(
    offline_run: Run, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, condition: str
) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv(variable, value)
    assert f"error[{condition}]" in offline_run("kafka", "topics", "list", code=2).err


def test_no_cluster_exits_2(offline_run: Run) -> None:
    assert "error[kafka.none]" in offline_run("kafka", "topics", "list", code=2).err


@pytest.mark.parametrize(
    "arguments",
    [
        ["kafka", "topics", "list"],
        ["kafka", "produce", "t"],
        ["kafka", "consume", "t"],
        ["kafka", "groups", "list"],
    ],
)
def test_a_broker_that_is_down_exits_1(offline_run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA", f"127.0.0.1:{free_port()}")
    monkeypatch.setenv("MILLRACE_KAFKA_TIMEOUT", "200ms")
    assert offline_run(*arguments, code=1).err.startswith("error[kafka.unreachable]")


def test_a_stack_trace_is_shown_when_asked_for(offline_millrace: CommandLine) -> None:
    with offline_millrace.start("--verbose", "kafka", "topics", "list") as process:
        _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"error[kafka.none]" in said
    assert b"Traceback" in said


@pytest.mark.parametrize(("environment", "shown"), [({}, False), ({"MILLRACE_VERBOSE": "1"}, True)])
def test_a_mistake_of_ours_is_one_message(environment: dict[str, str], shown: bool) -> None:
    ran = python("from millrace.cli import main\nmain.app = lambda **_: 1 / 0\nmain.main()", **environment)
    assert ran.returncode == 1
    assert "error[millrace.error]" in ran.stderr
    assert ("Traceback" in ran.stderr) is shown


def test_python_m_millrace_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "millrace", "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"millrace {__version__}\n"


def test_the_completion_script_for_bash_is_printed() -> None:
    ran = subprocess.run(
        ["bash", "-c", f"{MILLRACE} --show-completion; true"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_MILLRACE_COMPLETE=complete_bash" in ran.stdout
    assert "complete -o default -F" in ran.stdout


def test_bash_completes_commands(offline_millrace: CommandLine) -> None:
    asked = {"_MILLRACE_COMPLETE": "complete_bash", "COMP_WORDS": "millrace kafka to", "COMP_CWORD": "2"}
    assert offline_millrace(**asked).stdout.split() == ["topics"]
