"""A file becomes a model, whichever way it is written.

Modules that stand beside a pipeline's file are its own: another's of the same name do not take their place.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType

from millrace.errors import FileUnusable, InputError, InvalidDefinition, MillraceError, Problem, SourceLocation
from millrace.limited_files import DEFINITION_BYTES
from millrace.pipeline.loading.python import collecting
from millrace.pipeline.loading.user_errors import interrupts_noted, mistake, place_in
from millrace.pipeline.model import PipelineDef

_TESTS = ("test_", "tests", "conftest")


class _Read:
    """The folder of the pipeline that was read last, which is on Python's path for it."""

    folder: Path | None = None
    there: frozenset[str] = frozenset()
    """The modules that were there before it: somebody else's, wherever they stand."""


def stand_beside(file: str) -> None:
    """What the file imports is looked for beside it first, as `python FILE` does."""
    folder = Path(file).absolute().parent
    names = {path.stem for path in (*folder.glob("*.py"), *(file.parent for file in folder.glob("*/*.py")))}
    foreign = set()
    for name, module in list(sys.modules.items()):
        home = _home(module) if "." not in name else None
        of_last = home == _Read.folder and name not in _Read.there
        if home and home != folder and (of_last or name in names) and _may_go(name, home):
            foreign.add(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in foreign]:
        del sys.modules[name]
    if _Read.folder and str(_Read.folder) in sys.path:
        sys.path.remove(str(_Read.folder))
    sys.path.insert(0, str(folder))
    _Read.folder, _Read.there = folder, frozenset(sys.modules)


def _home(module: ModuleType) -> Path | None:
    """The folder that a module was found in."""
    file = getattr(module, "__file__", None)
    if file is None:
        return next((Path(path).parent for path in getattr(module, "__path__", ())), None)
    return Path(file).parent.parent if hasattr(module, "__path__") else Path(file).parent


def _may_go(name: str, home: Path) -> bool:
    """Whether a module is somebody's own: not Python's, not installed, not a test that runs."""
    packages = {"site-packages", "dist-packages"} & set(home.parts)
    installed = name in sys.stdlib_module_names or packages or name == "millrace"
    return not installed and not name.startswith(_TESTS) and name != "__main__"


_YAML = (".yaml", ".yml")


def load(path: str, connectors: Collection[str] = ()) -> PipelineDef:
    """The pipeline of a .py or .yaml file. `FILE::name` chooses one of several in a Python file.

    `connectors` are the names that a YAML file may use for them; see `read_yaml`.
    """
    require_file(path)
    file, _, name = path.partition("::")
    if file.endswith(_YAML):
        from millrace.pipeline.loading.yaml import load_yaml

        return _chosen(file, [load_yaml(Path(file), connectors)], name)
    return _chosen(file, _load_python(file), name)


def require_file(path: str) -> None:
    """Raise FileUnusable unless a path, as `load` takes it, is that of a file which may be a pipeline's."""
    file = Path(path.partition("::")[0])
    if file.is_dir():
        raise FileUnusable(f"{file} is a folder, and a pipeline is one file", hint=_among(file))
    if not file.is_file():
        what = f"{file} is not a regular file" if file.exists() else f"there is no file {file}"
        raise FileUnusable(what, hint="name a pipeline's .py or .yaml file")
    if file.suffix not in (*_YAML, ".py"):
        raise FileUnusable(f"{file} is no pipeline's file", hint="it ends in .py, .yaml or .yml")
    if file.suffix == ".py" and file.stat().st_size > DEFINITION_BYTES:
        why, hint = f"it has more than {DEFINITION_BYTES:,} bytes", "read data from files of their own"
        raise FileUnusable(f"{file} is too large for a pipeline's file", why=why, hint=hint)


def read_file(path: str, connectors: Collection[str] = ()) -> tuple[PipelineDef | None, list[Problem]]:
    """What can be read of a pipeline's file, and what is wrong with it."""
    if path.endswith(_YAML) and Path(path).is_file():
        from millrace.pipeline.loading.yaml import read_yaml

        return read_yaml(Path(path), connectors)
    try:
        return load(path, connectors), []
    except FileUnusable:
        raise
    except InputError as error:
        place = error.place or SourceLocation(path.partition("::")[0])
        return None, [Problem(error.condition, error.message, place, error.hint, error.why)]


def _load_python(file: str) -> list[PipelineDef]:
    stand_beside(file)
    with collecting() as pipelines, interrupts_noted() as interrupted:
        try:
            runpy.run_path(file, run_name="millrace_pipeline")
            return [pipeline.model() for pipeline in pipelines]
        except MillraceError as error:
            error.place = error.place or place_in(file, error)
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and interrupted():
                raise
            raise mistake(file, error) from error


def _among(folder: Path) -> str:
    files = sorted(str(path) for path in folder.iterdir() if path.suffix in (*_YAML, ".py") and path.is_file())
    named = f"{', '.join(files[:5])}{', …' if len(files) > 5 else ''}"
    return f"name one of its files: {named}" if files else "name a pipeline's .py or .yaml file"


def _chosen(file: str, pipelines: list[PipelineDef], name: str) -> PipelineDef:
    names = [pipeline.name for pipeline in pipelines]
    if name and name not in names:
        raise InvalidDefinition(f"{file} has no pipeline {name!r}", hint=f"it has: {', '.join(names) or 'none'}")
    if not pipelines:
        hint = 'it needs millrace.Pipeline("name")'
        raise InvalidDefinition(f"{file} makes no pipeline", place=SourceLocation(file), hint=hint)
    if not name and len(pipelines) > 1:
        raise InvalidDefinition(f"{file} makes {len(pipelines)} pipelines", hint=f"choose one: {file}::{names[0]}")
    return pipelines[names.index(name) if name else 0]
