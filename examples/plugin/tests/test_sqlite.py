"""The source and the sink, used as the author of a pipeline uses them."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

PIPELINE = Path(__file__).parent / "pipeline.yaml"


def execute(statement: str, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Run a statement on the database: once, or once for each row."""
    with closing(sqlite3.connect("climate.db")) as database, database:
        return database.executemany(statement, rows).fetchall() if rows else database.execute(statement).fetchall()


def millrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the Python that the plug-in is installed in."""
    command = [sys.executable, "-m", "millrace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_pipeline() -> None:
    """Run the pipeline until it has read every row."""
    ran = millrace("run", "pipeline.yaml", "--until-caught-up", "--no-dashboard")
    assert ran.returncode == 0, ran.stderr


def rows_written() -> list[tuple[Any, ...]]:
    """Return what the sink has inserted, in order."""
    return execute("SELECT room, celsius FROM celsius ORDER BY rowid")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start in an empty folder with the pipeline and a database of two readings."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(PIPELINE, "pipeline.yaml")
    execute("CREATE TABLE readings (room TEXT, fahrenheit REAL)")
    execute("CREATE TABLE celsius (room TEXT, celsius REAL)")
    execute("INSERT INTO readings VALUES (?, ?)", ("attic", 68.0), ("cellar", 50.0))


def test_check_accepts_the_pipeline() -> None:
    checked = millrace("check", "pipeline.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_check_reports_a_mistake_in_an_option() -> None:
    text = Path("pipeline.yaml").read_text()
    Path("pipeline.yaml").write_text(text.replace("table: celsius", "table: not-a-name"))
    checked = millrace("check", "pipeline.yaml")
    assert checked.returncode == 2
    assert "pipeline.yaml:12: error[option.invalid]" in checked.stdout + checked.stderr


def test_the_next_run_writes_new_rows_and_no_row_twice() -> None:
    run_pipeline()
    assert rows_written() == [("attic", 20.0), ("cellar", 10.0)]
    # As after a crash between the commit of the sink and that of Spark: batch 0 comes again.
    (commit,) = Path(".millrace").glob("**/commits/0")
    commit.unlink()
    execute("INSERT INTO readings VALUES (?, ?)", ("garden", 32.0))
    run_pipeline()
    assert rows_written() == [("attic", 20.0), ("cellar", 10.0), ("garden", 0.0)]
