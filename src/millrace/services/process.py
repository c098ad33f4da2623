"""Child processes that never outlive their purpose: started, watched and stopped by pid."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from millrace.errors import PortInUse, ServiceFailed
from millrace.services import parent_watchdog

_FRAME = re.compile(r"\s+(at |\.\.\. \d+ more)")
"""A line of a Java stack trace."""
STOP_GRACE = 30.0
"""Seconds that a process may take to stop before it is killed."""
_EXEC_S = 1.0
"""How long a process that has just been started may have no arguments: Linux sets them at the end of exec."""
_POLL_INTERVAL_S = 0.005
_PORTS = range(20_000, 30_000)
"""Below those that systems assign by default (Linux from 32768), and those of Kubernetes' nodes.
Among these a server that is away for a moment may find its port taken, and its clients talk to a stranger meanwhile."""
_chance = random.SystemRandom()
"""Not of a seed that two processes may share."""


@dataclass(frozen=True)
class Identity:
    """A process, identified by its pid and an argument of its command: the pid may be used again.

    Not by its start time: that is counted from a boot time which moves when the clock is set.
    """

    pid: int
    argument: str

    @classmethod
    def of(cls, content: dict[str, Any] | None) -> Identity | None:
        """A process from the content of a file."""
        return cls(**content) if content else None

    def process(self) -> psutil.Process | None:
        """The process if it still runs."""
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.pid)
            deadline = time.monotonic() + _EXEC_S
            while not (arguments := process.cmdline()) and time.monotonic() < deadline:
                time.sleep(_POLL_INTERVAL_S)
            return process if self.argument in arguments else None
        return None

    def stop(self, grace: float = STOP_GRACE) -> None:
        """Ask it to end and wait; kill it after the grace."""
        process = self.process()
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            try:
                process.wait(grace)
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(grace)


class Child:
    """A program with its output in a log file.

    Unless detached, it is run by a guard and ends when this process does, even when this process is killed.
    A detached one continues by itself; its identity is enough to stop it later.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        detach: bool = False,
        keep_fds: Sequence[int] = (),
        grace: float = STOP_GRACE,
    ) -> None:
        self.name = name
        self.log = log
        self.grace = grace
        arguments = [str(part) for part in command]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self._log_start = out.tell()
            self._popen = subprocess.Popen(
                arguments if detach else with_parent_watchdog(arguments, grace),
                stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
                stdout=out if detach else subprocess.PIPE,
                stderr=out,
                pass_fds=keep_fds,
                start_new_session=True,  # Ctrl-C in the terminal is ours to act on, in order
            )
        self.identity = Identity(self._popen.pid if detach else self._pid_from_watchdog(), arguments[-1])

    @property
    def pid(self) -> int:
        """The program's own pid."""
        return self.identity.pid

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._popen.poll() is None

    def was_stopped(self) -> bool:
        """Whether it ended because it was asked to, by whomever."""
        return self._popen.poll() in (0, -signal.SIGTERM, 128 + signal.SIGTERM)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        return self._popen.wait(timeout)

    def stop(self) -> None:
        """Ask it to end, wait, and kill it after the grace."""
        if self._popen.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
            self._popen.wait(self.grace + 10)
            self._close_pipes()
        else:
            self.identity.stop(self.grace)
            self._popen.wait(self.grace)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._popen.wait(self.grace)
        self._close_pipes()

    def output(self) -> str:
        """What it has written since it was started."""
        with self.log.open("rb") as written:
            written.seek(self._log_start)
            return written.read().decode("utf-8", "replace")

    def failure(self, what: str, hint: str | None = None) -> ServiceFailed:
        """An error that quotes the end of the log."""
        code = self._popen.poll()
        state = "still runs" if code is None else f"ended with exit code {code}"
        why = f"{self.name} {state}{quote_output(self.output())}"
        return ServiceFailed(what, why=why, hint=hint or f"the whole log is in {self.log}")

    def _pid_from_watchdog(self) -> int:
        assert self._popen.stdout is not None  # noqa: S101 - it was opened as a pipe
        line = self._popen.stdout.readline()
        if not line:
            self._popen.wait()
            self._close_pipes()
            raise ServiceFailed(f"{self.name} could not be started", hint=f"the log is in {self.log}")
        return int(line)

    def _close_pipes(self) -> None:
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def with_parent_watchdog(command: Sequence[str | Path], grace: float = STOP_GRACE) -> list[str]:
    """A command that ends when the writing end of its standard input is closed; its output is standard error."""
    return [sys.executable, "-I", "-S", parent_watchdog.__file__, str(grace), *map(str, command)]


def quote_output(output: str) -> str:
    """The last lines of a program's output that say something, as a block below an error's reason."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip() and not _FRAME.match(line)]
    return "".join(f"\n       | {line[:200]}" for line in lines[-6:])


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now, and that the system gives to nobody by itself."""
    tries = (_chance.choice(_PORTS) for _ in range(100))
    if port := next(filter(port_is_free, tries), None):
        return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def preferred_or_free_port(preferred: int | None, taken: set[int]) -> int:
    """The port of last time if it is still free, so that addresses stay the same; else a free one. It is taken then."""
    port = preferred if preferred and preferred not in taken and port_is_free(preferred) else free_port()
    while port in taken:
        port = free_port()
    taken.add(port)
    return port


def port_is_free(port: int) -> bool:
    """Whether a server could listen on the port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def require_free(port: int) -> None:
    """Raise PortInUse if another process has the port, with its name if the system has it."""
    if not port_is_free(port):
        raise PortInUse(
            f"port {port} of 127.0.0.1 is in use",
            why=_listener(port),
            hint="stop that process, choose another port, or leave the choice out to get a free one",
        )


def _listener(port: int) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                name = psutil.Process(connection.pid).name() if connection.pid else "a process of another user"
                return f"{name} (pid {connection.pid}) listens there"
    return None
