"""How commands are declared, and how their help looks.

- `App` is a Typer application. A command's parameter whose type is an `OptionGroup` stands for the options that are
  the group's fields, so that options which several commands share are defined once.
- `option` declares an option in a panel of the help; the names of the panels are here.
- `renamed_option` keeps the former name of an option for one release.
- Help shows no Python types: a metavar says what a value is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from millrace.cli.output import print_line
from millrace.errors import deprecation_notice

Function = TypeVar("Function", bound=Callable[..., Any])

RUN_PANEL = "What to run"
RECORDS_PANEL = "Which records"
SPARK_PANEL = "Spark"
KAFKA_PANEL = "Kafka"
CASSANDRA_PANEL = "Cassandra"
STATE_PANEL = "State and recovery"
DASHBOARD_PANEL = "Dashboard and alerts"
OUTPUT_PANEL = "Output"
SERVICE_PANEL = "Service"
_HELP_PANEL = "Help"


def option(names: str, panel: str, help_: str, metavar: str | None = None, **settings: Any) -> Any:
    """Return an option of a command, shown in a panel of the help; `names` are separated by spaces."""
    return typer.Option(*names.split(), rich_help_panel=panel, help=help_, metavar=metavar, **settings)


def renamed_option(old: str, new: str) -> Any:
    """Return a hidden option that is the former name of another one; its use prints a notice."""

    def notice(value: Any) -> Any:
        if value:
            print_line(deprecation_notice(old, new))
        return value

    return typer.Option(old, hidden=True, callback=notice)


class OptionGroup:
    """Options that several commands share: a dataclass whose fields are annotated as parameters of a command."""


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the fields of a command's option groups as parameters, and calls the command."""
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    groups = {one.name: one.annotation for one in parameters if _is_group(one.annotation)}

    def flat(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    expanded = [each for one in parameters for each in (_expanded(groups[one.name]) if one.name in groups else [one])]
    keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in expanded]
    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__annotations__ = {one.name: one.annotation for one in keywords}
    flat.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    return flat


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _expanded(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )


class _PlainHelp:
    """Help without Python's types and bounds, with `--help` in a panel of its own."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help`, which comes last."""
        help_option = super().get_help_option(ctx)  # type: ignore[misc]
        if help_option:
            help_option.rich_help_panel = _HELP_PANEL
        return help_option

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            vars(parameter).update(display_type_rich=_shown_type(parameter), _get_number_range_help_str=lambda: None)
        super().format_help(ctx, formatter)  # type: ignore[misc]


def _shown_type(parameter: Any) -> Callable[[Any], str]:
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return lambda ctx: ""  # noqa: ARG005
    return lambda ctx: str(parameter.metavar or parameter.display_type(ctx).strip("<>"))


class Command(_PlainHelp, TyperCommand):
    """A command with plain help."""


class Group(_PlainHelp, TyperGroup):
    """A group of commands with plain help."""


class App(typer.Typer):
    """A Typer application whose commands take option groups and have plain help."""

    def __init__(self, *, cls: type[Group] = Group, **settings: Any) -> None:
        super().__init__(cls=cls, no_args_is_help=True, **settings)

    def command(self, *arguments: Any, **settings: Any) -> Callable[[Function], Function]:
        """Register a command."""
        register = super().command(*arguments, cls=Command, **settings)

        def registered(function: Function) -> Function:
            register(with_options(function))
            return function

        return registered
