"""A Spark cluster of processes on this machine: a master and workers, from PySpark's own classes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from importlib import util
from pathlib import Path

import psutil

from millrace.engine.session.class_archive import class_archive_options
from millrace.services.process import free_port

_PATIENCE = 60.0


def quickly() -> str:
    """What a JVM of Spark's is started with to be there sooner."""
    return class_archive_options().replace('"', "")


class Standalone:
    """A master and workers of one core each."""

    def __init__(self, folder: Path, workers: int = 2, memory: str = "1g") -> None:
        self.folder = folder
        self._memory = memory
        self._port, self._page = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        where = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page))
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", *where)
        self.workers: list[subprocess.Popen[bytes]] = []
        self._wanted = workers
        self._until("its master listens", self._listens)
        self.complete()

    def complete(self) -> None:
        """Add the workers that are missing; all are there when this returns."""
        for _ in range(self._wanted - sum(one.poll() is None for one in self.workers)):
            self._add_worker()
        self._until("its workers have come", lambda: self._alive() >= self._wanted)

    def _add_worker(self) -> None:
        options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", self._memory)
        name = f"worker-{len(self.workers)}"
        more = (*options, "--work-dir", str(self.folder / name), self.url)
        self.workers.append(self._start(name, "org.apache.spark.deploy.worker.Worker", *more))

    def kill_worker(self, number: int = 0) -> int:
        """End one and its executors as a power cut does; how many executors it had."""
        worker = psutil.Process(self.workers[number].pid)
        executors = worker.children(recursive=True)
        for one in (worker, *executors):
            one.kill()
        self.workers[number].wait(10)
        return len(executors)

    def stop(self) -> None:
        """End everything."""
        for process in (*self.workers, self._master):
            if process.poll() is None:
                for one in psutil.Process(process.pid).children(recursive=True):
                    one.kill()
                process.kill()
            process.wait(10)

    def _start(self, name: str, main: str, *options: str) -> subprocess.Popen[bytes]:
        spec = util.find_spec("pyspark")
        assert spec
        assert spec.origin
        home = Path(spec.origin).parent
        own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "192m"}
        own |= {"SPARK_DAEMON_JAVA_OPTS": quickly()}
        own |= {"SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"}  # whose port would be the same for all
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [home / "bin" / "spark-class", main, *options],
                env=plain | own,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _listens(self) -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self._port)) == 0

    def _alive(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return 0

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not holds():
            if time.monotonic() > deadline or self._master.poll() is not None:
                said = "\n".join(one.read_text()[-2000:] for one in self.folder.glob("*.log"))
                self.stop()
                raise AssertionError(f"not so: {what}\n{said}")
            time.sleep(0.1)
