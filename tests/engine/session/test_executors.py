"""Pipelines on a real Spark cluster, whose workers are processes of this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import CommandLine, committed
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.engine.session import executors
from millrace.engine.session.executors import ExecutorsStopped, RemoteExecutorSettings, equip_executors
from millrace.errors import InvalidOption
from standalone import Standalone, quickly

EXAMPLE = Path(__file__).parents[3] / "examples" / "trending" / "pipeline.py"
SETTINGS = (
    "spark.executor.memory=512m",
    "spark.cores.max=2",
    "spark.driver.host=127.0.0.1",
    "spark.sql.codegen.wholeStage=false",
    "spark.locality.wait=0",
)


def small() -> tuple[str, ...]:
    """Options for executors that are small and there soon."""
    quick = f"spark.executor.extraJavaOptions={quickly()}"
    return (*(word for one in (*SETTINGS, quick) for word in ("--set", one)), "--no-dashboard")


NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
POSTS = 300
_PATIENCE = 120.0

Counts = Counter[tuple[str, str]]


@pytest.fixture
def trending(millrace: CommandLine, cluster: Cluster, topic: str) -> str:
    """The example of the design in a folder of its own, cut into batches, before a topic with posts; its output."""
    written = EXAMPLE.read_text()
    for old, new in (
        ('kafka("posts",', f'kafka("{topic}", max_per_batch=100,'),
        ('"popular", key', f'"{topic}-out", key'),
    ):
        assert old in written
        written = written.replace(old, new)
    (millrace.folder / "pipeline.py").write_text(written)
    topics.create(cluster, f"{topic}-out", 2)
    producer = Producer(cluster, topic)
    producer.send([Record(json.dumps(post).encode(), partition=number % 3) for number, post in enumerate(posts())])
    producer.close()
    return f"{topic}-out"


def posts() -> Iterator[dict[str, Any]]:
    for number in range(POSTS):
        at = NOON + timedelta(seconds=number / 10)
        text = f"#{('coffee', 'rain', 'tram')[number % 3]} and #all"
        yield {"id": str(number), "author": "otter", "text": text, "at": at.isoformat()}


def expected() -> Counts:
    """How often each tag is in each window of a minute."""
    found: Counts = Counter()
    for number, post in enumerate(posts()):
        newest = number // 100 * 10  # of the windows that have the moment, the last to begin
        for start in range(newest - 50, newest + 1, 10):
            for tag in str(post["text"]).replace("#", "").split(" and "):
                found[(NOON + timedelta(seconds=start)).strftime("%H:%M:%S"), tag] += 1
    return found


def require_exact(cluster: Cluster, topic: str) -> None:
    """Each update is there once: the counts of a window only grow, and end where they must."""
    seen: dict[tuple[str, str], list[int]] = {}
    for one in committed(cluster, topic):
        row = json.loads(one.value() or b"")
        seen.setdefault((row["window"]["start"][11:19], row["tag"]), []).append(row["count"])
    assert {key: max(counts) for key, counts in seen.items()} == expected()
    twice = {key: counts for key, counts in seen.items() if len(set(counts)) != len(counts)}
    assert not twice


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def there(millrace: CommandLine, standalone: Standalone, **more: str) -> CommandLine:
    standalone.complete()
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **more}
    millrace.environment |= own
    return millrace


@pytest.mark.long
def test_a_worker_is_killed_and_each_row_is_there_once(
    millrace: CommandLine, cluster: Cluster, standalone: Standalone, trending: str
) -> None:
    state = millrace.folder / "shared"
    there(millrace, standalone)
    line = ("run", "pipeline.py", "--master", standalone.url, "--state", str(state), "--until-caught-up", *small())
    process = millrace.start(*line)
    try:
        commits = state / "checkpoints" / "popular-update" / "commits"
        until((commits / "0").exists, process)
        assert standalone.kill_worker() > 0
        said = process.communicate(timeout=_PATIENCE)[1].decode()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, said
    require_exact(cluster, trending)
    planned = (commits.parent / "offsets" / "0").read_text().splitlines()[1]
    assert json.loads(planned)["conf"]["spark.sql.shuffle.partitions"] == "2"  # as asked for, whoever had come


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_the_driver_is_killed_and_another_goes_on(
    millrace: CommandLine, cluster: Cluster, standalone: Standalone, trending: str
) -> None:
    state = millrace.folder / "shared"
    there(millrace, standalone)
    line = ("run", "pipeline.py", "--master", standalone.url, "--state", str(state), *small())
    process = millrace.start(*line)
    until((state / "checkpoints" / "popular-update" / "commits" / "1").exists, process)
    process.kill()
    process.communicate(timeout=60)
    millrace(*line, "--until-caught-up")
    require_exact(cluster, trending)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_python_without_packages_is_told_and_is_sent_them(
    millrace: CommandLine, cluster: Cluster, standalone: Standalone, trending: str, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    there(millrace, standalone, PYSPARK_PYTHON=str(tmp_path / "bare" / "bin" / "python"))
    line = ("run", "pipeline.py", "--master", standalone.url, "--until-caught-up", *small())
    refused = millrace(*line, code=1)
    assert "lacks confluent_kafka" in refused.stderr
    assert "--ship-packages" in refused.stderr
    process = millrace.start(*line, "--ship-packages")  # which packs a hundred megabytes the first time
    said = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 0, said
    require_exact(cluster, trending)
    shutil.rmtree(tmp_path / "bare")


@pytest.mark.parametrize(
    ("master", "kafka"),
    [("spark://there:7077", "127.0.0.1:9092"), ("yarn", "localhost:1,localhost:2"), ("k8s://https://a", "[::1]:9092")],
)
def test_kafka_on_this_machine_is_no_address_for_others(master: str, kafka: str) -> None:
    with pytest.raises(InvalidOption):
        executors.require_reachable(master, kafka)


@pytest.mark.parametrize(
    ("master", "kafka"),
    [(None, "127.0.0.1:9092"), ("local[2]", "localhost:1"), ("spark://127.0.0.1:1", "127.0.0.1:9"), ("yarn", "k:9092")],
)
def test_kafka_that_executors_reach(master: str | None, kafka: str) -> None:
    executors.require_reachable(master, kafka)


def test_a_folder_that_an_executor_does_not_see(tmp_path: Path) -> None:
    (found,) = executors._probe(str(tmp_path / "there" / ".seen"))(iter(()))
    assert found["not_shared"]
    (found,) = executors._probe(str(tmp_path))(iter(()))
    assert not found["problem"]


def test_nobody_waits_for_executors_of_a_run_that_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(ExecutorsStopped):
        equip_executors(SimpleNamespace(sparkContext=None), RemoteExecutorSettings(is_stopped=lambda: True), tmp_path)  # type: ignore[arg-type]
