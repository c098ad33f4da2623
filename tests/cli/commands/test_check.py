"""`millrace check` as it is used: problems like a compiler's, JSON for programs, the schema for editors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import CommandLine
from millrace.cli.commands.check import load_sound, require_sound
from millrace.connectors.base.registry import CONNECTORS, connector_names, sink_forms, source_forms
from millrace.errors import InvalidDefinition
from millrace.pipeline.checks import check
from millrace.pipeline.loading.yaml import read_yaml

Run = Callable[..., Any]

SOUND = """\
name: trending
sources:
  posts: {kafka: posts, schema: "id string, text string, at timestamp", watermark: [at, 10 seconds]}
tables:
  popular: |
    SELECT window(at, '1 minute') AS window, count(*) AS count
    FROM posts GROUP BY window(at, '1 minute')
sinks:
  - {from: popular, kafka: popular, key: window, mode: update}
"""
WRONG = """\
name: wrong
sources:
  posts: {kafka: posts, schema: "id string", strat: earliest}
  logs: {kafka: logs, schema: "id strin"}
tables:
  sorted: SELECT * FROM posts ORDER BY id
sinks:
  - {from: sorted, kakfa: out}
  - {from: srted, console: , password: "${PW}"}
"""


def test_a_sound_pipeline(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SOUND)
    assert offline_run("check", "p.yaml").out == "p.yaml: no problems (1 source, 1 table, 1 sink)\n"
    assert json.loads(offline_run("check", "p.yaml", "--json").out) == []


def test_what_a_file_prints_does_not_stand_around_the_json(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "p.py").write_text("import millrace as mr\nprint('here I am')\nmr.Pipeline('p')\n")
    checked = offline_millrace("check", "p.py", "--json", code=2)
    assert [one["condition"] for one in json.loads(checked.stdout)] == ["sink.none"]
    assert "here I am" in checked.stderr
    assert "here I am" in offline_millrace("check", "p.py", code=2).stdout


def test_a_device(offline_run: Run) -> None:
    assert "/dev/zero is not a regular file" in offline_run("check", "/dev/zero", code=2).err


READER = """\
name: reader
sources:
  popular: {kafka: popular, schema: "window string, amount bigint"}
sinks:
  - {from: popular, console: }
