"""What every service of ours has in common, shown by one that only sleeps."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from millrace.errors import DataDirInUse, DataDirMismatch, NoCluster, ServiceFailed
from millrace.services import lifecycle
from millrace.services.java import Java
from millrace.services.lifecycle import Description, Embedded, Notify, stop_service
from millrace.services.process import Child, Identity

SLEEP = "import sys, time; print(sys.argv[1]); time.sleep(600)"


@dataclass(frozen=True)
class Bed(Description):
    """Where the sleeper lies."""

    file = "bed.json"
    what = "bed"
    mismatch = DataDirMismatch

    process: Identity | None = None

    @property
    def address(self) -> str:
        return "bed:1"

    def processes(self) -> dict[int, Identity]:
        return {1: self.process} if self.process else {}

    def with_process(self, number: int, process: Identity | None) -> Bed:
        assert number == 1
        return replace(self, process=process)

    @classmethod
    def parsed(cls, found: dict[str, Any]) -> Bed:
        return cls(password=found["password"], process=Identity.of(found["process"]))


class Sleeper(Embedded[Bed, str]):
    """A service that does nothing."""

    name = "Kafka"
    start_timeout_s = 60.0
    lock_timeout_s = 0.0
    taken_port_texts = ("taken",)
    in_use = DataDirInUse
    none = NoCluster

    def __init__(self, folder: Path, says: str = "", *, detach: bool = True) -> None:
        super().__init__(folder, Bed, port=None, detach=detach)
        self.says = says
        self.starts = 0

    def client(self) -> str:
        return self.require_layout().address

    def _start(self, java: Java, classpath: str, before: Bed | None, notify: Notify) -> None:
        self.starts += 1
        self.layout = before or Bed(password="")
        program = SLEEP if not self.says else "import sys; sys.exit(sys.argv[2])"
        command = [sys.executable, "-c", program, str(self.folder), self.says or str(self.folder)]
        self._launch(1, "sleeper", command, self.folder / "console.log")
        self._wait_until(lambda: bool(self._children[1].output()) and not self.says)


class _Jars:
    def classpath(self) -> str:
        return ""


@pytest.fixture(autouse=True)
def no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle.jars, "ensure", lambda *_: _Jars())


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """Every process that is launched."""
    made: list[Child] = []

    class Noted(Child):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(lifecycle, "Child", Noted)
    yield made
    for one in made:
        one.identity.stop()


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_ctrl_c_between_the_launch_and_our_knowing_of_it_leaves_no_process(
    tmp_path: Path, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(lifecycle.Child):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(lifecycle, "Child", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        Sleeper(tmp_path / "bed").start()
    (child,) = children
    assert not runs(child.pid)
    assert Bed.running(tmp_path / "bed") is None


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_while_the_thread_is_made_that_launches_leaves_no_process(
    late: bool, tmp_path: Path, children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nobody waits for it: it launches at the same time as all is stopped, or after that."""
    begun, stopped = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, work: Any, /, *arguments: Any, **_: Any) -> Any:
            def launch() -> None:
                if late:
                    stopped.wait()
                work(*arguments)

            monkeypatch.setattr(lifecycle, "ThreadPoolExecutor", ThreadPoolExecutor)
            threads.append(threading.Thread(target=launch))
            threads[0].start()
            if not late:
                begun.wait()
            raise KeyboardInterrupt

    class Slow(lifecycle.Child):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            begun.set()
            super().__init__(*arguments, **options)

    monkeypatch.setattr(lifecycle, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(lifecycle, "Child", Slow)
    with pytest.raises(KeyboardInterrupt):
        Sleeper(tmp_path / "bed").start()
    stopped.set()
    threads[0].join()
    assert len(children) == (0 if late else 1)
    assert not any(runs(child.pid) for child in children)
    assert Bed.running(tmp_path / "bed") is None


def test_it_goes_on_detached_and_is_found_and_stopped_by_its_folder(tmp_path: Path, children: list[Child]) -> None:
    folder = tmp_path / "bed"
    service = Sleeper(folder)
    assert service.start() == "bed:1"
    with pytest.raises(DataDirInUse) as caught:
        Sleeper(folder).start()
    assert str(children[0].pid) in str(caught.value.why)
    assert stop_service(Sleeper, Bed, folder) == [1]
    assert not runs(children[0].pid)
    with pytest.raises(NoCluster):
        stop_service(Sleeper, Bed, folder)
    service.stop()


def test_a_port_that_somebody_took_is_tried_again_and_another_failure_is_not(
    tmp_path: Path, children: list[Child]
) -> None:
    for says, starts in (("taken", 3), ("broken", 1)):
        service = Sleeper(tmp_path / says, says)
        with pytest.raises(ServiceFailed):
            service.start()
        assert service.starts == starts
    assert not any(runs(child.pid) for child in children)


def test_what_a_killed_start_left_of_its_file_is_no_data(tmp_path: Path, children: list[Child]) -> None:
    (tmp_path / ".bed.json.0.tmp").touch()
    with Sleeper(tmp_path, detach=False):
        assert Bed.running(tmp_path)
    (tmp_path / "bed.json").unlink()
    with pytest.raises(DataDirMismatch):
        Sleeper(tmp_path).start()
