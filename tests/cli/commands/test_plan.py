"""`millrace plan` as it is used: what a run would do, against what is noted beside the checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import CommandLine
from millrace.connectors.base.registry import CONNECTORS, connector_names
from millrace.engine.checkpoints.query_history import record_start
from millrace.engine.checkpoints.state_dir import StateDir
from millrace.engine.session.spark_conf import ROCKSDB
from millrace.locks import FolderLock
from millrace.pipeline.compatibility.query_snapshot import snapshot_query
from millrace.pipeline.loading import load
from millrace.pipeline.plan import make_plan
from millrace.services.kafka import ClusterLayout
from millrace.services.process import free_port

Run = Callable[..., Any]

COUNTED = """\
name: counted
sources:
  lines: {kafka: lines, format: text}
tables:
  counts: SELECT value, count(*) AS n FROM lines GROUP BY value
sinks:
  - {from: counts, kafka: counts, mode: update}
"""
FILES = """\
name: words
sources:
  words: {files: in, schema: "word string"}
tables:
  counts: SELECT word, count(*) AS n FROM words GROUP BY word
sinks:
  - {from: counts, console: , mode: update}
"""
RANKED = """\
name: ranked
functions: ./udf.py
sources:
  lines: {kafka: lines, schema: "word string, n int, labels map<string, string>"}
tables:
  typed: SELECT tidy(word) AS word, n FROM lines
  newest: {latest: {from: lines, by: word, order: n}}
  best: {top: {from: typed, n: 3, by: word, order: n DESC}}
sinks:
  - {from: newest, console: , mode: update}
  - {from: best, console: , mode: update}
