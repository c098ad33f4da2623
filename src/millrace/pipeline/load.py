"""A file becomes a model, whichever way it is written."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Collection
from pathlib import Path

from millrace.errors import FileUnusable, InputError, InvalidDefinition, MillraceError, Place, Problem
from millrace.pipeline.beside import stand_beside
from millrace.pipeline.model import Pipeline
from millrace.pipeline.python import collecting

_YAML = (".yaml", ".yml")


def load(path: str, connectors: Collection[str] = ()) -> Pipeline:
    """The pipeline of a .py or .yaml file. `FILE::name` chooses one of several in a Python file.

    `connectors` are the names that a YAML file may use for them; see `read_yaml`.
    """
    file, _, name = path.partition("::")
    if Path(file).is_dir():
        raise FileUnusable(f"{file} is a folder, and a pipeline is one file", hint=_among(Path(file)))
    if not Path(file).is_file():
        raise FileUnusable(f"there is no file {file}", hint="name a pipeline's .py or .yaml file")
    if file.endswith(_YAML):
        from millrace.pipeline.yaml import load_yaml

        return _chosen(file, [load_yaml(Path(file), connectors)], name)
    if file.endswith(".py"):
        return _chosen(file, _load_python(file), name)
    raise FileUnusable(f"{file} is no pipeline's file", hint="it ends in .py, .yaml or .yml")


def read(path: str, connectors: Collection[str] = ()) -> tuple[Pipeline | None, list[Problem]]:
    """What can be read of a pipeline's file, and what is wrong with it."""
    if path.endswith(_YAML) and Path(path).is_file():
        from millrace.pipeline.yaml import read_yaml

        return read_yaml(Path(path), connectors)
    try:
        return load(path, connectors), []
    except FileUnusable:
        raise
    except InputError as error:
        return None, [Problem(error.condition, error.message, error.place, error.hint, error.why)]


def _load_python(file: str) -> list[Pipeline]:
    stand_beside(file)
    with collecting() as made:
        try:
            runpy.run_path(file, run_name="millrace_pipeline")
        except MillraceError as error:
            error.place = error.place or _place(file, error)
            raise
        except SystemExit as error:
            raise InvalidDefinition(f"{file} ended itself with {error.code!r}", place=_place(file, error)) from None
        except Exception as error:
            raise _mistake(file, error) from error
        return [one.model() for one in made]


def _among(folder: Path) -> str:
    found = sorted(str(one) for one in folder.iterdir() if one.suffix in (*_YAML, ".py") and one.is_file())
    named = f"{', '.join(found[:5])}{', …' if len(found) > 5 else ''}"
    return f"name one of its files: {named}" if found else "name a pipeline's .py or .yaml file"


def _mistake(file: str, error: Exception) -> InvalidDefinition:
    if isinstance(error, SyntaxError):
        place = Place(error.filename or file, error.lineno)
        return InvalidDefinition(f"the file does not parse: {error.msg}", place=place)
    place = _place(file, error)
    if "pyspark" in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parts:
        why = "no Spark runs while the file is read; a column or a session is made where rows are"
        hint = "move it into the function of a table"
        return InvalidDefinition("this line asks Spark for something", place=place, why=why, hint=hint)
    said = f"the file raised {type(error).__name__}: {error}"
    return InvalidDefinition(said, place=place, hint="mend that line")


def _place(file: str, error: BaseException) -> Place:
    """The last line of the user's file on the way to where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).absolute() == Path(file).absolute()]
    return Place(file, own[-1].lineno if own else None)


def _chosen(file: str, pipelines: list[Pipeline], name: str) -> Pipeline:
    names = [one.name for one in pipelines]
    if name:
        found = [one for one in pipelines if one.name == name]
        if not found:
            raise InvalidDefinition(f"{file} has no pipeline {name!r}", hint=f"it has: {', '.join(names) or 'none'}")
        return found[0]
    if len(pipelines) == 1:
        return pipelines[0]
    if not pipelines:
        hint = 'it needs millrace.Pipeline("name")'
        raise InvalidDefinition(f"{file} makes no pipeline", place=Place(file), hint=hint)
    raise InvalidDefinition(f"{file} makes {len(pipelines)} pipelines", hint=f"choose one: {file}::{names[0]}")
