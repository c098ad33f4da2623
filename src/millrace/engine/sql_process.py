"""The process that answers SQL over memory tables, and cannot reach anything else.

`memory_sql` starts it with an empty environment. It keeps the latest copy of each table and runs every query in a child
process of its own, which drops its rights before it runs the query:

- a new DuckDB database without access to files, network, extensions and Python variables; its configuration is locked;
- no descriptor but that of the answer, and no other can be opened: no file, no socket, no pipe;
- a limit on time (SIGALRM ends it, whatever it does), on memory and on the size of the answer; a low priority.

So nothing that a query changes outlives its answer, and a query that crashes DuckDB ends only its own child.

Commands are JSON lines on standard input; a table's line is followed by an Arrow stream. Answers are JSON lines.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import orjson
import pyarrow as pa

from millrace.services.parent_watchdog import die_with_parent

_NICENESS = 10
"""A tenth of the CPU of a busy machine: with less, queries would time out during a catch-up."""
_DATABASE_MEMORY = "512MB"
_MAX_CHILD_MEMORY_BYTES = 1024**3
"""Address space that a query may add to that of the process: some allocations are outside DuckDB's own limit."""
_MAX_JSON_INTEGER = 2**63
_QUERY_TYPES = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI)
"""Statements that return rows; PIVOT is a MULTI. Others would do no harm, but would seem to have had an effect."""


@dataclass(frozen=True)
class SqlQuestion:
    """A query in SQL, and the limits of its answer."""

    number: int
    """Stands in every line about the question: a child that is killed after its answer has two."""
    sql: str
    max_rows: int
    max_bytes: int
    timeout_s: float


class SqlRefused(Exception):
    """A query that is not run, or whose answer is not returned; `kind` says why."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


def main() -> None:
    """Serve until standard input ends."""
    os.nice(_NICENESS)
    _write_to_kernel("autogroup", str(_NICENESS))  # Linux weighs sessions by it: the niceness counts only within one
    _write_to_kernel("oom_score_adj", "1000")  # if memory runs out, Linux kills this process, not the pipeline
    pa.scalar(0, pa.timestamp("us", "UTC")).as_py()  # loads time zones: children cannot open files
    answers = os.dup(1)
    os.dup2(2, 1)  # the output of libraries is no answer
    tables: dict[str, pa.Table] = {}
    commands = sys.stdin.buffer
    while line := commands.readline():
        command = orjson.loads(line)
        if "table" in command:
            options = pa.ipc.IpcReadOptions(use_threads=False)
            tables[command["table"]] = pa.ipc.open_stream(commands, options=options).read_all()
        elif "forget" in command:
            del tables[command["forget"]]
        else:
            asked = {name: tables[name] for name in command.pop("tables")}
            schemas = {name: pa.py_buffer(b64decode(schema)) for name, schema in command.pop("schemas").items()}
            empty = {name: pa.ipc.read_schema(schema).empty_table() for name, schema in schemas.items()}
            _answer_in_child(SqlQuestion(**command), empty | asked, answers)


def _answer_in_child(question: SqlQuestion, tables: dict[str, pa.Table], answers: int) -> None:
    """Fork, let the child answer, and report why if it ended without an answer."""
    own = os.getpid()
    child = os.fork()
    if child == 0:
        _answer_and_exit(question, tables, answers, own)
    _, status = os.waitpid(child, 0)
    if status == 0:
        return
    signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    kind = "Timeout" if signal_number == signal.SIGALRM else "Crash"
    _write_line({"kind": kind, "message": f"wait status {status}"}, answers, question)


def _answer_and_exit(question: SqlQuestion, tables: dict[str, pa.Table], answers: int, parent: int) -> NoReturn:
    status = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, question.timeout_s)
        _write_line(_answer(_confined(tables), question), answers, question)
        status = 0
    except Exception as error:  # a defect; if there is no memory even for this, the parent reports it
        _write_line({"kind": "Failure", "message": repr(error)}, answers, question)
        status = 0
    finally:
        os._exit(status)


def _confined(tables: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """Return a database of these tables, and drop the rights of this process to open anything."""
    database = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,
            "memory_limit": _DATABASE_MEMORY,
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",
        },
    )
    for name, table in tables.items():
        database.register(name, table)
    for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
        database.execute(f"SET {setting}")
    memory = Path("/proc/self/statm")
    if memory.exists():  # on other systems there are only DuckDB's own limit and the timeout
        max_bytes = int(memory.read_text("ascii").split()[0]) * resource.getpagesize() + _MAX_CHILD_MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
        resource.setrlimit(limit, (0, 0))
    return database


def _write_to_kernel(name: str, value: str) -> None:
    with suppress(OSError):  # another system, or a container that does not allow it
        Path(f"/proc/self/{name}").write_text(value, "ascii")


def _answer(database: duckdb.DuckDBPyConnection, question: SqlQuestion) -> dict[str, Any]:
    try:
        return _rows(database, question)
    except SqlRefused as refused:
        return {"kind": refused.kind, "message": str(refused)}
    except duckdb.Error as error:
        return {"kind": type(error).__name__, "message": str(error)}
    except (pa.ArrowException, OverflowError, ValueError) as error:
        return {"kind": "Value", "message": str(error)}


def _rows(database: duckdb.DuckDBPyConnection, question: SqlQuestion) -> dict[str, Any]:
    statements = database.extract_statements(question.sql)
    if len(statements) != 1:
        raise SqlRefused("Several" if statements else "Empty")
    if statements[0].type not in _QUERY_TYPES:
        raise SqlRefused("Statement", statements[0].type.name)
    relation = database.sql(question.sql)
    if relation is None:
        raise SqlRefused("Statement", statements[0].type.name)
    table = relation.limit(question.max_rows + 1).to_arrow_table()
    more, table = table.num_rows > question.max_rows, table.slice(0, question.max_rows)
    if table.nbytes > question.max_bytes:
        raise SqlRefused("Size")
    columns = [[_json_value(value) for value in column.to_pylist(maps_as_pydicts="lossy")] for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"columns": table.column_names, "rows": rows, "more": more}


def _json_value(value: Any) -> Any:
    """A value as JSON has it: numbers as numbers, bytes as hexadecimal digits, times as text in UTC."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, Decimal):  # sums of whole numbers are decimals without places
        return _number(int(value)) if value.as_tuple().exponent == 0 else str(value)
    if isinstance(value, dict):
        return {str(name): _json_value(item) for name, item in value.items()}
    return [_json_value(item) for item in value] if isinstance(value, list) else _text(value)


def _number(value: int) -> int | str:
    return value if -_MAX_JSON_INTEGER <= value < _MAX_JSON_INTEGER else str(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        return str(value.replace(tzinfo=None))
    if isinstance(value, pa.MonthDayNano):
        return f"{value.months} months {value.days} days {value.nanoseconds / 1e9:g} seconds"
    return str(value)


def _write_line(answer: dict[str, Any], answers: int, question: SqlQuestion) -> None:
    encoded = orjson.dumps({"number": question.number, **answer})
    if len(encoded) > question.max_bytes:  # JSON may be much larger than the columns
        encoded = orjson.dumps({"number": question.number, "kind": "Size", "message": ""})
    line = memoryview(encoded + b"\n")
    while line:
        line = line[os.write(answers, line) :]
