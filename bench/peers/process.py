"""A program that is watched while it runs: the CPU seconds of all its processes, sampled; ended by their ids."""

from __future__ import annotations

import bisect
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

_EVERY = 0.2
_FAMILY = 5
"""Samples between two looks for new processes: that look is dear."""


class Watched:
    """A child in a session of its own, and what its processes have used of the processor."""

    def __init__(self, command: list[str | Path], environment: dict[str, str], log: Path) -> None:
        self.log = log
        self.started = time.monotonic()
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                env=os.environ | environment,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._known = {self._child.pid: psutil.Process(self._child.pid)}
        self._samples: list[tuple[float, float]] = [(self.started, 0.0)]
        self._over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def ended(self) -> int | None:
        """Its exit code, if it has ended by itself."""
        return self._child.poll()

    def wait(self, seconds: float) -> None:
        """Until it has ended, but not for longer."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)

    def cpu(self, moment: float) -> float:
        """CPU seconds used up to a moment of the past."""
        samples = list(self._samples)
        place = bisect.bisect(samples, (moment, float("inf")))
        if place == len(samples):
            return samples[-1][1]
        (before, less), (after, more) = samples[place - 1], samples[place]
        return less + (more - less) * (moment - before) / (after - before)

    def memory(self) -> int:
        """Bytes that its processes hold now; what several share counts once, where the system says that (Linux)."""
        held = 0
        for one in list(self._known.values()):
            with suppress(psutil.Error):
                own = one.memory_full_info()
                held += getattr(own, "pss", own.rss)
        return held

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text("utf-8", "replace")[-2000:]

    def end(self) -> None:
        """Ask all its processes to go, then see to it."""
        self._over.set()
        self._sampler.join()
        self._look()
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGTERM)
        _, left = psutil.wait_procs(list(self._known.values()), 5)
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(left, 10)
        self._child.wait()

    def _sample(self) -> None:
        number = 0
        while not self._over.wait(_EVERY):
            if not number % _FAMILY:
                self._look()
            number += 1
            # What has ended is in the figure of the parent that waited for it.
            used = sum(map(self._used, list(self._known.values())))
            self._samples.append((time.monotonic(), max(used, self._samples[-1][1])))

    def _look(self) -> None:
        for known in list(self._known.values()):
            with suppress(psutil.Error):
                for child in known.children(recursive=True):
                    self._known.setdefault(child.pid, child)

    @staticmethod
    def _used(process: psutil.Process) -> float:
        with suppress(psutil.Error):
            times = process.cpu_times()
            return float(times.user + times.system + times.children_user + times.children_system)
        return 0.0
