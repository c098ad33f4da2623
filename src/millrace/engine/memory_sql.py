"""SQL over the memory tables of a run, the same way for `millrace query`, the dashboard and the HTTP API.

- `MemorySql` answers one question at a time. The tables that a question names are copied as Arrow into a process that
  has no way outside (`sql_process`); the dialect is DuckDB's.
- `QueryServer` takes the questions of `millrace query` on a Unix socket in the run's folder; `ask_run` asks them.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from millrace.connectors.memory import MEMORY
from millrace.engine.failures.explain import explain
from millrace.engine.session.scratch import Scratch
from millrace.errors import InputError, InvalidSql, MillraceError, NotReady, ServiceFailed, UnknownName
from millrace.services.process import quote_output
from millrace.units import format_bytes

_TIMEOUT_S = 20.0
_GRACE_S = 10.0
"""What the process may take beyond a question's own time, to start or to see that it is over."""
_MAX_ASKED = 5
"""Questions at once: one is answered, the others wait for their turn."""
_MAX_WAIT_S = 5.0
_MAX_TABLES_BYTES = 1024**3
_MAX_ANSWER_BYTES = 8 * 1024**2
_MAX_ROWS = 10_000
_MAX_QUESTION_BYTES = 1_000_000
_COPY_SHARE = 10
"""After copying, tables that were copied before are left as they are this many times as long: it costs a tenth."""
_DIALECT = 'the SQL is DuckDB\'s; names that are words of SQL stand in double quotes: "at", "window"."start"'
_COLUMNS = "DESCRIBE TABLE lists the columns of a table; texts stand in single quotes"
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
"""Functions of Spark that have another name here."""
_NO_FUNCTION = re.compile(r"Function with name (\w+) does not exist")
_ASK_LESS = "ask for less: filter, count, LIMIT"
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from millrace.engine.sql_process import main; main()"
_LIBRARY_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""The only variables that are passed on: some Pythons do not start without them."""
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_LISTS_TABLES = re.compile(r"show|information_schema|duckdb_|pg_catalog|sqlite_master", re.IGNORECASE)
QUERY_FILE, QUERY_SOCKET = "query.json", "query.sock"
_MAX_SOCKET_PATH_BYTES = 100
"""Of the address of a Unix socket; systems allow 104 or 108."""


class MemorySql:
    """Answers questions about the memory tables while a run lasts."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._places = threading.BoundedSemaphore(_MAX_ASKED)
        self._turn = threading.Lock()
        self._changing = threading.Lock()
        self._unavailable: str | None = "the run is starting"
        self._process: _Process | None = None

    def open(self) -> None:
        """Take questions from now on."""
        self._unavailable = None

    def close(self) -> None:
        """Take no more questions, and end the one that is being answered."""
        with self._changing:
            self._unavailable = "the run has ended"
            process = self._process
        if process:
            process.kill()  # the question that waits for it ends now, so its turn does
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
                raise ServiceFailed("the process that answers SQL ended", why=ended.why, hint="ask again") from None
        if "rows" not in answer:
            raise _problem(answer, self._timeout_s)
        return answer

    def _answer(self, process: _Process, sql: str, max_rows: int) -> dict[str, Any]:
        """Ask over the tables whose names stand in the text; one whose name is put together is found missing then."""
        known = {name.lower(): name for name in MEMORY.names()}
        names = {name for lower, name in known.items() if lower in sql.lower()}
        lists = not names and _LISTS_TABLES.search(sql)
        question = {
            "sql": sql,
            "schemas": {name: _encoded_schema(name) for name in known.values()} if lists else {},
            "max_rows": max_rows,
            "max_bytes": _MAX_ANSWER_BYTES,
            "timeout_s": self._timeout_s,
        }
        while True:
            process.copy(names)
            answer = process.ask({**question, "tables": sorted(names)}, self._timeout_s + _GRACE_S)
            missing = known.get(_missing_table(answer).lower())
            if missing is None or missing in names:
                return answer
            names.add(missing)

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise NotReady("too many questions wait for an answer", hint="ask again in a moment")
        try:
            if not self._turn.acquire(timeout=_MAX_WAIT_S):
                raise NotReady("another question is being answered", hint="ask again in a moment")
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def _started(self) -> _Process:
        with self._changing:
            self._require_open()
            if self._process and not self._process.running():
                self._process.close()
                self._process = None
            self._process = self._process or _Process()
            return self._process

    def _require_open(self) -> None:
        if self._unavailable:
            raise NotReady(self._unavailable, hint="ask again when it runs")


