"""Functions for SQL as the user writes them: in a file that YAML names, or in the file of a pipeline.

- `functions_of_file` reads a file: its plain functions with type hints, and what is marked as a UDF.
- `function_def` reads one function; it raises InvalidDefinition.
- `arrow_udf` marks a function that gets Arrow arrays instead of the values of one row.

A name that begins with `_`, and whatever a file imports, is no function for SQL.
"""

from __future__ import annotations

import inspect
import os
import runpy
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

from millrace.errors import InvalidDefinition, InvalidSchema, MillraceError, Problem, SourceLocation
from millrace.limited_files import DEFINITION_BYTES
from millrace.pipeline.functions import ARROW, PYSPARK, ROWS, FunctionDef
from millrace.pipeline.loading.user_errors import FUNCTIONS_MODULE, interrupts_noted, mistake, place_in
from millrace.pipeline.schema import parse_schema

F = TypeVar("F", bound=Callable[..., Any])

_MARK = "_millrace_returns"
_SIMPLE = {
    str: "string",
    bool: "boolean",
    int: "bigint",
    float: "double",
    bytes: "binary",
    Decimal: "decimal(38,18)",
    datetime: "timestamp",
    date: "date",
}
_LISTS, _MAPS = (list, Sequence), (dict, Mapping)
_SCALAR_UDFS = (100, 101, 200, 204, 250, 251)
"""PySpark's `PythonEvalType` of UDFs that give a value for each row: by row, by Arrow, by pandas."""
_OF_ITERATORS = (204, 251)
"""Those of them that get and give an iterator of batches."""
_EXAMPLE = "write types, as def score(text: str, factor: float) -> float:"


def arrow_udf(returns: str) -> Callable[[F], F]:
    """Mark a function for SQL that gets a `pyarrow.Array` for each argument and returns one, of a Spark type."""

    def mark(function: F) -> F:
        setattr(function, _MARK, returns)
        return function

    return mark


def functions_of_file(path: Path, at: SourceLocation) -> tuple[list[FunctionDef], list[Problem]]:
    """Return the functions of a file, and what is wrong with it; `at` is where the pipeline names it."""
    try:
        members = _members(path)
    except MillraceError as error:
        place = error.place or at
        return [], [Problem("function.file", f"functions: {error.message}", place, error.hint, error.why)]
    functions, problems = [], []
    for name, member in members.items():
        try:
            functions.append(function_def(member, name))
        except InvalidDefinition as error:
            place = error.place or at
            problems.append(Problem("function.types", error.message, place, error.hint, error.why, name=name))
    if not members:
        hint = "define one: def score(text: str) -> float:"
        problems.append(Problem("function.file", f"functions: {path} has no functions", at, hint))
    return functions, problems


def _members(path: Path) -> dict[str, Any]:
    """Run a file, and return the functions that it defines."""
    from millrace.pipeline.loading import stand_beside

    if not os.path.isfile(path):  # noqa: PTH113 - false, also of a path that no file can have
        raise InvalidDefinition(f"there is no file {path}", hint="name a .py file, by its path from the pipeline's")
    if path.suffix != ".py" or path.stat().st_size > DEFINITION_BYTES:
        raise InvalidDefinition(f"{path} is no Python file of at most {DEFINITION_BYTES:,} bytes")
    file = str(path)
    stand_beside(file)
    with interrupts_noted() as interrupted:
        try:
            # Spark's workers get its functions whole: no module of this name is there to import.
            members = runpy.run_path(file, run_name=FUNCTIONS_MODULE)
        except MillraceError as error:
            error.place = error.place or place_in(file, error)
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and interrupted():
                raise
            raise mistake(file, error) from error
    return {name: member for name, member in members.items() if not name.startswith("_") and _is_of(member, file)}


def _is_of(member: Any, file: str) -> bool:
    """Whether a function, or one that is marked as a UDF, is written in a file."""
    function = getattr(member, "func", member) if hasattr(member, "evalType") else member
    return inspect.isfunction(function) and function.__code__.co_filename == file


def function_def(function: Any, name: str | None = None) -> FunctionDef:
    """Return a function for SQL: its hints, or the mark of a UDF, say the types."""
    if hasattr(function, "evalType") and callable(getattr(function, "func", None)):
        return _of_pyspark(function, name)
    if not inspect.isfunction(function):
        raise InvalidDefinition(f"a function for SQL is a Python function, not {type(function).__name__}")
    name, place = name or function.__name__, _place(function)
    _require_value(function, name, place)
    parameters = _positional(function, name, place)
    optional = sum(parameter.default is not parameter.empty for parameter in parameters)
    hints = _hints(function, name, place)
    untyped = [parameter.name for parameter in parameters if parameter.name not in hints]
    if untyped:
        what = f"{name}() has no type for {', '.join(untyped)}"
        raise InvalidDefinition(what, place=place, hint=_EXAMPLE)
    if hasattr(function, _MARK):
        given = [hints[parameter.name] for parameter in parameters]
        if not given or not all(map(_is_array, (*given, hints.get("return")))):
            hint = f"write def {name}(text: pa.Array) -> pa.Array:"
            raise InvalidDefinition(f"{name}() is an Arrow UDF: it gets and returns arrays", place=place, hint=hint)
        returns = _declared(getattr(function, _MARK), name, place)
        return FunctionDef(name, ARROW, function, ("",) * len(given), returns, optional, place)
    if "return" not in hints or hints["return"] is type(None):
        raise InvalidDefinition(f"{name}() has no type for what it returns", place=place, hint=_EXAMPLE)
    kinds = [_typed(hints[parameter.name], function, parameter.name, name, place) for parameter in parameters]
    returns = _typed(hints["return"], function, "what it returns", name, place)
    return FunctionDef(name, ROWS, function, tuple(kinds), returns, optional, place)


