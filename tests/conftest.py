"""What the tests share: one real broker for the whole run, and the command line as a user calls it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec
from hypothesis import settings as hypothesis_settings

from command_server import COMMANDS, MILLRACE
from emulator import Emulator
from leaks import leaks, use_own_temporary_folder
from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka import offsets, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import receive
from millrace.clients.pool import close_pools
from millrace.services import cassandra as cassandra_service
from millrace.services.kafka import ClusterLayout, KafkaCluster, KafkaClusterOptions
from scheduling import BalancedScheduling
from shared import run_folder, started_once, stop_what_was_shared
from standalone import Standalone
from where import WherePlugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.workermanage import WorkerController

    from millrace.pipeline.loading.python import Pipeline as Written
    from millrace.pipeline.model import PipelineDef
    from millrace.telemetry.channels import Channels
    from millrace.telemetry.query_status import RunStatus

# Every JVM of the tests lives shortly: code that is compiled quickly, not well, takes half of the time. The space for
# that code is small by default: a Spark that has run some hundred queries would end for want of it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


use_own_temporary_folder()

# How long an example takes says nothing on a machine that does other things too.
hypothesis_settings.register_profile("millrace", deadline=None)
hypothesis_settings.load_profile("millrace")


@pytest.fixture(scope="session", autouse=True)
def signals_as_at_a_terminal() -> None:
    """Whoever runs the tests may ignore signals (nohup, a job in the background); what they start must not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project's tests."""
    group = parser.getgroup("millrace")
    group.addoption("--where", action="store_true", help="report what the tests wait for, in all and by file")
    group.addoption("--record-durations", action="store_true", help="with --where: store how long each file takes")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where the time goes, if asked to."""
    if config.getoption("where"):
        config.pluginmanager.register(WherePlugin())


def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """A call to Spark that the time limit cut in two: its answer, still to come, is not for the test after it."""
    if call.excinfo and call.excinfo.errisinstance(pytest.fail.Exception) and "pyspark" in sys.modules:
        from pyspark import SparkContext

        gateway = SparkContext._gateway  # type: ignore[attr-defined]
        line = gateway and gateway._gateway_client.get_thread_connection()
        if line:
            line.close(reset=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what is left behind."""
    if _LEAKS:
        terminalreporter.section("left behind by the tests")
        for leak in _LEAKS:
            terminalreporter.write_line(leak)


_LEAKS: list[str] = []
"""What the processes of the run have left behind; in the process that a person sees."""


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop what this process started for all, when nobody uses it any more, and look for what is left."""
    COMMANDS.stop()
    stop_what_was_shared()
    close_pools()
    report: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if report is not None:
        report["leaks"] = leaks()
    elif not session.config.getoption("numprocesses", None):
        _LEAKS.extend(leaks())
    if _LEAKS and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Take over what a process of the run has left behind."""
    _LEAKS.extend(f"{node.gateway.id}: {leak}" for leak in getattr(node, "workeroutput", {}).get("leaks", ()))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> BalancedScheduling:
    """How `pytest -n 2` deals out the tests."""
    return BalancedScheduling(config, log)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker for the whole run."""
    folder = run_folder(tmp_path_factory, "kafka")
    service = KafkaCluster(folder / "data", KafkaClusterOptions(heap="384m"))
    with started_once(folder, service.start, service.stop):
        service.layout = service.layout or ClusterLayout.load(service.folder)
        yield service


@pytest.fixture(scope="session")
def cluster(broker: KafkaCluster) -> Cluster:
    """How to reach the broker."""
    return broker.cluster()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A new topic with three partitions."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    topics.create(cluster, name, 3)
    return name


@pytest.fixture
def lane(cluster: Cluster) -> str:
    """A new topic with one partition, so that its records have one order."""
    name = f"lane-{uuid.uuid4().hex[:12]}"
    topics.create(cluster, name, 1)
    return name


def committed(cluster: Cluster, topic: str) -> list[Message]:
    """Every record of a topic that belongs to no open and no aborted transaction, when the last one is decided."""
    own = {"group.id": "none", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**cluster.config(), **own})
    places = [TopicPartition(topic, number, 0) for number in cluster.connect().topics[topic].partitions]
    ends = offsets.list_offsets(cluster, places, OffsetSpec.latest())
    consumer.assign(places)
    found: list[Message] = []
    try:
        while ends:
            for one in receive(consumer, 10_000, 0.2):
                place = (one.topic() or "", one.partition() or 0)
                if one.error() is None:
                    found.append(one)
                elif (one.offset() or 0) >= ends.get(place, 0):  # the end; before it, a transaction is undecided
                    ends.pop(place, None)
    finally:
        consumer.close()
    return found


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """One Cassandra for the whole run."""
    folder = run_folder(tmp_path_factory, "cassandra")
    service = cassandra_service.CassandraService(folder / "data", cassandra_service.CassandraOptions(heap="256m"))
    with started_once(folder, service.start, service.stop):
        service.layout = service.layout or cassandra_service.CassandraNode.load(service.folder)
        client = service.client()
        yield client
        client.close()


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    """Kinesis and DynamoDB, started once."""
    service = Emulator()
    yield service
    service.stop()


@pytest.fixture
def keyspace(cassandra: Cassandra) -> Iterator[str]:
    """A new keyspace."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    copies = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    cassandra.execute(f"CREATE KEYSPACE {name} WITH replication = {copies} AND durable_writes = false")
    yield name
    cassandra.execute(f"DROP KEYSPACE {name}")