class _Ended(Exception):
    """The process ended, or answers no more."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class _Copy:
    """Which version of a table the process has, and how large it is."""

    version: int
    size: int


class _Process:
    """The process of `sql_process`: nothing of this one's environment and descriptors, and a session of its own."""

    def __init__(self) -> None:
        self._copies: dict[str, _Copy] = {}
        self._copied: set[str] = set()
        """The tables that were ever sent."""
        self._rests_until = 0.0
        """When tables may be sent again that were sent before."""
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
        """End it, and the child that answers a question for it."""
        with self._ending:
            if self._popen.returncode is None:  # else the number may be another group's by now
                with suppress(ProcessLookupError):
                    os.killpg(self._popen.pid, signal.SIGKILL)
                self._popen.wait()

    def close(self) -> None:
        """Kill it, and close what leads to it; no other thread may be using that."""
        self.kill()
        for file in (self._popen.stdin, self._popen.stdout, self._errors):
            if file:
                with suppress(BrokenPipeError):  # what was not written yet
                    file.close()

    def copy(self, names: Collection[str]) -> None:
        """Send the tables that it does not have, and those that have changed, unless it was sent some just now."""
        began = time.monotonic()
        versions = {name: MEMORY.version(name) for name in names}
        rests = began < self._rests_until
        due = {name: MEMORY.table(name) for name, version in versions.items() if self._is_due(name, version, rests)}
        sizes = {name: due[name].nbytes if name in due else self._copies[name].size for name in names}
        if sum(sizes.values()) > _MAX_TABLES_BYTES:
            raise _too_large(sizes)
        if sum((sizes | {name: copy.size for name, copy in self._copies.items()}).values()) > _MAX_TABLES_BYTES:
            self._forget_all_but(names)
        for name, table in due.items():
            self._send(name, table)
            self._copies[name] = _Copy(versions[name], sizes[name])
            self._copied.add(name)
        if due:
            now = time.monotonic()
            self._rests_until = now + (now - began) * _COPY_SHARE

    def _is_due(self, name: str, version: int, rests: bool) -> bool:
        """Whether a table must be sent; one that was forgotten in favour of others has to wait for that."""
        copy = self._copies.get(name)
        if copy is None and rests and name in self._copied:
            wait_s = max(self._rests_until - time.monotonic(), 0.1)
            raise NotReady(f"table {name!r} was copied a moment ago", hint=f"ask again in {wait_s:.1f} s")
        return copy is None or (copy.version != version and not rests)

    def ask(self, question: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
        self._write(question)
        try:
            answer: dict[str, Any] = orjson.loads(self._read_line(time.monotonic() + patience_s))
        except orjson.JSONDecodeError:
            raise _Ended("its answer cannot be read") from None
        return answer

    def _forget_all_but(self, names: Collection[str]) -> None:
        for name in self._copies.keys() - set(names):
            self._write({"forget": name})
            del self._copies[name]

    def _send(self, name: str, table: pa.Table) -> None:
        self._write({"table": name})
        with self._pipe() as pipe, pa.ipc.new_stream(pipe, table.schema) as stream:
            stream.write_table(table)

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
        """Read its next line; one that does not come, or is longer than any answer, is the end of the process."""
        assert self._popen.stdout is not None  # noqa: S101 - it was opened as a pipe
        source = self._popen.stdout.fileno()
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if len(line) > _MAX_ANSWER_BYTES + 1 or not selector.select(max(deadline - time.monotonic(), 0.0)):
                    raise _Ended("it did not answer as it should")
                part = os.read(source, 1024**2)
                if not part:
                    raise self._ended()
                line += part
        return bytes(line)

    def _ended(self) -> _Ended:
        self.kill()  # so that all it wrote is there
        self._errors.seek(0)
        written = self._errors.read(1024**2).decode("utf-8", "replace")
        return _Ended(f"exit status {self._popen.returncode}{quote_output(written)}")


def _encoded_schema(name: str) -> str:
    return b64encode(MEMORY.schema(name).serialize()).decode("ascii")


def _missing_table(answer: Mapping[str, Any]) -> str:
    """The table that an answer says there is none of; "" when it says something else."""
    found = _NO_TABLE.search(str(answer.get("message"))) if answer.get("kind") == "CatalogException" else None
    return found[1] if found else ""


def _too_large(sizes: Mapping[str, int]) -> InputError:
    listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in sizes.items())
    return InputError(
        f"the tables are too large to be asked: {listed}",
        why=f"a question is answered over at most {format_bytes(_MAX_TABLES_BYTES)} of rows",
        hint="keep fewer rows in memory: rows of the memory sink",
    )


