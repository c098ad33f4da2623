"""The pipelines of a folder: which of its files are some, without running code of theirs.

- `pipelines_in` returns the pipelines of a folder and its subfolders, and why each other file is none. A file that
  cannot be read, or seems to be a pipeline and does not parse, is among them: to load it gives its error.
- `files_in` walks through a folder as all commands do.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path

from millrace.errors import FileUnusable, Problem
from millrace.limited_files import DEFINITION_BYTES, read_start
from millrace.pipeline.interpolation import fill
from millrace.pipeline.loading.yaml_document import Fields, Items, Node, Scalar, read_document

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
    runs: bool = False
    """Whether a pipeline's check runs it all the same, as a file of `functions:`."""

    def __str__(self) -> str:
        return f"{self.file}: {'' if self.runs else 'left out: '}{self.why}"


@dataclass(frozen=True)
class FolderContents:
    """The pipelines of a folder, as `load` takes them, and the YAML and Python files that are none."""

    pipelines: tuple[str, ...]
    left_out: tuple[LeftOutFile, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Those of the pipelines that cannot be read, or do not parse."""


@dataclass(frozen=True)
class _File:
    """What a file of a folder is."""

    pipelines: tuple[str, ...] = ()
    why: str = ""
    """Why it has no pipelines."""
    is_readable: bool = True
    functions: tuple[str, ...] = ()
    """The real paths of the files that its `functions:` names."""


def pipelines_in(folder: str) -> FolderContents:
    """Return what a folder has; raise FileUnusable if no pipeline is among it."""
    if not folder:
        raise FileUnusable("an empty text names no folder", hint="name a file, or a folder: . is this one")
    files = {path: _read(path) for path in files_in(Path(folder), (*_YAML, ".py"))}
    users: dict[str, list[str]] = {}
    for path, file in files.items():
        for functions in file.functions:
            users.setdefault(functions, []).append(str(path))
    pipelines: list[str] = []
    left_out: list[LeftOutFile] = []
    unreadable: list[str] = []
    for path, file in files.items():
        used_by = users.get(os.path.realpath(path), [])
        if used_by and not (file.pipelines and file.is_readable):
            left_out.append(LeftOutFile(str(path), f"functions of {', '.join(used_by)}", runs=True))
        else:
            pipelines += file.pipelines
            unreadable += () if file.is_readable else file.pipelines
            left_out += () if file.pipelines else (LeftOutFile(str(path), file.why),)
    if not pipelines:
        hint = "name a pipeline's .py or .yaml file, or a folder that has one"
        raise FileUnusable(f"there is no pipeline in the folder {folder}", hint=hint)
    return FolderContents(tuple(pipelines), tuple(left_out), tuple(unreadable))


def files_in(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders by their names' ends, in order, without hidden ones."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        yield from (Path(parent) / name for name in sorted(names) if name.endswith(endings) and name[0] != ".")


def _read(path: Path) -> _File:
    if path.name.endswith(_TESTS):
        return _File(why="tests")
    unreadable = _File((str(path),), is_readable=False)
    try:
        data = read_start(path, DEFINITION_BYTES + 1) if path.is_file() else None  # a named pipe keeps us waiting
        if data is None:
            return unreadable
        if len(data) > DEFINITION_BYTES:
            data = data[: data.rfind(b"\n") + 1]  # its beginning shows what it is
        if path.name.endswith(_YAML):
            return _of_yaml(path, data, data.decode("utf-8-sig"))
        return _of_python(path, decode_source(data))
    except (OSError, UnicodeDecodeError, SyntaxError):
        return unreadable


def _of_yaml(path: Path, data: bytes, text: str) -> _File:
    """By the keys at the top, also of a file that does not parse: it may be a pipeline with a mistake."""
    problems: list[Problem] = []
    root = read_document(data, str(path), problems)
    keys = set(root.by_name if isinstance(root, Fields) else ())
    if root is None:
        keys = set((_FLOW_KEY if text.lstrip().startswith("{") else _TOP_KEY).findall(text))
    named = "name" in keys and (root is None or keys & {"sources", "tables", "include"})
    if "sinks" in keys or named or (root is None and not problems):
        return _File((str(path),), is_readable=root is not None, functions=_functions_of(path, root))
    if "tests" in keys:
        return _File(why="tests")
    if keys & _SHARED_KEYS and not [key for key in keys - _SHARED_KEYS if not key.startswith("x-")]:
        return _File(why="sources that pipelines include")
    return _File(why="no pipeline: it has neither sinks: nor name: with sources:")


def _functions_of(path: Path, root: Node | None) -> tuple[str, ...]:
    _, named = root.by_name.get("functions", (None, None)) if isinstance(root, Fields) else (None, None)
    nodes = named.nodes if isinstance(named, Items) else (named,)
    texts = [node.text for node in nodes if isinstance(node, Scalar) and "\0" not in node.text]
    paths = [os.path.realpath(path.parent / fill(text, os.environ).text) for text in texts]
    return tuple(dict.fromkeys(paths))


def _of_python(path: Path, text: str) -> _File:
    """By the calls of `Pipeline` outside functions; several pipelines of a file are chosen by their names."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        meant = "millrace" in text and "Pipeline(" in text
        why = "no pipeline: it is no Python that can be parsed"
        return _File((str(path),), is_readable=False) if meant else _File(why=why)
    calls = [node for node in _outside_functions(tree) if isinstance(node, ast.Call) and _called(node) == "Pipeline"]
    if not calls:
        return _File(why="no pipeline: it does not call Pipeline outside functions")
    names = [_literal_name(call) for call in calls]
    if len(names) == 1 or None in names or len(set(names)) < len(names):
        return _File((str(path),))
    return _File(tuple(f"{path}::{name}" for name in names))


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
