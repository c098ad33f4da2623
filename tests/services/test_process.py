"""Child processes end when they should, and are told apart beyond doubt."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from millrace.errors import PortInUse, ServiceFailed
from millrace.services import process
from millrace.services.process import Child, Identity, free_port, port_is_free, require_free

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]


def gone(pid: int) -> bool:
    """Whether a process has ended, waiting for it a while."""
    try:
        psutil.Process(pid).wait(20)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def parent_that_starts(detach: bool, log: Path) -> subprocess.Popen[str]:
    """A process that starts a child, prints its pid, and waits."""
    program = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from millrace.services.process import Child
        child = Child("child", {SLEEPER!r}, Path({str(log)!r}), detach={detach})
        print(child.pid, flush=True)
        time.sleep(600)
    """)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_stops_and_keeps_its_output(tmp_path: Path) -> None:
    child = Child("child", [sys.executable, "-c", "print('hello')"], tmp_path / "log")
    child.wait(20)
    child.stop()
    assert child.output() == "hello\n"


def test_a_running_child_is_stopped(tmp_path: Path) -> None:
    child = Child("child", SLEEPER, tmp_path / "log")
    assert child.running()
    child.stop()
    assert gone(child.pid)


def test_a_child_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    child = Child("child", STUBBORN, tmp_path / "log", grace=0.2)
    child.stop()
    assert gone(child.pid)


def test_kill_is_immediate(tmp_path: Path) -> None:
    child = Child("child", STUBBORN, tmp_path / "log")
    child.kill()
    assert gone(child.pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ends_when_its_parent_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    with parent_that_starts(False, tmp_path / "log") as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(how)
    assert gone(pid)


def test_ends_when_even_the_guard_is_killed(tmp_path: Path) -> None:
    child = Child("child", SLEEPER, tmp_path / "log")
    os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
    assert gone(child.pid)
    child.stop()


def test_a_detached_child_outlives_its_parent(tmp_path: Path) -> None:
    with parent_that_starts(True, tmp_path / "log") as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    identity = Identity(pid, SLEEPER[-1])
    assert identity.process() is not None
    identity.stop()
    assert gone(pid)


def test_a_process_that_has_no_arguments_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux sets them at the end of exec, after the parent knows that it succeeded."""
    arguments = iter([[], [], ["millrace", "kafka"]])
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: next(arguments))
    assert Identity(os.getpid(), "kafka").process() is not None


def test_a_pid_that_was_used_again_is_another_process() -> None:
    argument = psutil.Process().cmdline()[-1]
    assert Identity(os.getpid(), argument).process() is not None
    assert Identity(os.getpid(), "server.properties of another cluster").process() is None


def test_a_program_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed):
        Child("child", [tmp_path / "nothing"], tmp_path / "log")


def test_a_failure_quotes_the_log(tmp_path: Path) -> None:
    child = Child("child", [sys.executable, "-c", "raise SystemExit('out of coffee')"], tmp_path / "log")
    child.wait(20)
    child.stop()
    assert "out of coffee" in str(child.failure("it failed").why)


def test_a_taken_port_names_its_owner() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not port_is_free(port)
        with pytest.raises(PortInUse) as caught:
            require_free(port)
    assert str(os.getpid()) in str(caught.value.why)


def test_a_free_port_is_free_and_stays_so_unless_somebody_names_it() -> None:
    for _ in range(50):
        require_free(port := free_port())
        assert port < 32_768  # from there on systems hand them out


def test_where_every_port_of_ours_is_taken_the_system_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken = server.getsockname()[1]
        monkeypatch.setattr(process, "_PORTS", [taken])
        require_free(port := free_port())
        assert port != taken
