"""What a process of a test run has left behind at its end: processes, ports, Kafka clients, threads, temporary folders.

Each process looks at itself when its last fixture is gone. A leak fails the run.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from millrace.clients.kafka.transactions import TransactionalProducer

_SETTLE_S = 10.0
"""How long what is being closed may take."""
_PREFIX = "mr-"
_MAX_FENCED = 6
"""How many producers the tests of a process fence while they send."""
_FOREIGN_THREADS = ("MainThread", "Dummy", "execnet", "where", "pytest_timeout", "ThreadPoolExecutor-gRPC")
"""Threads of the test runner, by the beginning of their names."""


def leaks() -> list[str]:
    """Return what is left, in words; empty if nothing is."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        gc.collect()  # a Kafka client closes when it is collected
        left = [line for look in _LOOKS for line in look()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def use_own_temporary_folder() -> None:
    """Give this process a folder for its temporary files, so that what is left there is its own.

    The name is short: sockets are made there, and their paths have a limit. Other accounts may use it as they may use
    the system's folder. TMPDIR is not set: it has a meaning for the programs that tests start.
    """
    if tempfile.tempdir is None or not Path(tempfile.tempdir).name.startswith(_PREFIX):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # pytest keeps its folders there
        tempfile.tempdir = tempfile.mkdtemp(prefix=_PREFIX)
        Path(tempfile.tempdir).chmod(0o1777)
        atexit.register(_remove, tempfile.tempdir, os.getpid())


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_files() -> list[str]:
    return [f"temporary folder {path}" for path in sorted(Path(tempfile.gettempdir()).glob("millrace*"))]


def _processes() -> list[str]:
    lines = []
    for child in psutil.Process().children(recursive=True):
        try:
            lines.append(f"process {child.pid}: {' '.join(child.cmdline())[:200]}")
        except psutil.NoSuchProcess:
            continue
    return lines


def _ports() -> list[str]:
    listening = [each for each in psutil.Process().net_connections("inet") if each.status == psutil.CONN_LISTEN]
    return [f"listening on port {each.laddr.port}" for each in listening]


def _kafka_clients() -> list[str]:
    clients = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            clients += (task / "comm").read_text() == "rdk:main\n"
    # A producer that is fenced in a call is never freed: confluent-kafka loses a reference to the exception.
    fenced = sum(isinstance(each, TransactionalProducer) for each in gc.get_objects())
    clients -= min(fenced, _MAX_FENCED) * 2  # its own, and that of its cluster
    return [f"{clients} Kafka clients"] if clients > 0 else []


def _threads() -> list[str]:
    return [
        f"thread {thread.name}"
        for thread in threading.enumerate()
        if not thread.daemon and not thread.name.startswith(_FOREIGN_THREADS)
    ]


_LOOKS: tuple[Callable[[], list[str]], ...] = (_processes, _ports, _kafka_clients, _threads, _temporary_files)