"""


def test_a_folder(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SOUND)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "r.yaml").write_text(READER)
    (tmp_path / "ci.yaml").write_text("jobs: []\n")
    shown = offline_run("check", ".")
    column = "source 'popular' reads the column 'amount' of topic popular, and it is not written"
    assert shown.out.splitlines() == [
        "p.yaml: no problems (1 source, 1 table, 1 sink)",
        "more/r.yaml: no problems (1 source, 0 tables, 1 sink)",
        "trending (popular) -> topic popular -> reader (popular)",
        f"more/r.yaml:3: warning[lineage.column]: {column}",
        "  why: trending (p.yaml:9) writes window, count",
        "  try: add it to the table that is written, or leave it out of the schema",
    ]
    assert "ci.yaml: left out: no pipeline" in shown.err
    (tmp_path / "wrong.yaml").write_text(SOUND.replace("from: popular", "from: poplar").replace("trending", "wrong"))
    conditions = [each["condition"] for each in json.loads(offline_run("check", ".", "--json", code=2).out)]
    assert sorted(conditions) == ["lineage.column", "name.unknown", "table.unused"]


def test_a_folder_with_files_that_cannot_be_read(offline_run: Run, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(SOUND)
    (tmp_path / "latin.yaml").write_bytes(b"# M\xfcller\n" + SOUND.encode())
    (tmp_path / "link.yaml").symlink_to("nowhere")
    secret = "import millrace as mr\np = mr.Pipeline('p')\np.source('a', mr.kafka(mr.secret(file='/nowhere')))\n"
    (tmp_path / "secret.py").write_text(secret)
    shown = json.loads(offline_run("check", ".", "--json", code=2).out)
    assert [(each["condition"], each["file"], each["line"]) for each in shown] == [
        ("file.not-utf8", "latin.yaml", 1),
        ("file.unusable", "link.yaml", None),
        ("file.unusable", "secret.py", 3),
        ("name.shared", "b.yaml", 1),
    ]


def test_an_empty_text_is_not_this_folder(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SOUND)
    for command in ("check", "plan", "test"):
        offline_run(command, "", code=2)


def test_a_folder_without_pipelines(offline_run: Run, tmp_path: Path) -> None:
    assert "there is no pipeline in the folder ." in offline_run("check", ".", code=2).err
    (tmp_path / "sources.yaml").write_text("sources: {a: {rate: }}")
    (problem,) = json.loads(offline_run("check", ".", "--json", code=2).out)
    assert problem["condition"] == "file.unusable"


def test_problems_are_told_like_a_compiler_does(
    offline_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "hunter2")
    (tmp_path / "p.yaml").write_text(WRONG)
    shown = offline_run("check", "p.yaml", code=2).out
    lines = shown.splitlines()
    assert "p.yaml:3: error[option.unknown]: source 'posts': kafka in json has no option 'strat'" in shown
    assert "  try: did you mean 'start'?" in lines
    assert [line.split(":")[1] for line in lines if line.startswith("p.yaml:")][:-1] == [
        "3",
        "4",
        "4",
        "6",
        "8",
        "9",
        "9",
    ]
    assert lines[-1] == "p.yaml: 6 errors, 1 warning (2 sources, 1 table, 2 sinks)"
    assert "hunter2" not in shown


def test_json_for_programs(offline_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter2")
    (tmp_path / "p.yaml").write_text(WRONG)
    shown = offline_run("check", "p.yaml", "--json", code=2).out
    found = json.loads(shown)
    assert [set(one) for one in found] == [
        {"file", "line", "condition", "severity", "message", "why", "hint"} for _ in found
    ]
    assert (found[0]["file"], found[0]["line"], found[0]["condition"]) == ("p.yaml", 3, "option.unknown")
    assert {one["severity"] for one in found} == {"error", "warning"}
    assert "hunter2" not in shown


def test_warnings_alone_are_no_failure(offline_run: Run, tmp_path: Path) -> None:
    text = "name: p\nsources: {a: {kafka: a, format: text}, b: {kafka: b, format: text}}\nsinks: [{from: a, console: }]"
    (tmp_path / "p.yaml").write_text(text)
    assert offline_run("check", "p.yaml").out.splitlines()[-1] == "p.yaml: 1 warning (2 sources, 0 tables, 1 sink)"


def test_a_python_file(offline_run: Run, tmp_path: Path) -> None:
    text = (
        "import millrace as mr\np = mr.Pipeline('p')\np.source('a', mr.kafka('a', format='text'))\n\n"
        "@p.table\ndef t(a):\n    return a.orderBy('value')\n\np.sink('t', mr.console())\n"
    )
    (tmp_path / "p.py").write_text(text)
    assert offline_run("check", "p.py", code=2).out.startswith("p.py:7: error[stream.sort]: .orderBy() cannot sort")
    (tmp_path / "r.py").write_text("import millrace as mr\nmr.kafkaa('posts')\n")
    assert "did you mean 'kafka'?" in offline_run("check", "r.py", code=2).out
    (tmp_path / "q.py").write_text("x = = 1")
    assert offline_run("check", "q.py", code=2).out.startswith("q.py:1: error[pipeline.invalid]")


def test_no_file(offline_run: Run) -> None:
    assert "error[file.unusable]" in offline_run("check", "nothing.yaml", code=2).err
    assert "error[option.invalid]" in offline_run("check", code=2).err
    (told,) = json.loads(offline_run("check", "nothing.yaml", "--json", code=2).out)
    assert told["condition"] == "file.unusable"


def test_the_schema_is_printed(offline_run: Run) -> None:
    schema = json.loads(offline_run("check", "--schema").out)
    connectors = {form["title"] for form in schema["properties"]["sources"]["additionalProperties"]["anyOf"]}
    assert {"kafka", "files", "rate", "socket"} <= connectors
    assert connectors | {form.name for form in sink_forms()} == connector_names()
    assert all(form.help for form in source_forms())


def test_neither_a_jvm_nor_pyspark_is_needed(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SOUND)
    program = (
        "import sys\n"
        "from millrace.cli.main import main\n"
        "sys.argv = ['millrace', 'check', 'p.yaml']\n"
        "try:\n    main()\n"
        "finally:\n    sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow', 'pandas')))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.timeout(400)  # it starts Spark
def test_deep_asks_spark(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "p.yaml").write_text(SOUND.replace("SELECT window(at", "SELECT txet, window(at"))
    with offline_millrace.start("check", "--deep", "p.yaml") as process:
        shown, _ = process.communicate(timeout=380)
    assert process.returncode == 2
    assert shown.startswith(b"p.yaml:6: error[")
    assert b"txet" in shown


@pytest.mark.long
@pytest.mark.timeout(400)  # it starts Spark
def test_deep_gives_up_on_a_function_that_never_returns(offline_millrace: CommandLine) -> None:
    text = (
        "import time\nimport millrace as mr\np = mr.Pipeline('p')\np.source('a', mr.kafka('a', format='text'))\n\n"
        "@p.table\ndef t(a):\n    while a is not None:\n        time.sleep(1)\n\np.sink('t', mr.console())\n"
    )
    (offline_millrace.folder / "p.py").write_text(text)
    with offline_millrace.start("check", "--deep", "--timeout", "8s", "p.py") as process:
        shown, _ = process.communicate(timeout=380)
    assert process.returncode == 2
    assert re.match(rb"p\.py:[89]: error\[pipeline\.timeout\]", shown)


def test_deep_waits_until_the_rest_is_right(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(WRONG.replace("${PW}", "x"))
    assert "Spark was not asked" in offline_run("check", "--deep", "p.yaml", code=2).err


def test_what_is_not_sound_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(SOUND.replace("mode: update", "mode: complete"))
    pipeline = load_sound(str(path))
    require_sound(pipeline)
    path.write_text(WRONG.replace("${PW}", "x"))
    with pytest.raises(InvalidDefinition) as raised:
        load_sound(str(path))
    assert {"option.unknown", "connector.unknown", "name.unknown"} <= {one.condition for one in raised.value.problems}
    assert all(one.severity == "error" for one in raised.value.problems)


WORDS = st.sampled_from(
    ["a", "at timestamp", "${A}", "5s", "", "earliest", "json", "csv", "avro", "raw", "[", "x=1", "text"]
)
VALUES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3),
    max_leaves=6,
)
OPTIONS = sorted({option.name for form in (*source_forms(), *sink_forms()) for option in form.options} | {"odd"})


def connection(names: set[str]) -> st.SearchStrategy[dict[str, Any]]:
    """A connector with any argument and any options."""
    others = st.dictionaries(st.sampled_from(OPTIONS), VALUES, max_size=4)
    return st.builds(
        lambda name, argument, rest: {name: argument} | rest, st.sampled_from(sorted(names)), VALUES, others
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    source=connection({form.name for form in source_forms()}),
    static=st.booleans(),
    sink=connection({form.name for form in sink_forms()}),
)
def test_any_options_of_any_connector_are_right_or_told(
    tmp_path: Path, source: dict[str, Any], static: bool, sink: dict[str, Any]
) -> None:
    content = {"name": "p", "sources": {"a": source | {"static": static}}, "sinks": [{"from": "a"} | sink]}
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(content))
    model, _ = read_yaml(path, connector_names(), {"A": "x"})
    assert model is not None
    for problem in check(model, CONNECTORS):
        problem.lines()
