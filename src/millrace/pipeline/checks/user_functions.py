"""Rules about the functions of the user that SQL calls.

- SQL can call their names, which are not those of Spark's functions, and not used twice.
- SQL gives each as many arguments as it has parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import InvalidSql, Problem
from millrace.pipeline.checks.context import CheckContext
from millrace.pipeline.functions import FunctionDef, calls
from millrace.pipeline.spark_functions import spark_functions
from millrace.pipeline.sql import call_of, parsed
from millrace.units import format_count


def function_names(context: CheckContext) -> Iterator[Problem]:
    """A function has a name of its own: with Spark's it would take the place of Spark's function everywhere."""
    first: dict[str, FunctionDef] = {}
    for function in context.pipeline.functions:
        other = first.setdefault(function.name.lower(), function)
        if function.name.lower() in spark_functions():
            message = f"the function {function.name}() has the name of a function of Spark"
            yield Problem("function.name", message, function.place, f"call it my_{function.name}, for example")
        elif not function.name.isascii() or not function.name.isidentifier():
            message = f"SQL cannot call a function {function.name!r}"
            yield Problem("function.name", message, function.place, "use letters, digits and _")
        elif not _is_callable(function):
            message = f"SQL cannot call a function {function.name!r}: the word has a meaning of its own"
            yield Problem("function.name", message, function.place, f"call it my_{function.name}, for example")
        elif other is not function:
            message = f"there are two functions {function.name}()"
            why = f"the other is at {other.place}, and to SQL capitals make no difference"
            yield Problem("function.name", message, function.place, "rename one", why)


def _is_callable(function: FunctionDef) -> bool:
    """Return whether SQL with a call of the function parses, and has it as a call."""
    name, arguments = function.name, ", ".join("b" for _ in function.parameters)
    try:
        tree = parsed(" ".join(("SELECT a,", name, "(", arguments, ") AS c FROM d")))
    except InvalidSql:
        return False
    return any(call.name == name for node in tree.walk() if (call := call_of(node)))


def argument_counts(context: CheckContext) -> Iterator[Problem]:
    """A call has an argument for each parameter without a default."""
    functions = {function.name.lower(): function for function in context.pipeline.functions}
    for table in context.pipeline.tables:
        for call in calls(table.sql) if table.sql and functions else ():
            function = functions.get(call.name.lower())
            if function is None:
                continue
            most = len(function.parameters)
            least = most - function.optional
            if not least <= call.arguments <= most:
                wanted = "" if least == most else f"{least} to "
                wanted += format_count(most, "argument")
                message = f"table {table.name!r}: {function.name}() takes {wanted}, not {call.arguments}"
                hint = f"it is defined at {function.place}"
                yield Problem("function.arguments", message, table.sql_line(call.line, call.column), hint)