def _of_pyspark(udf: Any, name: str | None) -> FunctionDef:
    name, place = name or str(udf.__name__), _place(udf.func)
    if udf.evalType not in _SCALAR_UDFS:
        hint = "a function for SQL gives a value for each row"
        raise InvalidDefinition(f"{name}() is a UDF of groups or tables", place=place, hint=hint)
    if udf.evalType not in _OF_ITERATORS:
        _require_value(udf.func, name, place)
    parameters = _positional(udf.func, name, place)
    optional = sum(parameter.default is not parameter.empty for parameter in parameters)
    return FunctionDef(name, PYSPARK, udf, ("",) * len(parameters), "", optional, place)


def _place(function: Any) -> SourceLocation:
    code = getattr(function, "__code__", None)
    return SourceLocation(code.co_filename, code.co_firstlineno) if code else SourceLocation("<memory>")


def _require_value(function: Any, name: str, place: SourceLocation) -> None:
    """Raise InvalidDefinition for a function that returns no value when it is called."""
    hint = "a function for SQL returns the value of one row"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidDefinition(f"{name}() is an async function: no event loop runs it", place=place, hint=hint)
    if inspect.isgeneratorfunction(function):
        hint += "; return a list instead of yield"
        raise InvalidDefinition(f"{name}() is a generator: it has yield", place=place, hint=hint)


def _positional(function: Any, name: str, place: SourceLocation) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.KEYWORD_ONLY) for each in parameters):
        hint = "SQL gives arguments by position, one for each parameter"
        raise InvalidDefinition(f"{name}() has parameters that SQL cannot give", place=place, hint=hint)
    return parameters


def _hints(function: Any, name: str, place: SourceLocation) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception as error:  # a hint may be any expression
        why = f"{type(error).__name__}: {error}"
        raise InvalidDefinition(f"the types of {name}() cannot be read", place=place, why=why, hint=_EXAMPLE) from None


def _is_array(hint: Any) -> bool:
    """Whether a hint is `pyarrow.Array`; PySpark knows no more special ones."""
    module = str(getattr(hint, "__module__", ""))
    return module.partition(".")[0] == "pyarrow" and getattr(hint, "__name__", "") == "Array"


def _declared(given: Any, name: str, place: SourceLocation) -> str:
    """The Spark type that a mark says."""
    try:
        return parse_schema(f"value {given}").fields[0].type.ddl() if isinstance(given, str) else _no_type(given)
    except InvalidSchema as error:
        hint = error.hint or 'write @mr.arrow_udf("double")'
        message = f"{name}(): {error.message.partition(' (at ')[0]}"
        raise InvalidDefinition(message, place=place, hint=hint, why=error.why) from None


def _no_type(given: Any) -> str:
    raise InvalidSchema(f"a Spark type is text, not {type(given).__name__}")


def _typed(hint: Any, function: Any, what: str, name: str, place: SourceLocation) -> str:
    try:
        kind = _spark_type(hint, function.__globals__)
    except (NameError, TypeError, RecursionError):  # of a field of a NamedTuple
        kind = None
    if kind is None:
        shown = getattr(hint, "__name__", None) or str(hint)
        why = "types are str, int, float, bool, bytes, Decimal, date, datetime, list[…], dict[…, …] and NamedTuple"
        hint_text = 'for arrays of Arrow, mark the function: @mr.arrow_udf("double")' if _is_array(hint) else _EXAMPLE
        message = f"{name}(): {what} is {shown}, for which there is no Spark type"
        raise InvalidDefinition(message, place=place, why=why, hint=hint_text)
    return kind


def _spark_type(hint: Any, names: dict[str, Any]) -> str | None:
    """The Spark type of a hint, whose own hints may use the names of its file; None if there is none."""
    if isinstance(hint, type) and hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        others = [part for part in inner if part is not type(None)]
        return _spark_type(others[0], names) if len(others) == 1 else None
    if isinstance(hint, type) and (typing.is_typeddict(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields"))):
        fields = {field: _spark_type(kind, names) for field, kind in typing.get_type_hints(hint, names).items()}
        return None if None in fields.values() or not fields else _struct(fields)
    kinds = [_spark_type(part, names) for part in inner]
    if None in kinds:
        return None
    if origin in _LISTS and len(kinds) == 1:
        return f"array<{kinds[0]}>"
    return f"map<{kinds[0]},{kinds[1]}>" if origin in _MAPS and len(kinds) == 2 else None


def _struct(fields: Mapping[str, str | None]) -> str:
    return f"struct<{', '.join(f'{name}: {kind}' for name, kind in fields.items())}>"
