"""docs/architecture.md and CONTRIBUTING.md name files, packages and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .test_documentation import ROOT

SOURCES = ROOT / "src/millrace"
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
NAMED = re.compile(r"`([\w./-]+(?:\.(?:py|tsx?|md|toml|yaml|cjs)|/))(?:: ([\w.]+))?`")


def named(page: str) -> list[tuple[str, str]]:
    """Return the paths that a page names, each with the function or class that it names there."""
    return NAMED.findall((ROOT / page).read_text("utf-8"))


def located(path: str) -> Path | None:
    """Return the file or folder that a path of a page stands for."""
    return next((folder / path for folder in (SOURCES, ROOT) if (folder / path).exists()), None)


def definitions(file: Path) -> set[str]:
    """Return the functions, the classes and the members of classes that a module defines."""
    tree = ast.parse(file.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{member.name}" for member in node.body if isinstance(member, kinds)}
    return names


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    assert [path for path, _ in named(page) if located(path) is None] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_function_exists(page: str) -> None:
    missing = [
        f"{path}: {name}"
        for path, name in named(page)
        if name and (file := located(path)) and name not in definitions(file)
    ]
    assert missing == []


def test_the_tree_has_every_package_and_every_module_beside_them() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    (tree,) = re.findall(r"```text\nsrc/millrace/\n(.*?)^web/src/", text, re.DOTALL | re.MULTILINE)
    folders: list[str] = []
    drawn = set()
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0].rstrip("/")
        folders = [*folders[: depth - 1], name]
        drawn.add("/".join(folders))
    packages = {str(path.parent.relative_to(SOURCES)) for path in SOURCES.rglob("*/__init__.py")} - {"."}
    modules = {path.name for path in SOURCES.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert drawn == packages | modules | {"templates"}