"""
OFFSETS = '{"lines":{"0":5,"1":3}}'


def ran(folder: Path, text: str, *, batch: int = 7) -> Path:
    """A state folder as a run of this pipeline has left it."""
    file = folder / "p.yaml"
    file.write_text(text)
    pipeline = load(str(file), connector_names())
    plan = make_plan(pipeline)
    state = folder / ".millrace" / "pipelines" / pipeline.name
    with StateDir(state, pipeline) as held:
        held.claim(plan, "ours")
    (folder / ".millrace" / "kafka").mkdir(exist_ok=True)
    ClusterLayout("ours", (), password="").save(folder / ".millrace" / "kafka")
    for query in plan.queries:
        record_start(state, query.name, snapshot_query(pipeline, query, CONNECTORS), {})
        for part in ("offsets", "commits"):
            path = state / "checkpoints" / query.name / part / str(batch)
            path.parent.mkdir(parents=True)
            path.write_text(f'v1\n{{"conf":{{"spark.sql.shuffle.partitions":"99"}}}}\n{OFFSETS}')
    return state


def test_a_pipeline_that_never_ran(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(COUNTED)
    shown = offline_run("plan", "p.yaml").out
    assert "counts-update  starts from scratch: it has no checkpoint yet" in shown
    assert "  reads lines: topic lines, from earliest" in shown
    assert "  writes topic counts: " in shown
    assert "topics that a run creates: lines, lines.dead, counts" in shown
    assert "a Kafka of its own, in .millrace/kafka" in shown
    assert not (tmp_path / ".millrace").exists()


def test_tables_of_other_forms_are_shown_as_their_sql(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(RANKED)
    (tmp_path / "udf.py").write_text("def tidy(word: str) -> str:\n    return word\n")
    shown = offline_run("plan", "--explain", "p.yaml").out
    assert "  latest of newest is computed as\n    SELECT _row.*" in shown
    assert "struct(* EXCEPT (`labels`))" in shown  # maps have no order
    assert "max_by(struct(*), struct(n AS _1, struct(*) AS _row), 3)" in shown
    assert "real-time mode: not possible: Spark's real-time mode does not do Python code of your own" in shown


def test_a_function_that_changed_is_shown(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "udf.py").write_text("def tidy(word: str) -> str:\n    return word\n")
    ran(tmp_path, RANKED)
    (tmp_path / "udf.py").write_text("def tidy(word: str) -> str:\n    return word.strip()\n")
    shown = offline_run("plan", "p.yaml").out
    assert "  changed: table typed: the function tidy() changed" in shown


def test_whether_real_time_mode_could_run_it(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(COUNTED)
    assert (
        "real-time mode: possible, as far as the file shows, with trigger: realtime"
        in offline_run("plan", "p.yaml", "--explain").out
    )
    (tmp_path / "p.yaml").write_text(COUNTED.replace("kafka: counts", "cassandra: k.counts"))
    shown = offline_run("plan", "p.yaml", "--explain").out
    assert "real-time mode: not possible: real-time mode cannot write to cassandra" in shown


def test_what_is_remembered_and_read_more_than_once_is_explained(offline_run: Run, tmp_path: Path) -> None:
    more = "  - {from: lines, kafka: copies, format: raw, value: value}\n"
    (tmp_path / "p.yaml").write_text(COUNTED + more)
    shown = offline_run("plan", "p.yaml", "--explain").out
    assert "  lines is read by 2 queries, by each separately: counts-update, lines" in shown
    grows = "a row for each value: never removed, so it grows with the number of keys"
    assert f"  keeps state for GROUP BY in counts, {grows}" in shown
    assert "  keeps no state but offsets" in shown
    state = ran(tmp_path, COUNTED) / "checkpoints" / "counts-update" / "state" / "0" / "0" / "1.delta"
    state.parent.mkdir(parents=True)
    state.write_bytes(bytes(2048))
    assert "its state takes 2.0 KB on disk now" in offline_run("plan", "p.yaml", "--explain").out


def test_a_source_that_a_query_reads_twice_is_explained(offline_run: Run, tmp_path: Path) -> None:
    twice = "SELECT value FROM lines WHERE value > 'a' UNION ALL SELECT value FROM lines"
    (tmp_path / "p.yaml").write_text(COUNTED.replace("SELECT value, count(*) AS n FROM lines GROUP BY value", twice))
    assert "  lines is read 2 times by this query" in offline_run("plan", "p.yaml", "--explain").out
    (tmp_path / "p.yaml").write_text(COUNTED)
    assert "times by this query" not in offline_run("plan", "p.yaml", "--explain").out


def test_dead_letters_of_a_real_time_query_have_one_of_their_own(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(COUNTED.replace("mode: update", "mode: update, trigger: realtime"))
    shown = offline_run("plan", "p.yaml", "--explain").out
    assert "real-time mode: chosen" in shown
    assert "dead.lines  reads lines a second time, each second, for its dead letters" in shown


def test_what_ran_goes_on(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, COUNTED)
    shown = offline_run("plan", "p.yaml").out
    assert (
        "counts-update  resumes after batch 7\n"
        "  not asked: whether its sinks hold more than this state folder knows (there is no Kafka to use: "
    ) in shown
    assert "  reads lines: topic lines, where it was (lines 0:5 1:3)" in shown


def test_what_is_new_is_told(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, COUNTED)
    changed = COUNTED.replace("FROM lines GROUP", "FROM lines WHERE value <> '' GROUP").replace(
        "format: text}", "format: text, start: latest}"
    )
    (tmp_path / "p.yaml").write_text(changed)
    shown = offline_run("plan", "p.yaml").out
    assert "resumes after batch 7" in shown
    assert "  new: table counts: the filter changed" in shown
    assert "not used, since it reads on where it was" in shown


def test_an_edited_schema_of_an_included_file_is_a_change(offline_run: Run, tmp_path: Path) -> None:
    shared = 'sources: {words: {files: in, schema: "word string, n int"}}\n'
    (tmp_path / "sources.yaml").write_text(shared)
    text = FILES.replace('sources:\n  words: {files: in, schema: "word string"}\n', "include: sources.yaml\n")
    ran(tmp_path, text)
    assert json.loads(offline_run("plan", "p.yaml", "--json").out)["queries"][0]["changes"] == []
    (tmp_path / "sources.yaml").write_text(shared.replace("n int", "n bigint"))
    changes = json.loads(offline_run("plan", "p.yaml", "--json").out)["queries"][0]["changes"]
    assert "schema" in changes[0]["what"]


def test_what_cannot_go_on(offline_run: Run, tmp_path: Path) -> None:
    state = ran(tmp_path, COUNTED)
    (tmp_path / "p.yaml").write_text(COUNTED.replace("GROUP BY value", "GROUP BY value, partition"))
    shown = offline_run("plan", "p.yaml", code=2).out
    assert "counts-update  cannot resume" in shown
    assert "the keys of GROUP BY were value; now value, partition" in shown
    assert f"remove {state}/checkpoints/counts-update to start from scratch" in shown
    found = json.loads(offline_run("plan", "p.yaml", "--json", code=2).out)
    assert (found["starts"], found["queries"][0]["verdict"]) == (False, "cannot resume")
    assert found["queries"][0]["changes"][0]["effect"] == "breaks"


def test_a_change_that_may_be_accepted(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, COUNTED)
    (tmp_path / "p.yaml").write_text(COUNTED.replace("count(*)", "max(offset)"))
    assert "--accept-state-change counts-update" in offline_run("plan", "p.yaml", code=2).out
    offline_run("plan", "p.yaml", "--accept-state-change", "counts-update")
    assert (
        "did you mean 'counts-update'" in offline_run("plan", "p.yaml", "--accept-state-change", "counts", code=2).err
    )


def test_another_source_and_what_is_not_used(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, COUNTED)
    (tmp_path / "p.yaml").write_text(COUNTED.replace("kafka: lines", "kafka: others"))
    assert "it read lines (kafka 'lines' of cluster ours)" in offline_run("plan", "p.yaml", code=2).out
    (tmp_path / "p.yaml").write_text(COUNTED.replace("mode: update", "mode: complete"))
    shown = offline_run("plan", "p.yaml").out
    assert "counts-complete  starts from scratch" in shown
    assert "new: topic counts has the output of query 'counts-update', which is not in the file any more" in shown
    assert "the checkpoint of query 'counts-update' is no longer used" in shown


def test_a_table_with_another_name_would_write_to_its_topic_what_is_there(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, COUNTED)
    renamed = COUNTED.replace("  counts:", "  totals:").replace("from: counts", "from: totals")
    (tmp_path / "p.yaml").write_text(renamed)
    shown = offline_run("plan", "p.yaml", code=2).out
    assert "totals-update  cannot start" in shown
    assert "topic counts has the output of query 'counts-update', which is not in the file any more" in shown
    assert (
        "totals-update  starts from scratch"
        in offline_run("plan", "p.yaml", "--accept-state-change", "totals-update").out
    )
    (tmp_path / "p.yaml").write_text(renamed.replace("kafka: counts", "kafka: totals"))
    assert "totals-update  starts from scratch" in offline_run("plan", "p.yaml").out


def test_a_kafka_that_would_be_new_has_none_of_the_records(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, COUNTED)
    (tmp_path / ".millrace" / "kafka" / "cluster.json").unlink()
    assert "of cluster (new)" in offline_run("plan", "p.yaml", code=2).out


def test_a_cluster_that_does_not_answer(offline_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_TIMEOUT", "1s")
    (tmp_path / "p.yaml").write_text(COUNTED)
    shown = offline_run("plan", "p.yaml", "--kafka", f"127.0.0.1:{free_port()}", code=1)
    assert "starts from scratch" in shown.out
    assert "kafka.unreachable" in shown.err


def test_a_cluster_that_is_there(run: Run, tmp_path: Path, topic: str) -> None:
    (tmp_path / "p.yaml").write_text(COUNTED.replace("kafka: lines", f"kafka: {topic}"))
    found = json.loads(run("plan", "p.yaml", "--json").out)
    assert found["kafka"]["topics"] == [topic, f"{topic}.dead", "counts"]
    assert topic not in found["kafka"]["missing"]


def test_of_a_running_pipeline_it_exits_by_its_verdict(offline_run: Run, tmp_path: Path) -> None:
    lock = FolderLock(ran(tmp_path, FILES))
    assert lock.try_acquire()
    shown = offline_run("plan", "p.yaml").out
    assert "another run uses the state folder now" in shown
    assert "counts-update  resumes after batch 7" in shown
    (tmp_path / "p.yaml").write_text(FILES.replace("GROUP BY word", "GROUP BY word, length(word)"))
    found = json.loads(offline_run("plan", "p.yaml", "--json", code=2).out)
    assert (found["running"], found["starts"], found["error"]) == (True, False, None)
    lock.release()
    (tmp_path / "p.yaml").write_text(FILES)
    found = json.loads(offline_run("plan", "p.yaml", "--json").out)
    assert (found["running"], found["starts"]) == (False, True)


def test_a_query_whose_last_windows_are_written(offline_run: Run, tmp_path: Path) -> None:
    checkpoint = ran(tmp_path, FILES) / "checkpoints" / "counts-update"
    ended = 'v1\n{"batchWatermarkMs":253402300799999}\n{}'
    (checkpoint / "offsets" / "8").write_text(ended)
    shown = offline_run("plan", "p.yaml", code=2).out
    assert "not possible: a run that writes its last windows was ended before" in shown
    assert "repeat the run with --until-caught-up --flush" in shown
    offline_run("plan", "p.yaml", "--accept-state-change", "counts-update", code=2)
    (checkpoint / "commits" / "8").write_text("v1\n{}")
    shown = offline_run("plan", "p.yaml", code=2).out
    assert "not the same: its last windows were written by --flush" in shown
    assert "resumes" in offline_run("plan", "p.yaml", "--accept-state-change", "counts-update").out


def test_a_folder(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "counted.yaml").write_text(COUNTED)
    reader = "name: reader\nsources: {counts: {kafka: counts, schema: 'value string, n timestamp'}}\n"
    (tmp_path / "reader.yaml").write_text(reader + "sinks: [{from: counts, console: }]\n")
    (tmp_path / "notes.py").write_text("print('not run')\n")
    shown = offline_run("plan", ".")
    assert "== counted.yaml\ncounts-update  starts from scratch" in shown.out
    assert shown.out.endswith("== what feeds what\ncounted (counts) -> topic counts -> reader (counts)\n")
    assert "notes.py: left out" in shown.err
    (tmp_path / "wrong.yaml").write_text(COUNTED.replace("sinks:", "snks:"))
    (tmp_path / "zero.yaml").write_text("")
    found = json.loads(offline_run("plan", ".", "--json", code=2).out)
    assert [plan["pipeline"] for plan in found["pipelines"]] == ["counted", "reader"]
    assert [(error["file"], error["condition"]) for error in found["errors"]] == [
        ("wrong.yaml", "pipeline.invalid"),
        ("zero.yaml", "pipeline.invalid"),
    ]
    assert found["lineage"] == [
        {"writer": "counted", "table": "counts", "target": "topic counts", "reader": "reader", "source": "counts"}
    ]
    assert "--state" in offline_run("plan", ".", "--state", "s", code=2).err


def test_settings_and_their_reasons(offline_run: Run, tmp_path: Path) -> None:
    ran(tmp_path, FILES)
    shown = offline_run("plan", "p.yaml", "--explain", "--set", "spark.ui.enabled=true").out
    assert "spark.sql.shuffle.partitions" in shown
    assert "counts-update has 99" in shown
    assert "--set" in shown


def test_where_state_is_kept_and_why(offline_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.yaml").write_text(COUNTED)
    told = json.loads(offline_run("plan", "p.yaml", "--explain", "--json").out)["settings"]
    store = next(one for one in told if one["key"].endswith("stateStore.providerClass"))
    assert "MILLRACE_STATE_KEYS" in store["why"]
    monkeypatch.setenv("MILLRACE_STATE_KEYS", "100000000")
    told = json.loads(offline_run("plan", "p.yaml", "--explain", "--json").out)["settings"]
    store = next(one for one in told if one["key"].endswith("stateStore.providerClass"))
    assert store["value"].endswith("RocksDBStateStoreProvider")
    assert "100,000,000 keys are expected" in store["why"]


def test_how_rocksdb_works_is_told_where_it_keeps_a_state(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(COUNTED)
    assert "stateStore.rocksdb" not in offline_run("plan", "p.yaml", "--explain").out
    chosen = f"{ROCKSDB.key}={ROCKSDB.value}"
    assert "stateStore.rocksdb" in offline_run("plan", "p.yaml", "--explain", "--set", chosen).out


def test_a_quick_start_is_explained(offline_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(tmp_path, COUNTED)
    shown = offline_run("plan", "p.yaml", "--explain").out
    assert "an archive of its classes, created once (unless MILLRACE_ARCHIVE=off)" in shown
    monkeypatch.setenv("MILLRACE_ARCHIVE", "off")
    shown = offline_run("plan", "p.yaml", "--explain").out
    assert "archive" not in shown


def test_memory_and_full_folders(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILES.replace("console: ", "memory: "))
    assert "starts from scratch: memory keeps nothing beyond a run" in offline_run("plan", "p.yaml").out
    log = tmp_path / "out" / "_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").touch()
    stateless = FILES.replace(", count(*) AS n FROM words GROUP BY word", " FROM words")
    (tmp_path / "p.yaml").write_text(stateless.replace("console: , mode: update", "files: out"))
    shown = offline_run("plan", "p.yaml", code=2).out
    assert "cannot start: the folder out holds the output of another query" in shown


def test_it_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILES)
    program = (
        "import sys; sys.argv = ['millrace', 'plan', 'p.yaml']\n"
        "from millrace.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'pyspark', 'pyarrow', 'pandas', 'starlette', 'uvicorn', 'cassandra'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.chaos
def test_spark_is_asked(millrace: CommandLine) -> None:
    (millrace.folder / "in").mkdir()
    (millrace.folder / "in" / "1.json").write_text('{"word": "a"}\n{"word": "b"}\n')
    (millrace.folder / "p.yaml").write_text(FILES)
    millrace("run", "p.yaml", "--until-caught-up", "--no-dashboard")
    spelled = FILES.replace("SELECT word, count(*)", "SELECT w.word, count(1)").replace("FROM words", "FROM words w")
    (millrace.folder / "p.yaml").write_text(spelled)
    assert "counts-update  asks Spark" in millrace("plan", "p.yaml").stdout
    asked = millrace("plan", "p.yaml", "--deep", "--set", "spark.sql.shufle.partitions=3", "--set", "spark.mine=1")
    assert "counts-update  resumes after batch 0" in asked.stdout
    assert "did you mean spark.sql.shuffle.partitions?" in asked.stdout
    assert "--deep" not in asked.stderr
    wrong = millrace("plan", "p.yaml", "--deep", "--set", "spark.sql.shuffle.partitions=many", code=2)
    assert "error[option.invalid]" in wrong.stderr
