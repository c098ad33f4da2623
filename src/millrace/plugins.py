"""How feeds, formats and connectors are found.

- A built-in is a module of the package `millrace.feeds`, `millrace.formats` or `millrace.connectors`, or a package
  there whose `__init__.py` has its classes.
- A third party declares an entry point in the group of the same name that leads to a module of the same form.
- A user names a file of theirs by its path (`./clicks.py`).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from millrace.errors import FileUnusable, PluginUnusable, UnknownName, described

T = TypeVar("T")


def option(
    default: Any = MISSING,
    help: str = "",  # noqa: A002 - the word that users of dataclasses and Typer expect
    *,
    parse: Callable[[str], Any] | None = None,
    argument: bool = False,
    choices: Sequence[str] = (),
    least: int | None = None,
    rest: bool = False,
    variable: str | None = None,
    secret: bool = False,
    shown_default: str | None = None,
    aliases: Sequence[str] = (),
    value_aliases: Mapping[str, str] | None = None,
    columns: bool = False,
) -> Any:
    """A field that the user may set: `--name` of a feed, a key of a source or a sink; by position with `argument`.

    `parse` turns text into the value (a duration, a share); without it the field's own type does. `choices` are the
    only values allowed, `least` the smallest number. `rest` is for a mapping that takes every option that has no field.
    `variable` names an environment variable, for secrets: the value of such a field is left out of the repr.

    `aliases` are deprecated names of a connector's option, and `value_aliases` maps deprecated values to current ones.
    They are still accepted, with a warning from `check` and `run`; no schema and no reference page lists them.

    `columns` says that the value names columns of a sink's table: `check` reports those that the table does not have.
    """
    metadata = {
        "help": help,
        "parse": parse,
        "argument": argument,
        "choices": tuple(choices),
        "least": least,
        "rest": rest,
        "variable": variable,
        "secret": secret or variable is not None,
        "shown_default": shown_default,
        "aliases": tuple(aliases),
        "value_aliases": dict(value_aliases or {}),
        "columns": columns,
    }
    if rest:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata, repr=variable is None and not secret)


@cache
def _points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; reading every distribution takes a while, and they do not change."""
    return tuple(entry_points(group=group))


def _described_point(point: EntryPoint) -> str:
    distribution = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"the entry point `{point.name} = {point.value}`{distribution}"


def _loaded(point: EntryPoint) -> ModuleType:
    """Return the module of an entry point; raise PluginUnusable if it cannot be imported or is none."""
    what = _described_point(point)
    try:
        module = point.load()
    except Exception as error:
        hint = "install what it needs, or fix or uninstall the plug-in; pipelines that do not use it are not affected"
        raise PluginUnusable(f"{what} cannot be imported", why=described(error), hint=hint) from error
    if not isinstance(module, ModuleType):
        hint = f"it must name the module only: {point.name} = {point.module}"
        raise PluginUnusable(f"{what} leads to no module", hint=hint)
    return module


class PluginRegistry(Generic[T]):
    """A package whose modules each define one class of a kind; the module's name is the plugin's name."""

    def __init__(self, package: str, kind: type[T], noun: str) -> None:
        self.package = package
        self.kind = kind
        self.noun = noun

    def names(self) -> list[str]:
        """Every name, built in or installed."""
        installed = {point.name for point in _points(self.package)}
        return sorted(installed.union(self._built_in()))

    def load(self, name: str) -> type[T]:
        """Return the class of a name."""
        kind = self._defined_in(self._module(name))
        if kind is None and name.endswith(".py"):
            raise FileUnusable(f"{name} defines no {self.noun}", hint=f"it needs one subclass of {self.kind.__name__}")
        if kind is None:
            unknown = UnknownName.among(self.noun, name, self.names())
            if point := self._installed(name):
                unknown.why = f"{_described_point(point)} defines no subclass of {self.kind.__name__}"
            raise unknown
        return kind

    def kinds(self) -> Iterator[tuple[str, type[T]]]:
        """Give every name with its class, without plug-ins that define another kind only or cannot be imported."""
        for name in self.names():
            with suppress(UnknownName, PluginUnusable):
                yield name, self.load(name)

    def name_of(self, kind: type) -> str:
        """Return the name of a class."""
        package, module = f"{self.package}.", kind.__module__
        is_built_in = module.startswith(package)
        return module.removeprefix(package).partition(".")[0] if is_built_in else module.rpartition(".")[2]

    def _built_in(self) -> list[str]:
        package = importlib.import_module(self.package)
        modules = [info.name for info in pkgutil.iter_modules(package.__path__)]
        return [name for name in modules if self._defined_in(self._import(name))]

    def _module(self, name: str) -> ModuleType | None:
        if point := self._installed(name):
            return _loaded(point)
        if name.endswith(".py"):
            return module_of(Path(name))
        return self._import(name) if name.isidentifier() else None

    def _installed(self, name: str) -> EntryPoint | None:
        return next((point for point in _points(self.package) if point.name == name), None)

    def _import(self, name: str) -> ModuleType | None:
        path = f"{self.package}.{name}"
        try:
            return importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name == path:
                return None
            raise

    def _defined_in(self, module: ModuleType | None) -> type[T] | None:
        if module is None:
            return None
        for member in vars(module).values():
            if (
                inspect.isclass(member)
                and issubclass(member, self.kind)
                and not inspect.isabstract(member)
                and f"{member.__module__}.".startswith(f"{module.__name__}.")
            ):
                return member
        return None


def module_of(path: Path) -> ModuleType:
    """The module that a user's file makes."""
    name = f"millrace_file_{path.stem}"  # not its bare name: a file may be called http.py
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileUnusable(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise FileUnusable(f"{path} cannot be loaded", why=f"{type(error).__name__}: {error}") from error
    return module
