"""What a child says of a file is believed only in its shape; its end says the rest."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.isolated_check import CheckedContents, CheckResult, CheckStep, _line_of, _read, check_in_child
from millrace.errors import JavaUnusable, Problem, SourceLocation
from millrace.pipeline.loading.functions import functions_of_file

PROBLEM: dict[str, Any] = {
    "condition": "a.b",
    "message": "no",
    "hint": None,
    "why": None,
    "severity": "warning",
    "file": "p.py",
    "line": 3,
}
ENDPOINT: dict[str, Any] = {
    "pipeline": "p",
    "element": "posts",
    "writes": False,
    "target": "topic posts",
    "format": "json",
    "columns": [{"name": "id", "kind": "", "type": "string"}],
    "file": "p.py",
    "line": 3,
}
REPORT: dict[str, Any] = {
    "failure": None,
    "problems": [PROBLEM],
    "contents": None,
    "left_out": 0,
    "spark_asked": False,
    "endpoints": [ENDPOINT],
}


def apart(examine: Any, limit_s: float = 30.0) -> CheckResult:
    """Examine in a child."""
    return check_in_child("p.py", examine, limit_s, quiet=False, spark_starts=lambda: None)


def test_what_is_found_comes_back() -> None:
    found = CheckResult(
        [Problem("a.b", "no", SourceLocation("p.py", 3), "so", "why", "warning")],
        CheckedContents("p", 1, 1, 2, 3),
        0,
        True,
    )
    assert apart(lambda _: found) == found


def test_problems_that_have_no_room_are_counted() -> None:
    found = apart(lambda _: CheckResult([Problem("a.b", f"{number} " + "x" * 5000) for number in range(9000)]))
    assert 1000 < len(found.problems) < 9000
    assert len(found.problems) + found.left_out == 9000
    assert len(found.problems[0].message) == 4000


def test_an_error_of_ours_is_raised_here_too() -> None:
    def examine(step: CheckStep) -> CheckResult:
        raise JavaUnusable("there is none", why="so", hint="do", place=SourceLocation("p.py", 1))

    with pytest.raises(JavaUnusable) as raised:
        apart(examine)
    assert (
        raised.value.lines()
        == JavaUnusable("there is none", why="so", hint="do", place=SourceLocation("p.py", 1)).lines()
    )


def test_steps_have_their_own_time() -> None:
    def examine(step: CheckStep) -> CheckResult:
        step.of_millrace()
        step.of_the_file()
        step.of_the_file()
        os._exit(0)

    (problem,) = apart(examine).problems
    assert (problem.condition, problem.message) == (
        "pipeline.ended",
        "the file ends the process that reads it: os._exit",
    )


def test_the_line_of_a_file_of_functions(tmp_path: Path) -> None:
    def examine(step: CheckStep) -> CheckResult:
        functions_of_file(tmp_path / "udf.py", SourceLocation("p.yaml", 2))
        return CheckResult([])

    (tmp_path / "udf.py").write_text("import os\n\nos._exit(0)\n")
    (problem,) = apart(examine).problems
    assert (problem.condition, problem.place) == ("pipeline.ended", SourceLocation(str(tmp_path / "udf.py"), 3))


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        3,
        REPORT | {"problems": [3]},
        REPORT | {"problems": [PROBLEM | {"message": 3}]},
        REPORT | {"problems": [PROBLEM | {"line": "x"}]},
        REPORT | {"problems": [{}]},
        REPORT | {"contents": {"rows": 1}},
        REPORT | {"contents": {"name": 3, "line": 1, "sources": 1, "tables": 1, "sinks": 1}},
        REPORT | {"left_out": None},
        REPORT | {"left_out": float("inf")},
        {"failure": {"type": "JavaUnusable"}},
        {name: value for name, value in REPORT.items() if name != "endpoints"},
        REPORT | {"endpoints": None},
        REPORT | {"endpoints": "posts"},
        REPORT | {"endpoints": [3]},
        REPORT | {"endpoints": [{}]},
        REPORT | {"endpoints": [ENDPOINT | {"target": 3}]},
        REPORT | {"endpoints": [ENDPOINT | {"line": "x"}]},
        REPORT | {"endpoints": [ENDPOINT | {"columns": 3}]},
        REPORT | {"endpoints": [ENDPOINT | {"columns": ["id"]}]},
        REPORT | {"endpoints": [ENDPOINT | {"columns": [{"kind": "other"}]}]},
        REPORT | {"endpoints": [ENDPOINT | {"columns": [{"name": "id", "type": 3}]}]},
    ],
)
def test_a_report_of_another_shape_is_none(wrong: Any) -> None:
    assert _read(json.dumps(REPORT).encode())
    assert _read(json.dumps(wrong).encode()) is None
    assert _read(b"[" * 100_000) is None
    assert _read(b"\xff") is None


def test_no_line_of_a_report_reaches_the_terminal_as_it_is() -> None:
    shown = {"problems": [PROBLEM | {"message": "\x1b[2J\ud800" + "x" * 10_000}]}
    shown["endpoints"] = [ENDPOINT | {"target": "\x1b[2J"}]
    found = _read(json.dumps(REPORT | shown).encode())
    assert found
    assert found.endpoints[0].target == "\\x1b[2J"
    assert found.problems[0].message.startswith("\\x1b[2J\\ud800x")
    assert len(found.problems[0].message) < 4100


def test_the_line_of_the_thread_that_reads_the_file() -> None:
    dump = (
        'Timeout (0:00:01)!\nThread 0x1 (most recent call first):\n  File "p.py", line 9 in work\n\n'
        'Thread 0x2 (most recent call first):\n  File "/a/helper.py", line 3 in wait\n'
        '  File "p.py", line 2 in <module>\n'
    )
    assert _line_of(dump, "p.py") == (2, "/a/helper.py:3 in wait")
    assert _line_of(dump, "q.py")[0] is None
    assert _line_of("", "p.py") == (None, None)


def test_a_result_before_a_step_that_does_not_end_is_kept() -> None:
    def examine(step: CheckStep) -> CheckResult:
        step.report(CheckResult([Problem("a.b", "no")], CheckedContents("p", 1, 1, 2, 3)))
        step.of_the_file()
        time.sleep(60)
        return CheckResult([])

    result = apart(examine, 0.5)
    assert [problem.condition for problem in result.problems] == ["a.b", "pipeline.timeout"]
    assert (result.contents, result.complete) == (CheckedContents("p", 1, 1, 2, 3), False)


@pytest.mark.parametrize(("printed", "expected"), [("half a line", "half a line\n"), ("a line\n", "a line\n")])
def test_output_without_a_line_end_gets_one(capfd: pytest.CaptureFixture[str], printed: str, expected: str) -> None:
    def examine(step: CheckStep) -> CheckResult:
        sys.stdout.write(printed)
        return CheckResult([])

    apart(examine)
    assert capfd.readouterr().out == expected
