"""The page on the command line: every command with its arguments and options, from the parser itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.main import get_command

from millrace.cli.main import app
from millrace.settings import SETTINGS

_INTRO = """# The command line

Made from the code by `scripts/reference.py`; `millrace COMMAND --help` shows the same. Durations are written `500ms`,
`5s`, `2m`, `1h`; rates `500/s`; sizes `512m`. An option with an environment variable is a [setting](../settings.md):
the flag wins over the variable. Exit codes: 0 fine, 1 it was right and did not work, 2 what was given is wrong;
[errors](../errors.md) has each.
"""
_HELP = re.compile(r"(?P<help>.*?)(?:  \[(?P<more>.*)\])?", re.DOTALL)
_EVERYWHERE = {"-h, --help"}


@dataclass(frozen=True)
class Parameter:
    """An argument or an option, as it is shown."""

    written: str
    help: str
    default: str
    option: bool


@dataclass(frozen=True)
class Command:
    """A command, or a group of some."""

    path: str
    usage: str
    help: str
    parameters: tuple[Parameter, ...]
    group: bool


def commands() -> list[Command]:
    """Every command that is not hidden, a group before what is in it."""
    return list(_walk(get_command(app), "millrace", None))


def _walk(command: Any, name: str, parent: Any) -> Iterator[Command]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    within = command.list_commands(context) if hasattr(command, "list_commands") else []
    shown = [one for one in command.get_params(context) if not getattr(one, "hidden", False)]
    usage = _tidy(" ".join((context.command_path, *command.collect_usage_pieces(context))))
    parameters = tuple(made for one in shown if (made := _parameter(one, context)).written not in _EVERYWHERE)
    yield Command(context.command_path, usage, _text(command.help), parameters, bool(within))
    for one in within:
        if not (child := command.get_command(context, one)).hidden:
            yield from _walk(child, one, context)


def _tidy(usage: str) -> str:
    """A usage line without the parser's brackets around what we have put brackets around, or need."""
    plain = re.sub(r"\{(.*?)\}", r"\1", re.sub(r"\[\[(\w+)\](…?)\]", r"[\1\2]", usage))
    return re.sub(r"(…\]?)\.\.\.", r"\1", plain)


def _parameter(parameter: Any, context: Any) -> Parameter:
    written, told = parameter.get_help_record(context) or (parameter.name, parameter.help or "")
    found = _HELP.fullmatch(told)
    help_, more = (found["help"], found["more"] or "") if found else (told, "")
    option = parameter.param_type_name == "option"
    default, bounds = ("needed", "") if "required" in more else _default(more)
    return Parameter(_written(written, option), f"{_text(help_)}{bounds}", default, option)


_KINDS = {"int": "N", "int range": "N", "float": "N", "path": "PATH"}


def _written(written: str, option: bool) -> str:
    """Its name, and a word for its value; the parser's word for a type is ours."""
    kind = re.search(r" <(\w[^>]*)>$", written)
    if kind:
        written = written[: kind.start()] + (f" {_KINDS.get(kind[1], 'TEXT')}" if option else "")
    return written if option else re.sub(r"^\[(.*)\]$", r"\1", written)


def _default(more: str) -> tuple[str, str]:
    """What holds unless said, and between which numbers it must be."""
    found = re.fullmatch(r"(?:default: (\(.*\)|[^;]*))?(?:; )?(.*)", more)
    if not found:
        return more, ""
    bounds = re.sub(r"^(\d+)<=x<=(\d+)$", r"\1 to \2", re.sub(r"^x>=(\d+)$", r"at least \1", found[2]))
    return re.sub(r"^\((.*)\)$", r"\1", found[1] or ""), f" ({bounds})" if bounds else ""


def _text(told: str | None) -> str:
    return " ".join((told or "").split())


def commands_page() -> str:
    """The page."""
    return "\n".join([_INTRO, *(line for command in commands() for line in _section(command))])


def _section(command: Command) -> Iterator[str]:
    depth = min(2 + max(command.path.count(" ") - 1, 0), 4)
    yield f"{'#' * depth} {command.path}\n"
    yield f"{command.help}\n"
    if not command.group:
        yield f"```text\n{command.usage}\n```\n"
    if command.parameters:
        yield "| | what it says | default |\n| --- | --- | --- |"
        for one in command.parameters:
            yield f"| `{_cell(one.written)}` | {_cell(one.help)} | {_cell(one.default)} |"
        yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def flags() -> dict[str, str]:
    """How each setting is written on the command line, and where, if not everywhere; nothing where it is not."""
    found: dict[str, dict[str, set[str]]] = {one.name: defaultdict(set) for one in SETTINGS}
    for command in commands():
        for one in command.parameters:
            for setting in SETTINGS:
                if one.option and one.help.startswith(setting.help):
                    found[setting.name][one.written.split()[0]].add(" ".join(command.path.split()[:2]))
    return {name: ", ".join(_placed(flag, where) for flag, where in places.items()) for name, places in found.items()}


def _placed(flag: str, where: set[str]) -> str:
    """A flag, with its command where only one has it."""
    only = min(where) if len(where) == 1 else ""
    return f"`{flag}` of `{only}`" if " " in only else f"`{flag}`"
