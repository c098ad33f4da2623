"""SQL over the memory tables of a run, for `millrace query`, the dashboard and the HTTP API.

- `MemorySql` answers one query at a time. The tables that a query names are copied as Arrow into a process that cannot
  reach anything else (`sql_process`); the dialect is DuckDB's.
- `QueryServer` takes the queries of `millrace query` on a Unix socket in the run's folder; `ask_run` sends them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import pyarrow as pa

from millrace.connectors.memory import MEMORY
from millrace.engine.failures.explain import explain
from millrace.engine.session.scratch import Scratch
from millrace.errors import InputError, InvalidSql, MillraceError, NotReady, ServiceFailed, UnknownName
from millrace.services.process import quote_output
from millrace.units import format_bytes

_TIMEOUT_S = 20.0
_PROCESS_OVERHEAD_S = 10.0
"""What the process may take beyond the timeout of a query, to start and to end it."""
_MAX_PENDING = 5
"""Queries at the same time: one is answered, the others wait."""
_MAX_WAIT_S = 5.0
_MAX_TABLES_BYTES = 1024**3
_MAX_ANSWER_BYTES = 8 * 1024**2
_MAX_ROWS = 10_000
_MAX_REQUEST_BYTES = 1_000_000
_COPY_PAUSE_FACTOR = 10
"""The pause after a copy, as a multiple of its time: copies take at most a tenth of the time."""
_DIALECT = 'the SQL is DuckDB\'s; quote names that are keywords of SQL: "at", "window"."start"'
_COLUMNS = "DESCRIBE TABLE lists the columns of a table; strings have single quotes"
_FUNCTIONS = {
    "array": "[1, 2]",
    "collect_list": "list(x)",
    "collect_set": "list(DISTINCT x)",
    "date_format": "strftime(x, '%H:%M')",
    "explode": "unnest(x)",
    "from_unixtime": "to_timestamp(x)",
    "get_json_object": "x ->> '$.a'",
    "named_struct": "{'a': 1}",
    "size": "len(x)",
}
"""Functions of Spark that have another name in DuckDB."""
_MISSING_FUNCTION = re.compile(r"Function with name (\w+) does not exist")
_LESS = "select less: filter, count, LIMIT"
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from millrace.engine.sql_process import main; main()"
_LIBRARY_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables that the process gets: some Pythons do not start without them."""
_MISSING_TABLE = re.compile(r"Table with name (.+?) does not exist")
_LISTS_TABLES = re.compile(r"show|information_schema|duckdb_|pg_catalog|sqlite_master", re.IGNORECASE)
QUERY_FILE, QUERY_SOCKET = "query.json", "query.sock"
_MAX_SOCKET_PATH_BYTES = 100
"""Systems allow 104 or 108."""


