"""Asks many questions in one process that is confined as that of a question is; run as a program by test_sql.py.

Reads `{"sql": [...]}` and writes the list of answers. With the argument `open` the database is an ordinary one, to show
that the attacks would work where nothing is confined.
"""

from __future__ import annotations

import json
import os
import sys

import duckdb
import pyarrow as pa

from millrace.engine import sql_process
from millrace.engine.sql_process import SqlQuestion


def main() -> None:
    questions = json.load(sys.stdin)["sql"]
    answers = os.dup(1)
    tables = {"rooms": pa.table({"room": ["attic", "hall"], "n": [2, 1]})}
    if sys.argv[1:] == ["open"]:
        database = duckdb.connect()
        database.register("rooms", tables["rooms"])
    else:
        database = sql_process._confined(tables)
    found = [sql_process._answer(database, SqlQuestion(0, sql, 10, 1024**2, 0.0)) for sql in questions]
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        json.dump(found, out)


if __name__ == "__main__":
    main()
