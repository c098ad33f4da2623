"""Python processes of Spark, forked from one process that has loaded what they need.

Spark starts `python -m MODULE …` for many things: to plan each source of Python's, to ask it for the end of a batch, to
run functions of a query. Each loads PySpark, which takes half a second of CPU, on a busy machine ten seconds; and
Spark gives up a source whose process does not call back within ten.

- `WorkerHost` starts the host, a process of the session, and gives Spark the launcher as its `python`.
- The launcher (`worker_launcher`) is a small program: it hands its arguments, environment and streams to the host.
- The host forks; the child runs the module. What the host cannot run, the launcher runs as Python does.
- Who ends the launcher, as Spark does, ends the child; the launcher ends with the child's exit code.

Run as a program, this is the host: its standard input is a listening socket, and it ends when its parent does.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from millrace.engine.session import worker_launcher
from millrace.engine.session.worker_launcher import (
    HOST_VARIABLE,
    MODULES,
    PYTHON_VARIABLE,
    WorkerRequest,
    receive_request,
)
from millrace.services.parent_watchdog import die_with_parent

_PRELOADED = (
    "numpy",
    "pandas",
    "pyarrow.compute",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "millrace.connectors.kafka.bulk_source",
    "millrace.dead_letters.kafka_writer",
    "millrace.engine.queries.decoding",
    "millrace.formats.json_decoder",
)
_HASH_SEED = "PYTHONHASHSEED"
_OF_PYTHON = re.compile("PYTHON[A-Z0-9]+")
"""The names of the variables that Python reads when it starts; Spark's own begin with PYTHON_."""
_SET_IN_FORKS = {"PYTHONPATH", "PYTHONUNBUFFERED"}
"""Those of them that a fork needs not have had when its host started; Spark sets both."""
_SOCKET, _LAUNCHER = "workers", "python"
_LAUNCHER_TEXT = '#!/bin/sh\nexec {python} -I -S {program} "$@"\n'
_END_TIMEOUT_S = 5.0
_MAX_SOCKET_PATH_BYTES = 100
_MAX_SIGNALS = 4096
_SIGNALLED = 128
"""Plus the number of the signal that has ended a process: its exit code, as shells have it."""


class WorkerHost:
    """The host of a session, and the launcher that Spark takes for Python."""

    def __init__(self, scratch: Path) -> None:
        """Start it; raise OSError if nothing can be run or listened to in the scratch folder."""
        self._launcher, self._socket = scratch / _LAUNCHER, scratch / _SOCKET
        paths = {"python": shlex.quote(sys.executable), "program": shlex.quote(worker_launcher.__file__)}
        self._launcher.write_text(_LAUNCHER_TEXT.format(**paths))
        self._launcher.chmod(0o700)
        if not os.access(self._launcher, os.X_OK):
            raise OSError("its file system is noexec")
        with socket.socket(socket.AF_UNIX) as listener:
            _bind(listener, self._socket)
            listener.listen(128)
            environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # a process that forks has no other threads
            environment.setdefault(_HASH_SEED, "0")  # as PySpark does: workers must agree on hashes
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the run, which ends its workers when they are done
            )

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a JVM whose Python processes come from here."""
        return {
            "PYSPARK_PYTHON": str(self._launcher),
            HOST_VARIABLE: str(self._socket),
            PYTHON_VARIABLE: sys.executable,
        }

    def close(self) -> None:
        """End it, and what it has forked."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _bind(listener: socket.socket, path: Path) -> None:
    """Give a socket its path. The system takes only short ones: Linux knows one for every folder that is open."""
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
        listener.bind(str(path))
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def main() -> None:
    """Fork for each request until standard input ends; then end what was forked."""
    own = os.getpid()
    listener = socket.socket(fileno=int(sys.argv[1]))
    for name in _PRELOADED:
        importlib.import_module(name)
    os.register_at_fork(after_in_child=sys.modules["numpy"].random.seed)  # as Python does with its own generator
    # A worker collects its garbage after every task: 50 ms each time if it also looked at all that is loaded here.
    gc.freeze()
    signals, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a child that ends wakes the host
    launchers: dict[int, socket.socket] = {}  # by the pid of the fork that each waits for
    while 0 not in (ready := _ready(0, *(own.fileno() for own in (listener, signals, *launchers.values())))):
        if signals.fileno() in ready:
            signals.recv(_MAX_SIGNALS)
            _report_ended(launchers)
        for pid in [pid for pid, launcher in launchers.items() if launcher.fileno() in ready]:
            launchers.pop(pid).close()  # a launcher sends nothing more: it has ended
            _kill(pid)
        if listener.fileno() in ready:
            launcher, _ = listener.accept()
            if request := _fork(launcher, launchers):
                signal.set_wakeup_fd(-1)
                for inherited in (listener, signals, wakeup, launcher, *launchers.values()):
                    inherited.close()
                _become(request, own)
                return
    for pid in launchers:
        _kill(pid)