class MemorySql:
    """Answers queries over the memory tables during a run."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._slots = threading.BoundedSemaphore(_MAX_PENDING)
        self._turn = threading.Lock()
        self._state_lock = threading.Lock()
        self._unavailable: str | None = "the run is starting"
        self._process: _Process | None = None

    def open(self) -> None:
        self._unavailable = None

    def close(self) -> None:
        """Accept no more queries, and end the running one."""
        with self._state_lock:
            self._unavailable = "the run has ended"
            process = self._process
        if process:
            process.kill()  # this ends the running query, so its turn ends
            with self._turn:
                process.close()

    def ask(self, sql: str, max_rows: int) -> dict[str, Any]:
        """Return the columns and rows of a SELECT, at most `max_rows`, and whether there are more."""
        with self._my_turn():
            process = self._started()
            try:
                answer = self._answer(process, sql, max_rows)
            except _Ended as ended:
                process.close()
                self._require_open()
                raise ServiceFailed("the process that answers SQL ended", why=str(ended), hint="try again") from None
        if "rows" not in answer:
            raise _problem(answer, self._timeout_s)
        return answer

    def _answer(self, process: _Process, sql: str, max_rows: int) -> dict[str, Any]:
        """Run a query over the tables whose names are in its text; other names are found when DuckDB misses them."""
        tables = {name.lower(): name for name in MEMORY.names()}
        names = {name for lower, name in tables.items() if lower in sql.lower()}
        listed = tables.values() if not names and _LISTS_TABLES.search(sql) else ()
        question = {
            "sql": sql,
            "schemas": {name: b64encode(MEMORY.schema(name).serialize()).decode("ascii") for name in listed},
            "max_rows": max_rows,
            "max_bytes": _MAX_ANSWER_BYTES,
            "timeout_s": self._timeout_s,
        }
        while True:
            process.copy(names)
            answer = process.ask({**question, "tables": sorted(names)}, self._timeout_s + _PROCESS_OVERHEAD_S)
            missing = tables.get(_missing_table(answer).lower())
            if missing is None or missing in names:
                return answer
            names.add(missing)

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        with ExitStack() as acquired:
            if not self._slots.acquire(blocking=False):
                raise NotReady("too many queries wait for an answer", hint="try again in a moment")
            acquired.callback(self._slots.release)
            if not self._turn.acquire(timeout=_MAX_WAIT_S):
                raise NotReady("another query is running", hint="try again in a moment")
            acquired.callback(self._turn.release)
            yield

    def _started(self) -> _Process:
        with self._state_lock:
            self._require_open()
            if self._process and not self._process.running():
                self._process.close()
                self._process = None
            self._process = self._process or _Process()
            return self._process

    def _require_open(self) -> None:
        if self._unavailable:
            raise NotReady(self._unavailable, hint="try again when it runs")


class _Ended(Exception):
    """The process ended or does not answer; its text says why."""


class _Copy(NamedTuple):
    """The version and the size of a table that the process has."""

    version: int
    size: int


class _Process:
    """The process of `sql_process`: with an empty environment, no inherited descriptors and its own session."""

    def __init__(self) -> None:
        self._copies: dict[str, _Copy] = {}
        self._copied: set[str] = set()
        """All tables that were ever sent."""
        self._next_copy_at = 0.0
        """When tables that were sent before may be sent again."""
        self._number = 0
        """Of the last question: a line about an earlier one, which came too late for it, is no answer."""
        self._received = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._ending = threading.Lock()
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-c", _MAIN, *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd="/",
            env={name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ},
            start_new_session=True,
        )

    def running(self) -> bool:
        with self._ending:
            return self._popen.poll() is None

    def kill(self) -> None:
        """Kill it, and its child that runs a query."""
        with self._ending:
            if self._popen.returncode is None:  # else the group's number may be reused
                with suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
                self._popen.wait()

    def close(self) -> None:
        """Kill it and close its pipes; no other thread may be using them."""
        self.kill()
        for file in (self._popen.stdin, self._popen.stdout, self._errors):
            if file:
                with suppress(BrokenPipeError):  # data that was not written yet
                    file.close()

    def copy(self, names: Collection[str]) -> None:
        """Send the tables that are missing or have changed, unless some were sent a moment ago."""
        started = time.monotonic()
        versions = {name: MEMORY.version(name) for name in names}
        paused = started < self._next_copy_at
        due = {name: MEMORY.table(name) for name, version in versions.items() if self._is_due(name, version, paused)}
        sizes = {name: due[name].nbytes if name in due else self._copies[name].size for name in names}
        if sum(sizes.values()) > _MAX_TABLES_BYTES:
            what = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
            why = f"a query reads at most {format_bytes(_MAX_TABLES_BYTES)} of rows"
            hint = "keep fewer rows in memory: rows of the memory sink"
            raise InputError(f"the tables are too large for SQL: {what}", why=why, hint=hint)
        if sum((sizes | {name: copy.size for name, copy in self._copies.items()}).values()) > _MAX_TABLES_BYTES:
            for name in self._copies.keys() - set(names):
                self._write({"forget": name})
                del self._copies[name]
        for name, table in due.items():
            self._write({"table": name})
            with self._pipe() as pipe, pa.ipc.new_stream(pipe, table.schema) as stream:
                stream.write_table(table)
            self._copies[name] = _Copy(versions[name], sizes[name])
            self._copied.add(name)
        if due:
            now = time.monotonic()
            self._next_copy_at = now + (now - started) * _COPY_PAUSE_FACTOR

    def _is_due(self, name: str, version: int, paused: bool) -> bool:
        """Return whether a table has to be sent; raise NotReady if it was removed for others and copies are paused."""
        copy = self._copies.get(name)
        if copy is None and paused and name in self._copied:
            wait_s = max(self._next_copy_at - time.monotonic(), 0.1)
            raise NotReady(f"table {name!r} was copied a moment ago", hint=f"try again in {wait_s:.1f} s")
        return copy is None or (copy.version != version and not paused)

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        self._number += 1
        self._write({**question, "number": self._number})
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer: dict[str, Any] = orjson.loads(self._read_line(deadline))
            except orjson.JSONDecodeError:
                raise _Ended("its answer cannot be read") from None
            if answer.pop("number") == self._number:
                return answer

    def _write(self, command: Mapping[str, Any]) -> None:
        with self._pipe() as pipe:
            pipe.write(orjson.dumps(command) + b"\n")

    @contextmanager
    def _pipe(self) -> Iterator[IO[bytes]]:
        pipe = self._popen.stdin
        assert pipe is not None  # noqa: S101 - it was opened as a pipe
        try:
            yield pipe
            pipe.flush()
        except OSError:
            raise self._ended() from None

    def _read_line(self, deadline: float) -> bytes:
        """Return its next line; raise _Ended if there is none in time, or if it is longer than any answer."""
        assert self._popen.stdout is not None  # noqa: S101 - it was opened as a pipe
        source = self._popen.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while b"\n" not in self._received:
                remaining_s = max(deadline - time.monotonic(), 0.0)
                if len(self._received) > _MAX_ANSWER_BYTES + 1 or not selector.select(remaining_s):
                    raise _Ended("it did not answer in time, or too much")
                part = os.read(source, 1024**2)
                if not part:
                    raise self._ended()
                self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _ended(self) -> _Ended:
        self.kill()  # so that its output is complete
        self._errors.seek(0)
        output = self._errors.read(1024**2).decode("utf-8", "replace")
        return _Ended(f"exit status {self._popen.returncode}{quote_output(output)}")


def _missing_table(answer: Mapping[str, Any]) -> str:
    """Return the table that an answer misses; "" if the answer is another one."""
    match = _MISSING_TABLE.search(str(answer.get("message"))) if answer.get("kind") == "CatalogException" else None
    return match[1] if match else ""


def _problem(answer: Mapping[str, Any], timeout_s: float) -> MillraceError:
    """Return the error for an answer without rows, by the kind that the process reports."""
    kind, message = str(answer["kind"]), str(answer["message"])
    if missing := _missing_table(answer):
        if names := MEMORY.names():
            return UnknownName.among("table in memory", missing, names)
        return NotReady("no table is in memory yet", hint="wait for a first batch; a memory sink writes rows there")
    problems: dict[str, MillraceError] = {
        "Timeout": InputError(f"the query took longer than {timeout_s:g} s", hint=_LESS),
        "Crash": InputError("the query failed within its memory limit", hint=_LESS),
        "OutOfMemoryException": InputError("the query needs more memory than its limit", hint=_LESS),
        "Failure": ServiceFailed("the process that answers SQL failed", why=message),
        "Size": InputError("the answer is too large", why="it has more than 8 MB", hint=_LESS),
        "Value": InputError("a value of the answer cannot be shown", why=message, hint="cast it to VARCHAR"),
        "Several": InvalidSql("this is more than one query", hint="send one SELECT at a time"),
        "Empty": InvalidSql("the query is empty", hint="write SELECT … FROM …"),
        "Statement": InvalidSql(f"{message} is not a query", hint="only SELECT is possible here"),
        "PermissionException": InvalidSql("a query can only read the tables of memory sinks", why=_first_line(message)),
    }
    line = next((line.strip()[:200] for line in message.splitlines() if line.startswith("LINE ")), None)
    return problems.get(kind) or InvalidSql(_first_line(message), why=line, hint=_hint(kind, message))


def _hint(kind: str, message: str) -> str | None:
    if kind == "ParserException":
        return _DIALECT
    if match := _MISSING_FUNCTION.search(message):
        equivalent = _FUNCTIONS.get(match[1].lower())
        return f"in DuckDB it is {equivalent}" if equivalent else "functions are DuckDB's, not Spark's"
    return _COLUMNS if "not found in FROM clause" in message else None


def _first_line(message: str) -> str:
    """Return the first line of DuckDB's message, without the kind of the error."""
    line = message.partition("\n")[0]
    return line.partition("Error: ")[2] or line


