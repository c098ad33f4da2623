"""Module paths that the sources have as text: Spark and child processes import them, which no type checker sees."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace

_PACKAGE = Path(millrace.__file__).parent
_MODULE_PATH = re.compile(r"(?<![\w.])millrace(?:\.\w+){2,}")


def texts(source: Path) -> Iterator[str]:
    """The strings of a file that are no docstrings."""
    tree = ast.parse(source.read_bytes())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def _sources() -> Iterator[Path]:
    """The files of the package, without those that list names of older versions for old checkpoints."""
    return (file for file in _PACKAGE.rglob("*.py") if "millrace.dstreams.kafka_inflow" not in file.read_text("utf-8"))


def module_paths() -> list[str]:
    """Every dotted path below a package of Millrace; the names of topics, groups and settings have no such package."""
    found = {path for file in _sources() for text in texts(file) for path in _MODULE_PATH.findall(text)}
    return sorted(path for path in found if (_PACKAGE / path.split(".")[1]).is_dir())


@pytest.mark.parametrize("path", module_paths())
def test_a_module_path_in_a_string_can_be_imported(path: str) -> None:
    importlib.import_module(path)


def test_the_paths_that_spark_and_child_processes_import_are_among_them() -> None:
    assert "millrace.engine.queries.decoding" in module_paths()
    assert "millrace.engine.sql_process" in module_paths()
