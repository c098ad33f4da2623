"""Functions of the user that SQL calls by their names, in Spark's workers.

- `FunctionDef` is one: its name, the types that its hints say, and how Spark calls it.
- `calls` finds what a query calls; `called_functions` the functions that a table may call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from millrace.errors import SourceLocation
from millrace.pipeline.python_source import function_tree

if TYPE_CHECKING:
    from millrace.pipeline.model import TableDef

ROWS, ARROW, PYSPARK = "rows", "arrow", "pyspark"
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class FunctionDef:
    """A function: called for each row (`rows`), for Arrow arrays (`arrow`), or a UDF made by PySpark (`pyspark`)."""

    name: str
    kind: str
    function: Callable[..., Any]
    """What runs; a UDF of PySpark as it is."""
    parameters: tuple[str, ...]
    """The Spark type of each parameter, in order; empty texts for arrays and where PySpark has the types."""
    returns: str = ""
    """The Spark type of the result; PySpark's own have theirs."""
    optional: int = 0
    """How many of the last parameters have a default."""
    place: SourceLocation = field(default_factory=lambda: SourceLocation("<memory>"), compare=False, repr=False)

    @property
    def python(self) -> Callable[..., Any]:
        """Return the function that the user wrote."""
        function: Callable[..., Any] = getattr(self.function, "func", self.function)
        return function


@dataclass(frozen=True)
class FunctionCall:
    """A call in a query: of what, with how many arguments, and where (line and column from 1)."""

    name: str
    arguments: int
    line: int
    column: int


@lru_cache(maxsize=256)
def calls(query: str) -> tuple[FunctionCall, ...]:
    """Return the calls in a query, whatever the parser takes a name for; none if it is no SQL."""
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import TokenError

    try:
        tokens = Spark().tokenize(query)
    except TokenError:
        return ()
    found = []
    for number, token in enumerate(tokens[:-1]):
        word = token.text.isidentifier() and token.token_type.name != "STRING"
        qualified = number > 0 and tokens[number - 1].text == "."
        if word and not qualified and tokens[number + 1].text == "(":
            count = _argument_count(tokens[number + 2 :])
            found.append(FunctionCall(token.text, count, token.line, token.col - len(token.text) + 1))
    return tuple(found)


def _argument_count(tokens: Sequence[Any]) -> int:
    """How many arguments stand before the bracket that closes a call."""
    depth, count = 0, 0
    for number, token in enumerate(tokens):
        plain = token.token_type.name not in ("STRING", "IDENTIFIER")
        if plain and token.text in _CLOSING and depth == 0:
            return count + (number > 0)
        depth += plain * ((token.text in _OPENING) - (token.text in _CLOSING))
        count += plain and token.text == "," and depth == 0
    return count


def called_functions(functions: Sequence[FunctionDef], table: TableDef) -> Iterator[FunctionDef]:
    """Yield the functions that a table calls in SQL, or whose names the Python function of the table has."""
    if not functions:
        return
    if table.sql is not None:
        named = {call.name.lower() for call in calls(table.sql)}
    else:
        tree = function_tree(table.function) if table.function else None
        named = set() if tree is None else {word.lower() for word in _words(tree)}
    yield from (function for function in functions if function.name.lower() in named)


def _words(tree: ast.AST) -> Iterator[str]:
    """The names in a function, and the words of its texts: `F.expr("score(text)")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
            yield from (call.name for call in calls(node.value))