class QueryServer:
    """Answers `millrace query` during a run, for processes that may read the run's folder."""

    def __init__(self, memory_sql: MemorySql, folder: Path, notify: Callable[[str], None] = lambda _: None) -> None:
        self._memory_sql, self._folder, self._notify = memory_sql, folder, notify
        self._key = secrets.token_hex(16)
        self._scratch: Scratch | None = None
        self._listener: Listener | None = None

    def __enter__(self) -> QueryServer:
        self._folder.mkdir(parents=True, exist_ok=True)  # a driver on a cluster has no folder of its own yet
        self._memory_sql.open()
        try:
            self._listener = self._open_listener()
        except OSError as error:
            self._notify(f"millrace query cannot reach this run: {error.strerror or error}")
            return self
        note = {"socket": self._listener.address, "key": self._key, "pid": os.getpid()}
        descriptor = os.open(self._folder / QUERY_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(note, file)
        threading.Thread(target=self._listen, args=(self._listener,), name="query-server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / QUERY_FILE).unlink(missing_ok=True)
        if self._listener:
            with suppress(OSError):
                Client(str(self._listener.address), "AF_UNIX").close()  # wakes the thread, which ends
            self._listener.close()
        self._memory_sql.close()
        if self._scratch:
            self._scratch.remove()

    def _open_listener(self) -> Listener:
        path = (self._folder / QUERY_SOCKET).absolute()
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
            with suppress(OSError):  # a file system without sockets
                return _socket_at(path)
        self._scratch = Scratch()
        return _socket_at(self._scratch.folder / QUERY_SOCKET)

    def _listen(self, listener: Listener) -> None:
        while True:
            try:
                client = listener.accept()
            except OSError:
                return
            if not (self._folder / QUERY_FILE).exists():
                client.close()
                return
            threading.Thread(target=self._serve, args=(client,), name="query", daemon=True).start()

    def _serve(self, client: Connection) -> None:
        with client, suppress(OSError, EOFError):
            if client.poll(_PROCESS_OVERHEAD_S):
                client.send_bytes(json.dumps(self._reply(client.recv_bytes(_MAX_REQUEST_BYTES))).encode())

    def _reply(self, request: bytes) -> dict[str, Any]:
        try:
            question = json.loads(request)
            if not secrets.compare_digest(str(question["key"]).encode(), self._key.encode()):
                raise InputError("the key is not that of this run", hint="try again")
            return self._memory_sql.ask(question["sql"], min(int(question["rows"]), _MAX_ROWS))
        except Exception as error:
            problem = explain(error)
            return {"error": problem.message, "hint": problem.hint, "why": problem.why}


def _socket_at(path: Path) -> Listener:
    path.unlink(missing_ok=True)  # of a run that was killed
    listener = Listener(str(path), "AF_UNIX")
    path.chmod(0o600)
    return listener


def ask_run(folder: Path, sql: str, max_rows: int) -> dict[str, Any]:
    """Send a query to the run that uses a state folder, and return its answer."""
    path = folder / QUERY_FILE
    if not path.exists():
        hint = "start it with millrace run FILE, or name its --state folder"
        raise InputError(f"no pipeline runs in {folder}", hint=hint)
    note = json.loads(path.read_text("utf-8"))
    try:
        with Client(note["socket"], "AF_UNIX") as connection:
            connection.send_bytes(json.dumps({"key": note["key"], "sql": sql, "rows": max_rows}).encode())
            if not connection.poll(_TIMEOUT_S + _PROCESS_OVERHEAD_S + _MAX_WAIT_S):
                raise EOFError
            answer: dict[str, Any] = json.loads(connection.recv_bytes())
    except (OSError, EOFError):
        raise InputError(f"the run in {folder} does not answer", hint="start it again") from None
    if "error" in answer:
        raise InputError(answer["error"], hint=answer["hint"], why=answer["why"])
    return answer
