"""One program does one job: from its start until the first half is right (cold), then over the second half (warm)."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from peers.contract import Answer, Job, Peer, Place
from peers.filling import Gate, fill
from peers.jobs.ads import write_campaigns
from peers.output import Output
from peers.process import Watched

REST = 1.0
"""Seconds without output after which it is looked at."""
PATIENCE = float(os.environ.get("PATIENCE", "240"))


class WrongError(Exception):
    """The program did not give the right answer, or none in time."""


@dataclass(frozen=True)
class Run:
    """What one run took: seconds on the clock and on the processor, of each half."""

    cold_wall: float
    cold_cpu: float
    warm_wall: float
    warm_cpu: float
    memory: int
    written: int
    """Bytes of files in its folder that were written during the second half: checkpoints, where it has them."""

    def row(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def run(cluster: Cluster, job: Job, peer: Peer, mark: str) -> Run:
    """Fill, start, wait for the first half, open the gate, wait for the second; raises WrongError."""
    source, target = f"in-{mark}", f"out-{mark}"
    topics.create(cluster, source, job.partitions)
    topics.create(cluster, target, job.outputs)
    fill(cluster, source, job.first())
    gate = Gate(cluster, source, job.second())
    answer = job.answer()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        campaigns = Path(folder, "campaigns.json")
        write_campaigns(campaigns)
        place = Place(job.name, cluster.bootstrap, source, target, Path(folder), campaigns)
        output = Output(cluster, target, job.outputs)
        program = Watched(peer.command(place), place.variables() | peer.variables(place), Path(folder, "log"))
        try:
            first = _done(program, output, answer)
            answer.ask()
            opened, since = time.monotonic(), time.time()
            gate.open()
            second = _done(program, output, answer)
            return Run(
                first - program.started,
                program.cpu(first),
                second - opened,
                program.cpu(second) - program.cpu(opened),
                program.memory(),
                _written(Path(folder), since),
            )
        finally:
            program.end()
            output.close()
            topics.delete(cluster, [source, target])


def _written(folder: Path, since: float) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # drafts, and what is cleaned up meanwhile
            found = path.stat()
            total += found.st_size if found.st_mtime >= since and path.is_file() else 0
    return total


def _done(program: Watched, output: Output, answer: Answer) -> float:
    """The moment at which the right answer could be seen; it must stay right while the output rests."""
    since: float | None = None
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        program.wait(0.1)
        if program.ended() is not None:
            raise WrongError(f"it ended with {program.ended()}: {program.last_words()}")
        if output.resting(REST):
            since = output.read(answer.take, answer.right) or since
            if since and answer.right() and output.resting(REST):
                return since
    raise WrongError(f"not right after {PATIENCE:.0f} s: {answer.problem()}; {program.last_words()}")
