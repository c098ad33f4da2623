"""How feeds and sinks are found: every module of a room is one, and so is every entry point of its name.

A built-in is a file in the room's folder. A third party declares an entry point in a group named after the
room (`millrace.feeds`, `millrace.connectors`) that leads to a module of the same form. A user names a file of
theirs by its path (`./clicks.py`). Nothing else is edited.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from millrace.errors import FileUnusable, UnknownName

T = TypeVar("T")


class Room(Generic[T]):
    """A package whose modules each define one class of a kind; the module's name is the plugin's name."""

    def __init__(self, package: str, kind: type[T], noun: str) -> None:
        self.package = package
        self.kind = kind
        self.noun = noun

    def names(self) -> list[str]:
        """Every name, built in or installed."""
        installed = {point.name for point in entry_points(group=self.package)}
        return sorted(installed.union(self._built_in()))

    def load(self, name: str) -> type[T]:
        """The class that a name stands for."""
        found = self._defined_in(self._module(name))
        if found is None and name.endswith(".py"):
            raise FileUnusable(f"{name} defines no {self.noun}", hint=f"it needs one subclass of {self.kind.__name__}")
        if found is None:
            raise UnknownName.among(self.noun, name, self.names())
        return found

    def _built_in(self) -> list[str]:
        package = importlib.import_module(self.package)
        modules = [info.name for info in pkgutil.iter_modules(package.__path__)]
        return [name for name in modules if self._defined_in(self._import(name))]

    def _module(self, name: str) -> ModuleType | None:
        for point in entry_points(group=self.package, name=name):
            loaded = point.load()
            return loaded if isinstance(loaded, ModuleType) else None
        if name.endswith(".py"):
            return _from_file(Path(name))
        return self._import(name) if name.isidentifier() else None

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
                and member.__module__ == module.__name__
            ):
                return member
        return None


def _from_file(path: Path) -> ModuleType:
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