def _problem(answer: Mapping[str, Any], timeout_s: float) -> MillraceError:
    """The error for a question that has no rows, by the kind that the process says."""
    kind, message = str(answer["kind"]), str(answer["message"])
    if missing := _missing_table(answer):
        return _no_table(missing)
    made: dict[str, MillraceError] = {
        "Timeout": InputError(f"the answer took longer than {timeout_s:g} s and was given up", hint=_ASK_LESS),
        "Crash": InputError("the question could not be answered within the memory it may use", hint=_ASK_LESS),
        "OutOfMemoryException": InputError("the question needs more memory than it may use", hint=_ASK_LESS),
        "Failure": ServiceFailed("the process that answers SQL failed", why=message),
        "Size": InputError("the answer is too large", why="it has more than 8 MB", hint=_ASK_LESS),
        "Value": InputError("a value of the answer cannot be shown", why=message, hint="cast it to VARCHAR"),
        "Several": InvalidSql("this is more than one question", hint="ask one SELECT at a time"),
        "Empty": InvalidSql("this is no question", hint="write SELECT … FROM …"),
        "Statement": InvalidSql(f"{message} is no question", hint="only SELECT can be asked here"),
        "PermissionException": InvalidSql(
            "a question reads the tables of memory sinks and nothing else", why=_first_line(message)
        ),
    }
    return made.get(kind) or InvalidSql(_first_line(message), why=_place(message), hint=_hint(kind, message))


def _hint(kind: str, message: str) -> str | None:
    if kind == "ParserException":
        return _DIALECT
    if found := _NO_FUNCTION.search(message):
        here = _FUNCTIONS.get(found[1].lower())
        return f"in DuckDB it is {here}" if here else "functions are DuckDB's, not Spark's"
    return _COLUMNS if "not found in FROM clause" in message else None


def _no_table(name: str) -> MillraceError:
    names = MEMORY.names()
    if not names:
        return NotReady("nothing is in memory yet", hint="wait for a first batch; a memory sink puts rows there")
    return UnknownName.among("table in memory", name, names)


def _first_line(message: str) -> str:
    """What DuckDB says, without its name for the kind of error."""
    _, _, said = message.split("\n", 1)[0].partition("Error: ")
    return said or message.split("\n", 1)[0]


def _place(message: str) -> str | None:
    """The line of the question that DuckDB points to."""
    return next((line.strip()[:200] for line in message.splitlines() if line.startswith("LINE ")), None)


class QueryServer:
    """Answers `millrace query` while a run lasts, to processes that may read the run's folder."""

    def __init__(self, memory_sql: MemorySql, folder: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._memory_sql = memory_sql
        self._folder = folder
        self._tell = tell
        self._key = secrets.token_hex(16)
        self._scratch: Scratch | None = None
        self._listener: Listener | None = None

    def __enter__(self) -> QueryServer:
        self._folder.mkdir(parents=True, exist_ok=True)  # a driver on a cluster has no folder of its own yet
        self._memory_sql.open()
        try:
            self._listener = self._listening()
        except OSError as error:
            self._tell(f"millrace query cannot ask this run: {error.strerror or error}")
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
                Client(str(self._listener.address), "AF_UNIX").close()  # wakes the thread, which finds that it is over
            self._listener.close()
        self._memory_sql.close()
        if self._scratch:
            self._scratch.remove()

    def _listening(self) -> Listener:
        path = (self._folder / QUERY_SOCKET).absolute()
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
            with suppress(OSError):  # a file system that has no sockets
                return _socket_at(path)
        self._scratch = Scratch()
        return _socket_at(self._scratch.folder / QUERY_SOCKET)

    def _listen(self, listener: Listener) -> None:
        while True:
            try:
                asker = listener.accept()
            except OSError:
                return
            if not (self._folder / QUERY_FILE).exists():
                asker.close()
                return
            threading.Thread(target=self._serve, args=(asker,), name="query", daemon=True).start()

    def _serve(self, asker: Connection) -> None:
        with asker, suppress(OSError, EOFError):
            if asker.poll(_GRACE_S):
                asker.send_bytes(json.dumps(self._reply(asker.recv_bytes(_MAX_QUESTION_BYTES))).encode())

    def _reply(self, asked: bytes) -> dict[str, Any]:
        try:
            question = json.loads(asked)
            if not secrets.compare_digest(str(question["key"]).encode(), self._key.encode()):
                raise InputError("the key is not that of this run", hint="ask again")
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
    """Ask the run that uses a state folder."""
    path = folder / QUERY_FILE
    if not path.exists():
        raise InputError(
            f"no pipeline runs in {folder}", hint="start it with millrace run FILE, or name its --state folder"
        )
    note = json.loads(path.read_text("utf-8"))
    try:
        with Client(note["socket"], "AF_UNIX") as connection:
            connection.send_bytes(json.dumps({"key": note["key"], "sql": sql, "rows": max_rows}).encode())
            if not connection.poll(_TIMEOUT_S + _GRACE_S + _MAX_WAIT_S):
                raise EOFError
            answer: dict[str, Any] = json.loads(connection.recv_bytes())
    except (OSError, EOFError):
        raise InputError(f"the run in {folder} does not answer any more", hint="start it again") from None
    if "error" in answer:
        raise InputError(answer["error"], hint=answer["hint"], why=answer["why"])
    return answer
