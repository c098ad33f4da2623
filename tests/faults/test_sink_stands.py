"""A sink that takes nothing for a while: a pipe that nobody reads, a disk that is full, a batch that is poison."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import termios
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from faults.going import Going, numbers_in, send
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import DiskFull, MillraceError
from millrace.telemetry.query_status import Phase, RunStatus

RECORDS = 1_200
SMALL = 4096
"""The least that a pipe can hold."""


def waiting(pipe: int) -> int:
    """Bytes in a pipe that nobody has read yet."""
    found = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


@pytest.mark.long
def test_a_pipe_that_nobody_reads_holds_its_query_and_no_other(
    cluster: Cluster, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    send(cluster, topic, range(RECORDS))
    pipeline = mr.Pipeline(f"piped-{topic}")
    pipeline.source("numbers", mr.kafka(topic, format="text", max_per_batch=300))
    pipeline.sql("printed", "SELECT value FROM numbers")
    pipeline.sql("copied", "SELECT value FROM numbers")
    pipeline.sink("printed", mr.console(rows=300))
    pipeline.sink("copied", mr.kafka(f"{topic}-out", format="text"))
    source, sink = os.pipe()
    fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, SMALL)
    with (
        os.fdopen(sink, "w") as writer,
        os.fdopen(source) as reader,  # closed before the writer, which would wait to write what is left
        Going(
            pipeline, tmp_path / "state", cluster, spark, print_line=lambda text: print(text, file=writer, flush=True)
        ) as going,
    ):
        going.wait_until(lambda: waiting(source) > 0, "something is in the pipe")
        going.wait_until(lambda: going.rows("copied") == RECORDS, "the other query has everything")
        assert going.rows("printed") < RECORDS
        found = Counter[int]()
        while found.total() < RECORDS:
            found.update(int(one) for one in re.findall(r"^\|(\d+) *\|$", reader.readline(), re.MULTILINE))
        going.wait_until(lambda: going.rows("printed") == RECORDS, "the last batch is done")
    assert found == numbers_in(cluster, f"{topic}-out") == Counter(range(RECORDS))


@pytest.mark.long
def test_a_poisoned_batch_is_written_once_it_is_mended(
    cluster: Cluster, topic: str, tmp_path: Path, run_pipeline: Callable[..., RunStatus]
) -> None:
    def copy(poison: int) -> mr.Pipeline:
        pipeline = mr.Pipeline(f"poisoned-{topic}")
        pipeline.source("numbers", mr.kafka(topic, format="text", max_per_batch=300))
        taken = f"if(value = '{poison}', raise_error('poison'), value)"
        pipeline.sql("copied", f"SELECT {taken} AS value FROM numbers")  # noqa: S608
        pipeline.sink("copied", mr.kafka(f"{topic}-out", format="text"))
        return pipeline

    send(cluster, topic, range(RECORDS))
    with pytest.raises(MillraceError, match="poison") as raised:
        run_pipeline(copy(700), tmp_path)
    assert "times at the same batch" in raised.value.message
    before = numbers_in(cluster, f"{topic}-out")
    assert before
    assert before.keys() < {*range(RECORDS)} - {700}
    run_pipeline(copy(-1), tmp_path)
    assert numbers_in(cluster, f"{topic}-out") == Counter(range(RECORDS))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes; whoever may not mount one cannot run this."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", 0) as file:
        while True:
            file.write(b"x" * 512)


@pytest.mark.chaos
def test_a_full_disk_under_the_sink_and_the_state_folder(
    cluster: Cluster, topic: str, tmp_path: Path, spark: SparkSession, small_disk: Path
) -> None:
    pipeline = mr.Pipeline(f"full-{topic}")
    pipeline.source("numbers", mr.kafka(topic, format="text", max_per_batch=300))
    pipeline.sql("copied", "SELECT value FROM numbers")
    pipeline.sink("copied", mr.files(str(small_disk / "out"), format="text"))
    pipeline.sink("copied", mr.kafka(f"{topic}-out", format="text"))
    send(cluster, topic, range(RECORDS))
    with Going(pipeline, small_disk / "state", cluster, spark) as going:
        run_status, ballast = going.run_status, small_disk / "ballast"
        going.wait_until(lambda: going.rows("copied") == RECORDS, "the first part is there")
        with pytest.raises(OSError, match="No space"):
            fill(ballast)
        send(cluster, topic, range(RECORDS, 2 * RECORDS))
        going.wait_until(lambda: run_status.query("copied").phase is Phase.RESTARTING, "the failure is seen")
        assert isinstance(run_status.query("copied").error, DiskFull)
        ballast.unlink()
        going.wait_until(lambda: going.rows("copied") == 2 * RECORDS, "everything is there")
    assert numbers_in(cluster, f"{topic}-out") == Counter(range(2 * RECORDS))
    found = sorted(int(row.value) for row in spark.read.text(str(small_disk / "out")).collect())
    assert found == list(range(2 * RECORDS))
