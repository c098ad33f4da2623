"""How commands are declared, and how their help looks.

- `App` is a Typer application. A command's parameter whose type is an `OptionGroup` stands for the options that are
  the group's fields, so that options which several commands share are defined once.
- A `HelpPanel` declares its options: as the default of a parameter or, if several commands share it or its
  type is mutable, in `Annotated`.
- `renamed_option` keeps the former name of an option for one release.
- Help shows no Python types: a metavar says what a value is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

from millrace.cli.output import print_line
from millrace.errors import deprecation_notice
from millrace.settings import Setting

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class HelpPanel:
    """A panel of the help. Its options are named after their parameters unless `names` has other names."""

    title: str

    def option(
        self, help_: str, metavar: str | None = None, *, names: str = "", default: Any = None, **more: Any
    ) -> Any:
        """Return the declaration of an option."""
        return typer.Option(default, *names.split(), rich_help_panel=self.title, help=help_, metavar=metavar, **more)

    def flag(self, help_: str, *, names: str = "", default: bool = False, **more: Any) -> Any:
        """Return the declaration of an option without a value."""
        return self.option(help_, names=names, default=default, **more)

    def setting(self, setting: Setting[Any], metavar: str) -> Any:
        """Return the declaration of the option of a setting; its text is given to `Setting.value`."""
        default = setting.shown_default or str(setting.default)
        return self.option(f"{setting.help} (env {setting.variable})", metavar, show_default=default)


RUN_PANEL = HelpPanel("What to run")
RECORDS_PANEL = HelpPanel("Which records")
SPARK_PANEL = HelpPanel("Spark")
KAFKA_PANEL = HelpPanel("Kafka")
CASSANDRA_PANEL = HelpPanel("Cassandra")
STATE_PANEL = HelpPanel("State and recovery")
DASHBOARD_PANEL = HelpPanel("Dashboard and alerts")
OUTPUT_PANEL = HelpPanel("Output")
SERVICE_PANEL = HelpPanel("Service")
_HELP_PANEL = "Help"


def renamed_option(old: str, new: str) -> Any:
    """Return a hidden option that is the former name of another one; its use prints a notice."""

    def notice(value: Any) -> Any:
        if value:
            print_line(deprecation_notice(old, new))
        return value

    return typer.Option(None, old, hidden=True, callback=notice)


class OptionGroup:
    """Options that several commands share: a dataclass whose fields are annotated as parameters of a command."""


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes the fields of a command's option groups as parameters, and calls the command."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            hints = get_type_hints(kind, include_extras=True)
            parameters += [
                declared(field.name, hints[field.name], field.default) for field in fields(groups[parameter.name])
            ]
        else:
            parameters.append(declared(parameter.name, kind, parameter.default))

    def flat(**given: Any) -> Any:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return command(**given)

    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


def declared(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Return a parameter with its declaration, which may be in `Annotated`, as its default."""
    if get_origin(annotation) is Annotated:
        annotation, declaration = get_args(annotation)
        value = ... if default is inspect.Parameter.empty else default
        default = copy(declaration)
        default.default = value
    if isinstance(default, OptionInfo) and not default.param_decls:
        default.param_decls = (f"--{name.strip('_').replace('_', '-')}",)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


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