@pytest.fixture(scope="session")
def quick_starts() -> None:
    """The archive of Spark's classes, which the first command on a machine makes and talks about."""
    from millrace.engine.session.class_archive import ensure_class_archive

    ensure_class_archive(lambda _: None)


@pytest.fixture(scope="session")
def spark(quick_starts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark, started once."""
    from millrace.engine.session.session import close_session, open_session

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = open_session("tests", master=None, settings={}, log=log, forks_workers=True)
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def millrace_spark(spark: SparkSession) -> SparkSession:
    """The Spark of the test kit is that of all tests."""
    return spark


class RunPipeline:
    """Runs pipelines on the Spark and the broker of the tests, in this process."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: Cluster,
        state: Path,
        set_environment: Callable[..., None],
        cassandra: Callable[[], Cassandra],
    ) -> None:
        self.printed: list[str] = []
        """What the console sinks of the last run printed, a text each time."""
        self._spark, self._cluster, self._state = spark, cluster, state
        self._set_environment = set_environment
        self._cassandra = cassandra
        self._runs = 0

    def __call__(
        self,
        pipeline: str | Path | PipelineDef | Written,
        state: Path | None = None,
        *,
        until: Callable[[], bool] | None = None,
        channels: Channels | None = None,
        say: Callable[[str], None] = lambda _: None,
        flush: bool = False,
        accept: tuple[str, ...] = (),
        **environment: str,
    ) -> RunStatus:
        """Run until everything that is there is done, or (for what never says so) until a condition holds.

        The pipeline is a file, or what one defines; `environment` is what the file may ask for. Without `state` each
        run begins anew. With `channels` its panels are shown there. `flush` and `accept` are those of `millrace run`.
        """
        from millrace.connectors.base.api import RunContext
        from millrace.connectors.base.registry import CONNECTORS
        from millrace.engine.run import RunSettings, run
        from millrace.pipeline.plan import make_plan, with_letters
        from millrace.telemetry.query_status import RunStatus

        self._runs += 1
        self.printed = []
        self._set_environment(**environment)
        settings = RunSettings(
            RunContext(
                state or self._state / str(self._runs),
                lambda: self._cluster,
                print_line=self.printed.append,
                notify=say,
                session=self._spark,
                cassandra=self._cassandra,
                accept=accept,
            ),
            channels=channels,
            flush=flush,
        )
        run_status, stop = RunStatus(), threading.Event()
        if until:
            threading.Thread(target=_stop_when, args=(until, stop), daemon=True).start()
        try:
            plan = make_plan(_model(pipeline), once=until is None, panels=channels is not None)
            plan = with_letters(plan, CONNECTORS)
            run(plan, settings, run_status, stop)
        finally:
            stop.set()
        return run_status


def _model(pipeline: str | Path | PipelineDef | Written) -> PipelineDef:
    from millrace.pipeline.loading import load
    from millrace.pipeline.loading.python import Pipeline as Written

    if isinstance(pipeline, str | Path):
        return load(str(pipeline))
    return pipeline.model() if isinstance(pipeline, Written) else pipeline


def _stop_when(condition: Callable[[], bool], stop: threading.Event) -> None:
    while not stop.is_set() and not condition():
        time.sleep(0.02)
    stop.set()


@pytest.fixture
def run_pipeline(
    spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    set_environment: Callable[..., None],
    request: pytest.FixtureRequest,
) -> RunPipeline:
    """`run_pipeline(FILE)` does what `millrace run FILE --until-caught-up` does, in this process."""

    def cassandra() -> Cassandra:  # started by the first pipeline that needs it
        found: Cassandra = request.getfixturevalue("cassandra")
        return found

    return RunPipeline(spark, cluster, tmp_path / "state", set_environment, cassandra)


class CommandLine:
    """The `millrace` program, run as a user runs it, in a folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment

    def __call__(
        self, *arguments: str, stdin: str | bytes = b"", code: int | None = 0, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; the exit code must be the expected one, if one is."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        status, out, err = COMMANDS.run(list(arguments), given, self.folder, self.environment | environment, 120)
        done = subprocess.CompletedProcess([MILLRACE, *arguments], status, out.decode(), err.decode())
        assert code in (None, done.returncode), f"exit code {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
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
def offline_millrace(quick_starts: None, tmp_path: Path) -> CommandLine:
    """The command line with no cluster named."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MILLRACE_KAFKA", "MILLRACE_CASSANDRA"))
    }
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


@pytest.fixture(scope="module")
def standalone(quick_starts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A Spark cluster: a master and two workers, of which a test may kill one and add another."""
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    yield cluster
    cluster.stop()
