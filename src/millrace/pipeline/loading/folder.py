"""The pipelines of a folder: which of its files are some, without running code of theirs.

- `pipelines_in` returns the pipelines of a folder and its subfolders, and why each other file is none.
- `files_in` walks through a folder as all commands do.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import FileUnusable
from millrace.limited_files import read_limited_text

_YAML = (".yaml", ".yml")
_TESTS = (".test.yaml", ".test.yml")
_SKIPPED_FOLDERS = ("node_modules", "__pycache__", "site-packages")
_TOP_KEY = re.compile(r"^[\"']?([A-Za-z_][\w-]*)[\"']?[ ]*:", re.MULTILINE)
_FLOW_KEY = re.compile(r"[{,]\s*[\"']?([A-Za-z_][\w-]*)[\"']?[ ]*:")
_SHARED_KEYS = {"include", "sources"}


@dataclass(frozen=True)
class LeftOutFile:
    """A file that is no pipeline's."""

    file: str
    why: str


@dataclass(frozen=True)
class FolderContents:
    """The pipelines of a folder, as `load` takes them, and the YAML and Python files that are none."""

    pipelines: tuple[str, ...]
    left_out: tuple[LeftOutFile, ...]


def pipelines_in(folder: str) -> FolderContents:
    """Return what a folder has; raise FileUnusable if no pipeline is among it."""
    pipelines: list[str] = []
    left_out: list[LeftOutFile] = []
    for path in files_in(Path(folder), (*_YAML, ".py")):
        named, why = _pipelines_of(path)
        pipelines += named
        left_out += [] if named else [LeftOutFile(str(path), why)]
    if not pipelines:
        hint = "name a pipeline's .py or .yaml file, or a folder that has one"
        raise FileUnusable(f"there is no pipeline in the folder {folder}", hint=hint)
    return FolderContents(tuple(pipelines), tuple(left_out))


def files_in(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders by their names' ends, in order, without hidden ones."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        yield from (Path(parent) / name for name in sorted(names) if name.endswith(endings) and name[0] != ".")


def _pipelines_of(path: Path) -> tuple[list[str], str]:
    """Return the pipelines of a file; else why there are none."""
    if path.name.endswith(_TESTS):
        return [], "tests"
    try:
        text = read_limited_text(path)
    except (OSError, ValueError) as error:
        return [], f"it cannot be read: {error}"
    return _of_yaml(path, text) if path.name.endswith(_YAML) else _of_python(path, text)


def _of_yaml(path: Path, text: str) -> tuple[list[str], str]:
    """By the keys at the top, also of a file that does not parse: it may be a pipeline with a mistake."""
    keys = set((_FLOW_KEY if text.lstrip().startswith("{") else _TOP_KEY).findall(text))
    if "sinks" in keys or ("name" in keys and keys & {"sources", "tables", "include"}):
        return [str(path)], ""
    if "tests" in keys:
        return [], "tests"
    if keys & _SHARED_KEYS and not [key for key in keys - _SHARED_KEYS if not key.startswith("x-")]:
        return [], "sources that pipelines include"
    return [], "no pipeline: it has neither sinks: nor name: with sources:"


def _of_python(path: Path, text: str) -> tuple[list[str], str]:
    """By the calls of `Pipeline` outside functions; several pipelines of a file are chosen by their names."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        meant = "millrace" in text and "Pipeline(" in text
        return ([str(path)], "") if meant else ([], "no pipeline: it is no Python that can be parsed")
    calls = [node for node in _outside_functions(tree) if isinstance(node, ast.Call) and _called(node) == "Pipeline"]
    if not calls:
        return [], "no pipeline: it does not call Pipeline outside functions"
    names = [_literal_name(call) for call in calls]
    if len(names) == 1 or None in names or len(set(names)) < len(names):
        return [str(path)], ""
    return [f"{path}::{name}" for name in names], ""


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    waiting = [tree]
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literal_name(call: ast.Call) -> str | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    value = next(iter([*call.args[:1], *named]), None)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
