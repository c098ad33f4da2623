"""A session of ours: quiet, with our settings, gone with its process; a start that fails says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from millrace.engine.session import session
from millrace.engine.session.session import open_session, with_connectors, with_packages

OPENS = """
import json, signal, socket, sys, threading
from pathlib import Path
from millrace.engine.session.session import close_session, open_session
handler = signal.getsignal(signal.SIGINT)
spark = open_session("mine", master="local[2]", settings={"spark.sql.shuffle.partitions": "3"},
                     log=Path("run/spark.log"), module_folder=Path("beside").absolute())
def imported(number):
    import neighbour
    return neighbour.WORD
with socket.create_connection(spark.sparkContext._accumulatorServer.server_address) as stranger:
    stranger.sendall(b"who is there?" * 20)
    try:
        stranger.recv(1)
    except ConnectionResetError:
        pass
conf = spark.sparkContext.getConf()
print(json.dumps({
    "jvm": spark.sparkContext._gateway.proc.pid,
    "handler": signal.getsignal(signal.SIGINT) is handler,
    "settings": dict(conf.getAll()),
    "words": spark.sparkContext.parallelize([1]).map(imported).collect(),
    "kafka": spark._jvm.java.lang.Class.forName("org.apache.spark.sql.kafka010.KafkaSourceProvider", False,
        spark._jvm.Thread.currentThread().getContextClassLoader()).getName(),
}), flush=True)
END
"""


def program(folder: Path, end: str) -> subprocess.Popen[str]:
    (folder / "beside").mkdir()
    (folder / "beside" / "neighbour.py").write_text("WORD = 'hello'\n")
    return subprocess.Popen(
        [sys.executable, "-c", OPENS.replace("END", end)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(pid: int, seconds: float) -> bool:
    """Whether a process is gone, or goes within so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_a_session(tmp_path: Path) -> None:
    with program(tmp_path, "close_session(spark)\nprint(spark.sparkContext._gateway)") as run:
        out, err = run.communicate(timeout=170)
    told = json.loads(out.splitlines()[0])
    assert run.returncode == 0, err
    assert err == ""
    assert ended(told["jvm"], 0.1)  # closing waits for it
    assert told["handler"]
    assert told["words"] == ["hello"]
    assert told["settings"]["spark.sql.shuffle.partitions"] == "3"
    assert told["settings"]["spark.ui.enabled"] == "false"
    assert told["kafka"].endswith("KafkaSourceProvider")
    assert "incubator" in (tmp_path / "run" / "spark.log").read_text("utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"beside", "run"}


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.chaos)])
def test_the_jvm_ends_when_its_process_is_killed(tmp_path: Path, number: int) -> None:
    with program(tmp_path, "sys.stdin.read()") as run:
        assert run.stdout
        jvm = json.loads(run.stdout.readline())["jvm"]
        assert os.getsid(jvm) != os.getsid(run.pid)  # Ctrl-C in a terminal does not reach it
        run.send_signal(number)
        run.wait(30)
    assert ended(jvm, 60)


@pytest.mark.long
def test_a_session_that_nobody_closes_ends_with_its_process_and_not_with_one_that_is_forked(tmp_path: Path) -> None:
    ends = """
import os
if not (forked := os.fork()):
    sys.exit()
os.waitpid(forked, 0)
print(spark.range(3).count(), len(list(Path("run").glob("millrace-scratch-*"))))
"""
    with program(tmp_path, ends) as run:
        out, err = run.communicate(timeout=170)
    told, rows = out.splitlines()
    assert rows == "3 1", err
    assert ended(json.loads(told)["jvm"], 0.1)
    assert list((tmp_path / "run").glob("millrace-scratch-*")) == []


