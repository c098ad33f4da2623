"""A stateful program that is killed again and again, and goes on from its checkpoint: the counts are exact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import MILLRACE
from dstreams.records import pour
from millrace.clients.kafka.cluster import Cluster

PROGRAM = Path(__file__).with_name("stateful.py")


class Killed:
    """The program with its folder, and what was poured for it."""

    def __init__(self, folder: Path, cluster: Cluster, topic: str) -> None:
        self.folder, self.cluster, self.topic = folder, cluster, topic
        self.poured: Counter[str] = Counter()
        self.out = folder / "counts.json"

    def pour(self) -> None:
        """Some more words, in each partition."""
        for partition in range(3):
            words = [f"word{number % 7}" for number in range(50 + 10 * partition)]
            pour(self.cluster, self.topic, words, partition)
            self.poured.update(words)

    @contextmanager
    def running(self, program: Path = PROGRAM) -> Iterator[subprocess.Popen[bytes]]:
        """The program, killed in the end."""
        arguments = [self.folder / "checkpoint", self.out, self.topic, self.cluster.bootstrap]
        with (self.folder / "output").open("ab") as output:
            command = [MILLRACE, "exec", "--no-dashboard", "--log", self.folder / "spark.log", program, *arguments]
            process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=output, cwd=self.folder)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def counts(self) -> dict[str, int]:
        """What the program wrote last."""
        found: dict[str, int] = json.loads(self.out.read_text()) if self.out.exists() else {}
        return found

    def wait(self, until: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Until a condition holds."""
        deadline = time.monotonic() + 150
        while not until():
            assert process.poll() is None, (self.folder / "output").read_text()[-3000:]
            assert time.monotonic() < deadline, (self.folder / "output").read_text()[-3000:]
            time.sleep(0.05)

    def survives(self, kills: int) -> None:
        """Kill it in the middle of its work, so often; in the end every word is counted once."""
        self.pour()
        for _ in range(kills):
            self.out.unlink(missing_ok=True)
            with self.running() as process:
                self.wait(self.out.exists, process)
                self.pour()
        with self.running() as process:
            self.wait(lambda: sum(self.counts().values()) >= self.poured.total(), process)
            assert self.counts() == self.poured


@pytest.fixture
def killed(tmp_path: Path, cluster: Cluster, topic: str, quick_starts: None) -> Killed:
    """A program of its own."""
    return Killed(tmp_path, cluster, topic)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_counts_are_exact_after_kills_and_the_checkpoint_is_refused_to_another_program(killed: Killed) -> None:
    killed.survives(1)
    other = killed.folder / "other.py"
    shutil.copy(PROGRAM, other)
    with killed.running(other) as process:
        assert process.wait(150) == 2
    told = (killed.folder / "output").read_text()
    assert "error[state.mismatch]: the checkpoint belongs to stateful.py, not to other.py" in told
    assert f"Kafka topic {killed.topic}" in told


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_counts_are_exact_after_ten_kills(killed: Killed) -> None:
    killed.survives(10)
