"""Modules that stand beside a pipeline's file are its own: another's of the same name do not take their place."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

_TESTS = ("test_", "tests", "conftest")


class _Read:
    """The folder of the pipeline that was read last, which is on Python's path for it."""

    folder: Path | None = None
    there: frozenset[str] = frozenset()
    """The modules that were there before it: somebody else's, wherever they stand."""


def stand_beside(file: str) -> None:
    """What the file imports is looked for beside it first, as `python FILE` does."""
    folder = Path(file).absolute().parent
    names = {one.stem for one in (*folder.glob("*.py"), *(file.parent for file in folder.glob("*/*.py")))}
    homes = {name: _home(module) for name, module in list(sys.modules.items()) if "." not in name}
    strange = {
        name
        for name, home in homes.items()
        if home and home != folder and (_is_of_last(name, home) or name in names) and _may_go(name, home)
    }
    for name in [name for name in sys.modules if name.partition(".")[0] in strange]:
        del sys.modules[name]
    if _Read.folder and str(_Read.folder) in sys.path:
        sys.path.remove(str(_Read.folder))
    sys.path.insert(0, str(folder))
    _Read.folder, _Read.there = folder, frozenset(sys.modules)


def _is_of_last(name: str, home: Path) -> bool:
    return home == _Read.folder and name not in _Read.there


def _home(module: ModuleType) -> Path | None:
    """The folder that a module was found in."""
    file = getattr(module, "__file__", None)
    if file is None:
        return next((Path(one).parent for one in getattr(module, "__path__", ())), None)
    return Path(file).parent.parent if hasattr(module, "__path__") else Path(file).parent


def _may_go(name: str, home: Path) -> bool:
    """Whether a module is somebody's own: not Python's, not installed, not a test that runs."""
    packages = {"site-packages", "dist-packages"} & set(home.parts)
    installed = name in sys.stdlib_module_names or packages or name == "millrace"
    return not installed and not name.startswith(_TESTS) and name != "__main__"