@pytest.mark.long
def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    tries = """
import sys
from pathlib import Path
from millrace.engine.session.session import close_session, open_session
from millrace.errors import MillraceError
try:
    open_session("mine", master=sys.argv[1], settings=dict([sys.argv[2].split("=")]), log=Path("spark.log"))
except MillraceError as error:
    print("\\n".join(error.lines()))
if "many" in sys.argv[2]:
    spark = open_session("mine", master="local[1]", settings={}, log=Path("spark.log"))
    print(spark.range(3).count(), "rows after all")
    close_session(spark)
"""
    for master, setting, condition, word in (
        ("local[2]", "spark.driver.memory=none", "spark.failed", "heap size"),
        ("yarn", "spark.a=b", "spark.failed", "HADOOP_CONF_DIR"),
        ("local[2]", "spark.sql.shuffle.partitions=many", "option.invalid", "3 rows after all"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", tries, master, setting],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        assert ran.stdout.startswith(f"error[{condition}]"), ran
        assert word in ran.stdout
        assert setting.split("=")[0] in ran.stdout or "spark.log" in ran.stdout
        assert "\tat " not in ran.stdout
        assert ran.stderr == ""


def test_an_accumulator_that_fails_is_told_and_a_stranger_is_not() -> None:
    told: list[object] = []
    server = SimpleNamespace(handle_error=lambda *request: told.append(request))
    session._silence_foreign_connections(SimpleNamespace(_accumulatorServer=server))  # type: ignore[arg-type]
    for error in (
        ValueError(f"The value of the {session._FOREIGN_CONNECTION}."),
        ConnectionResetError(),
        EOFError(),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "what"),
        ValueError("my own mistake"),
    ):
        try:
            raise error
        except Exception:
            server.handle_error(error)
    assert [str(error) for (error,) in told] == ["my own mistake"]


def test_jars_of_the_users_own_stand_beside_ours() -> None:
    both = with_connectors({"spark.jars": "mine.jar"})["spark.jars"].split(",")
    assert both[-1] == "mine.jar"
    assert any("spark-sql-kafka" in jar for jar in both)
    chosen = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"}
    assert with_connectors(chosen) == chosen


def test_jars_for_s3_of_the_users_own_are_the_only_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ensured: list[str] = []
    monkeypatch.setattr(session.jars, "ensure", lambda name: ensured.append(name) or SimpleNamespace(classpath=str))
    with_connectors({"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.1"}, ["s3"])
    with_connectors({}, ["s3"])
    assert ensured == ["spark", "spark", "s3"]


def test_packages_are_for_executors_and_for_a_driver_on_yarn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session.shipping, "packages_zip", lambda: tmp_path / "packages.zip")
    made = with_packages({"spark.executorEnv.PYTHONPATH": "/own"})
    assert made["spark.executorEnv.PYTHONPATH"] == f"/own:{session.shipping.UNPACKED}"
    assert made["spark.yarn.appMasterEnv.PYTHONPATH"] == session.shipping.UNPACKED


def test_what_was_submitted_wins_over_what_is_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`millrace submit --set …` tells spark-submit; the driver that starts there must not choose again."""
    told = {"spark.master": "yarn", "spark.executor.memory": "7g", "spark.jars": "a.jar", "spark.own": "1"}
    opened: list[dict[str, str]] = []
    monkeypatch.setattr(session, "is_submitted", lambda: True)
    monkeypatch.setattr(session, "submitted_conf", lambda: told)
    monkeypatch.setattr(session, "_session", lambda settings, *_: opened.append(dict(settings)))
    monkeypatch.setattr(session, "equip_executors", lambda *_, **__: None)
    given = {"spark.executor.cores": "3", "spark.own": "2"}
    preferred = {"spark.executor.memory": "1g", "spark.preferred": "yes"}
    open_session("mine", master="yarn", settings=given, preferred=preferred, log=tmp_path / "spark.log")
    (held,) = opened
    assert told.items() - held.items() == {("spark.own", "1")}
    assert held["spark.own"] == "2"
    assert held["spark.preferred"] == "yes"
    assert held["spark.dynamicAllocation.enabled"] == "false"
    assert held["spark.sql.shuffle.partitions"] == "6"
