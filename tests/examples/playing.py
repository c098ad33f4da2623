"""Programs with DStreams are played: on the Spark of the tests, or under `millrace exec` as users do it."""

from __future__ import annotations

import re
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from conftest import CommandLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 60.0


class Played(Protocol):
    """A program that runs."""

    def until(self, *wanted: str) -> str:
        """All that it has printed, once every pattern is in it."""

    def stop(self) -> None:
        """End it as Ctrl-C does: what has been received is worked on."""


Play = Callable[..., Played]


def wait(holds: Callable[[], bool], told: Callable[[], str]) -> None:
    """Wait for something, though not for ever."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)


def has(text: str, wanted: tuple[str, ...]) -> bool:
    """Whether a text has every pattern."""
    return all(re.search(pattern, text, re.MULTILINE) for pattern in wanted)


class Here:
    """A program in a thread of this process. Its SparkContext is the one that is there; all else is its own."""

    def __init__(
        self, spark: SparkSession, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *line: object
    ) -> None:
        self._capsys, self._printed = capsys, ""
        self._failure: BaseException | None = None
        shared = spark.sparkContext
        patch.setattr("pyspark.SparkContext.__init__", lambda made, **_: made.__dict__.update(shared.__dict__))
        patch.setattr(sys, "argv", [str(one) for one in line])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def until(self, *wanted: str) -> str:
        wait(lambda: bool(self._failure) or has(self._read(), wanted), self._read)
        if self._failure:
            raise self._failure
        return self._printed

    def stop(self) -> None:
        from pyspark.streaming import StreamingContext

        if context := StreamingContext.getActive():
            context.stop(stopSparkContext=False, stopGraceFully=True)
        self._thread.join(_PATIENCE)
        assert not self._thread.is_alive()

    def _read(self) -> str:
        self._printed += self._capsys.readouterr().out
        return self._printed

    def _run(self) -> None:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except BaseException as error:
            self._failure = error


class Executed:
    """A program under `millrace exec`."""

    def __init__(self, millrace: CommandLine, *line: object, options: tuple[str, ...] = ("--no-dashboard",)) -> None:
        self._process = millrace.start("exec", *options, *map(str, line), PYTHONUNBUFFERED="1")
        self._out, self._err = b"", b""
        self._readers = [threading.Thread(target=one, daemon=True) for one in (self._read_out, self._read_err)]
        for reader in self._readers:
            reader.start()

    @property
    def told(self) -> str:
        """What Millrace says."""
        return self._err.decode()

    def until(self, *wanted: str) -> str:
        wait(lambda: self._process.poll() is not None or has(self._out.decode(), wanted), self._all)
        assert has(self._out.decode(), wanted), self._all()
        return self._out.decode()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._end()
        assert self._process.returncode == 128 + signal.SIGTERM, self._all()
        assert "Traceback" not in self.told
        assert re.search(r"^dstreams: started$", self.told, re.MULTILINE)
        assert re.search(r"^dstreams: stopped after [\d,]+ rows in [\d,]+ batch", self.told, re.MULTILINE), self._all()

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(_PATIENCE)
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream
            stream.close()

    def _all(self) -> str:
        return f"{self._out.decode()}\n{self.told}"

    def _read_out(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._out += line

    def _read_err(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self._err += line


def sparks_own(name: str) -> Path:
    """One of the programs that PySpark carries."""
    spec = util.find_spec("pyspark")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "examples/src/main/python/streaming" / name


@pytest.fixture(params=["here", pytest.param("exec", marks=pytest.mark.chaos)])
def play(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Play]:
    """`play(PROGRAM, ARGUMENTS…)`; `make chaos` plays it in a process of its own too, as one does at a terminal."""
    played: list[Played] = []
    monkeypatch.chdir(tmp_path)

    def begin(*line: object) -> Played:
        if request.param == "here":
            played.append(Here(request.getfixturevalue("spark"), monkeypatch, capsys, *line))
        else:
            played.append(Executed(request.getfixturevalue("offline_millrace"), *line))
        return played[-1]

    yield begin
    for one in played:
        if isinstance(one, Executed):
            one.kill()
        else:
            one.stop()
