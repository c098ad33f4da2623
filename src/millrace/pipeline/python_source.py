"""What a Python file says literally, and where: read from its syntax tree, never run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from millrace.errors import SourceLocation
from millrace.limited_files import read_limited
from millrace.pipeline.sql import blank_lines

_DURATIONS = ("windowDuration", "slideDuration", "gapDuration", "delayThreshold")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Marks = tuple[int, ...] | None


def function_tree(function: Callable[..., Any]) -> Function | None:
    """The definition of a function, with the line numbers of its file; None when there is no file to read."""
    code = function.__code__
    tree = _tree(code.co_filename)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, Function) and node.name == code.co_name:
            decorated = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if decorated == code.co_firstlineno:
                return node
    return None


def returned_text(function: Callable[..., Any], text: str) -> tuple[SourceLocation | None, Marks]:
    """Where the text that a function returns begins, as `Table` keeps it."""
    tree = function_tree(function)
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)] if tree else []
    return _place_of(function.__code__.co_filename, returns, text)


def called_text(at: SourceLocation, text: str) -> tuple[SourceLocation | None, Marks]:
    """Where a text stands that a call on some line was given."""
    return _place_of(at.file, _calls(at), text)


def literal_keywords(at: SourceLocation) -> Iterator[tuple[str, str, SourceLocation]]:
    """The plain texts that a call on some line was given by name, those in dictionaries included: name, text, place."""
    for node in (below for call in _calls(at) for below in ast.walk(call)):
        if isinstance(node, ast.keyword) and node.arg and (text := _text(node.value)):
            yield node.arg, text, SourceLocation(at.file, node.lineno)
        for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
            if isinstance(key, ast.Constant) and (text := _text(value)):
                yield str(key.value), text, SourceLocation(at.file, key.lineno)


def called_with_texts(
    function: Callable[..., Any], names: tuple[str, ...]
) -> Iterator[tuple[str, list[str], SourceLocation]]:
    """The calls in a function whose arguments after the first are plain texts: name, texts, place."""
    tree = function_tree(function)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and (name := called_name(node)) in names:
            arguments = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg in _DURATIONS)]
            texts = [_text(argument) for argument in arguments]
            if texts and all(texts):
                yield name, texts, SourceLocation(function.__code__.co_filename, node.lineno)


def called_name(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _place_of(file: str, within: list[Any], text: str) -> tuple[SourceLocation | None, Marks]:
    for node in (below for above in within for below in ast.walk(above)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and getattr(node, "value", text) == text:
            # Only between triple quotes is a line of the text a line of the file.
            as_written = (node.end_lineno or node.lineno) - node.lineno == text.count("\n")
            line = node.lineno + (blank_lines(text) if as_written else 0)
            return SourceLocation(file, line), None if as_written else (0,)
    return None, None


def _calls(at: SourceLocation) -> list[ast.Call]:
    tree = _tree(at.file)
    line = at.line or 0
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree else []
    return [call for call in calls if call.lineno <= line <= (call.end_lineno or call.lineno)]


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _tree(file: str) -> ast.Module | None:
    try:
        return _parsed(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=16)
def _parsed(file: str, _: int) -> ast.Module:
    return ast.parse(read_limited(file))  # the name is the code's own: it may be a device's