def _ready(*descriptors: int) -> set[int]:
    """Wait for something to read, or for the end of it; return where that is."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in waiting.poll()}


def _fork(launcher: socket.socket, launchers: dict[int, socket.socket]) -> WorkerRequest | None:
    """Serve a launcher: return what is to be run in the child, and None in the host."""
    request, pid = None, -1
    with suppress(OSError):  # there can be no more processes, or the launcher has ended
        request = receive_request(launcher)
        pid = os.fork() if request and _can_run(request) else -1
    if pid == 0:
        return request
    for descriptor in request.descriptors if request else ():
        os.close(descriptor)
    with suppress(OSError):
        launcher.sendall(b"n" if pid < 0 else b"y")
    if pid < 0:
        launcher.close()
        return None
    launchers[pid] = launcher
    with suppress(OSError):  # the child does it too; the first of both counts
        os.setpgid(pid, pid)
    return None


def _report_ended(launchers: dict[int, socket.socket]) -> None:
    """Tell the launchers of children that have ended how these ended."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, code = ended[0], os.waitstatus_to_exitcode(ended[1])
            if launcher := launchers.pop(pid, None):
                with launcher, suppress(OSError):
                    launcher.sendall(bytes([code if code >= 0 else _SIGNALLED - code]))


def _kill(pid: int) -> None:
    """End a child and what it has forked: Spark's daemon leaves its workers otherwise."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _can_run(request: WorkerRequest) -> bool:
    """Return whether a fork is what Python would be: what it reads when it starts must be the same there."""
    is_module = request.arguments[:1] == ["-m"] and request.arguments[1].startswith(MODULES)
    wanted = {_HASH_SEED: os.environ[_HASH_SEED]} | request.environment
    return is_module and _start_variables(wanted) == _start_variables(os.environ)


def _start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if value and _OF_PYTHON.fullmatch(name) and name not in _SET_IN_FORKS
    }


def _become(request: WorkerRequest, host: int) -> None:
    """Run a module in the place of the launcher."""
    os.setpgid(0, 0)
    die_with_parent(host)  # without the host nobody could end it
    for number, descriptor in enumerate(request.descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.path[:] = _search_path(request)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = _stream(sys.stdin, 0), _stream(sys.stdout, 1), _stream(sys.stderr, 2)
    _, module, *arguments = request.arguments
    sys.argv = [module, *arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that the module is loaded already
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _stream(of_host: TextIO, descriptor: int) -> TextIO:
    """Return a standard stream, with the encoding and the treatment of errors that Python has chosen for the host's."""
    if descriptor == 0:
        return open(0, encoding=of_host.encoding, errors=of_host.errors)
    return open(descriptor, "w", 1, of_host.encoding, of_host.errors)


def _search_path(request: WorkerRequest) -> list[str]:
    """Return where modules are looked for: first in the folder, as `python -m` does, and in PYTHONPATH."""
    given = [path for path in request.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if sys.flags.safe_path:
        return [*given, *(path for path in sys.path if path not in given)]
    of_host = {*given, os.getcwd()}  # noqa: PTH109 - a text, as it is in the path
    return [request.folder, *given, *(path for path in sys.path if path not in of_host)]


if __name__ == "__main__":
    main()
