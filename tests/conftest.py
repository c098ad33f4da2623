"""What the tests share: one real broker for the whole run, and the command line as a user calls it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.clients import topics
from millrace.clients.cluster import Cluster
from millrace.services.kafka import Kafka, Options

MILLRACE = Path(sys.executable).parent / "millrace"


@pytest.fixture(scope="session", autouse=True)
def signals_as_at_a_terminal() -> None:
    """Whoever runs the tests may ignore signals (nohup, a job in the background); what they start must not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker, started once."""
    service = Kafka(tmp_path_factory.mktemp("kafka"), Options(heap="384m"))
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="session")
def cluster(broker: Kafka) -> Cluster:
    """How to reach the broker."""
    return broker.cluster()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A new topic with three partitions."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    topics.create(cluster, name, 3)
    return name


class CommandLine:
    """The `millrace` program, run as a user runs it, in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def __call__(
        self, *arguments: str, stdin: str | bytes = b"", code: int = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; the exit code must be the expected one."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        ran = subprocess.run(
            [MILLRACE, *arguments],
            input=given,
            capture_output=True,
            cwd=self.folder,
            env=self.environment | environment,
            timeout=120,
            check=False,
        )
        done = subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())
        assert done.returncode == code, f"exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start it and leave it running."""
        return subprocess.Popen(
            [MILLRACE, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment | environment,
        )


@pytest.fixture
def offline_millrace(tmp_path: Path) -> CommandLine:
    """The command line with no cluster named."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_KAFKA")}
    return CommandLine(tmp_path, environment)


@pytest.fixture
def millrace(cluster: Cluster, offline_millrace: CommandLine) -> CommandLine:
    """The command line with the broker of the run as its cluster."""
    return CommandLine(offline_millrace.folder, offline_millrace.environment | {"MILLRACE_KAFKA": cluster.bootstrap})


@pytest.fixture
def set_environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Environment variables for the time of a test; None removes one."""

    def change(**variables: str | None) -> None:
        for name, value in variables.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return change
