"""Questions about a running pipeline's tables in memory, answered on the loopback to whoever can read its folder."""

from __future__ import annotations

import json
import os
import secrets
import threading
from multiprocessing import ProcessError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.engine.failures import explain
from millrace.engine.questions import Questions
from millrace.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = "query.json"
_MOST_ROWS = 10_000
_PATIENCE = 60.0


class Answering:
    """A thread that answers SQL over the tables in memory while a run lasts."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._questions = Questions(spark)
        self._path = folder / _FILE

    def __enter__(self) -> Answering:
        key = secrets.token_bytes(16)
        self._listener = Listener(("127.0.0.1", 0), authkey=key)
        told = {"port": self._listener.address[1], "key": key.hex(), "pid": os.getpid()}
        self._path.parent.mkdir(parents=True, exist_ok=True)  # a driver on a cluster has no folder of its own yet
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(told, file)
        threading.Thread(target=self._listen, name="answering", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        self._listener.close()
        self._questions.close()

    def _listen(self) -> None:
        while True:
            try:
                with self._listener.accept() as asker:
                    self._answer(asker)
            except (OSError, EOFError, ValueError):
                if not self._path.exists():
                    return
            except Exception:  # noqa: S112 - somebody without the key, or gone: the next one is served
                continue

    def _answer(self, asker: Connection) -> None:
        if not asker.poll(_PATIENCE):
            return
        asked = json.loads(asker.recv_bytes(1_000_000))
        told = self._told(asked["sql"], min(int(asked["rows"]), _MOST_ROWS))
        asker.send_bytes(json.dumps(told, default=str).encode())

    def _told(self, sql: str, most: int) -> dict[str, Any]:
        try:
            return self._questions.ask(sql, most)
        except Exception as error:
            problem = explain(error)
            return {"error": problem.message, "hint": problem.hint, "why": problem.why}


def ask(folder: Path, sql: str, most: int) -> dict[str, Any]:
    """Ask the run that uses a state folder."""
    path = folder / _FILE
    if not path.exists():
        raise InputError(
            f"no pipeline runs in {folder}", hint="start it with millrace run FILE, or name its --state folder"
        )
    told = json.loads(path.read_text("utf-8"))
    try:
        with Client(("127.0.0.1", told["port"]), authkey=bytes.fromhex(told["key"])) as line:
            line.send_bytes(json.dumps({"sql": sql, "rows": most}).encode())
            if not line.poll(_PATIENCE):
                raise EOFError
            answered: dict[str, Any] = json.loads(line.recv_bytes())
    except (OSError, EOFError, ProcessError):
        raise InputError(f"the run in {folder} does not answer any more", hint="start it again") from None
    if "error" in answered:
        raise InputError(answered["error"], hint=answered["hint"], why=answered["why"])
    return answered
