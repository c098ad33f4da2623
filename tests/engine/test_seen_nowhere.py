"""Secrets that come in by every way there is, and are then looked for everywhere: nothing may show one."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.sync.client import connect

from conftest import MILLRACE, CommandLine
from millrace.clients.kafka import topics
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.services.process import free_port
from secure import Secured

PATIENCE = 120.0
PLANTED = {
    name: f"pl4nted-{name.lower()}-9f3c"
    for name in ("OPTION", "ADDRESS", "JDBC", "KEY", "FILE", "SETTING", "PYTHON", "ALERT", "RING")
}
YAML = """\
name: planted
sources:
  events: {{kafka: in, schema: "n int"}}
  rated:
    spark: rate
    rowsPerSecond: 1
    password: ${{OPTION}}
    url: jdbc:postgresql://host/db?user=me&password=${{JDBC}}
    endpoint: https://me:${{ADDRESS}}@host/
    truststore_password: ${{file:{file}}}
    remark: ${{file:{file}}}
sinks:
  - {{from: events, kafka: out}}
  - {{from: rated, spark: noop, api_key: "${{KEY}}"}}
"""
PYTHON = """\
import millrace as mr

said = mr.secret("PYTHON")
raises = mr.Pipeline("raises")
raises.source("events", mr.kafka("in", schema="n int", config={"client.id": said}))


@raises.table
def broken(events):
    raise ValueError(f"{said} at https://me:unheard@host")


raises.sink("broken", mr.console())
"""


@pytest.fixture
def told(safe: Secured, tmp_path: Path, offline_millrace: CommandLine) -> dict[str, str]:
    """The environment of the commands."""
    cluster = safe.cluster("SCRAM-SHA-512")
    secret, config = tmp_path / "secret", tmp_path / "client.properties"
    secret.write_text(PLANTED["FILE"])
    config.write_text("".join(f"{name}={value}\n" for name, value in cluster.options.items()))
    for path in (secret, config):
        path.chmod(0o600)
    (tmp_path / "planted.yaml").write_text(YAML.format(file=secret))
    (tmp_path / "raises.py").write_text(PYTHON)
    return {
        **offline_millrace.environment,
        **PLANTED,
        "MILLRACE_KAFKA": cluster.bootstrap,
        "MILLRACE_KAFKA_CONFIG": str(config),
        "MILLRACE_ALERT": f"http://127.0.0.1:{free_port()}/?token={PLANTED['ALERT']}",
        "MILLRACE_CASSANDRA": f"127.0.0.1:{free_port()}",
        "MILLRACE_CASSANDRA_USER": "ann",
        "MILLRACE_CASSANDRA_PASSWORD": PLANTED["RING"],
    }


def command(told: dict[str, str], folder: Path, *arguments: str) -> bytes:
    """All that a command prints."""
    ran = subprocess.run(
        [MILLRACE, "--verbose", *arguments], cwd=folder, env=told, capture_output=True, timeout=PATIENCE, check=False
    )
    return ran.stdout + ran.stderr


@pytest.mark.long
def test_commands_show_none(told: dict[str, str], safe: Secured, tmp_path: Path) -> None:
    given = ("--set", "spark.hadoop.fs.s3a.secret.key=${SETTING}")
    seen = {
        "check": command(told, tmp_path, "check", "planted.yaml", "--json"),
        "plan": command(told, tmp_path, "plan", "planted.yaml", "--explain", *given),
        "plan as json": command(told, tmp_path, "plan", "planted.yaml", "--json", *given),
        "settings": command(told, tmp_path, "settings"),
        "a driver that finds nobody": command(told, tmp_path, "cassandra", "status"),
        "a function that tells": command(told, tmp_path, "run", "raises.py", "--until-caught-up", "--no-dashboard"),
    }
    assert b"***" in seen["plan"]
    assert b"ValueError" in seen["a function that tells"]
    require_unseen(safe, seen)
    assert b"unheard" not in seen["a function that tells"]


@pytest.mark.long
def test_a_run_shows_none(told: dict[str, str], safe: Secured, tmp_path: Path) -> None:
    cluster = safe.cluster("PLAIN")
    topics.ensure(cluster, "in", 1)
    producer = Producer(cluster, "in")
    producer.send([Record(b'{"n": 1}'), Record(b"nonsense")])
    producer.close()
    page, own = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    log = tmp_path / "events"
    log.mkdir()
    given = {
        "spark.ui.enabled": "true",
        "spark.ui.port": own.rpartition(":")[2],
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.hadoop.fs.s3a.secret.key": "${SETTING}",
    }
    arguments = [f for key, value in given.items() for f in ("--set", f"{key}={value}")]
    with (tmp_path / "out.txt").open("wb") as printed, (tmp_path / "err.txt").open("wb") as said:
        ran = subprocess.Popen(
            [MILLRACE, "--verbose", "run", "planted.yaml", "--port", page.rpartition(":")[2], *arguments],
            cwd=tmp_path,
            env=told,
            stdout=printed,
            stderr=said,
        )
        try:
            seen = watched(ran, page, own)
        finally:
            ran.send_signal(signal.SIGTERM)
            ran.wait(PATIENCE)
    assert ran.returncode == 0, (tmp_path / "err.txt").read_text()
    assert [path for path in log.rglob("*") if path.is_file()]
    hidden_in = {tmp_path / "secret", tmp_path / "client.properties"}
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path not in hidden_in]
    require_unseen(safe, seen | {str(path.relative_to(tmp_path)): path.read_bytes() for path in files})


def watched(ran: subprocess.Popen[bytes], page: str, own: str) -> dict[str, bytes]:
    """Everything that can be seen of a run from outside, once its queries have worked."""
    deadline = time.monotonic() + PATIENCE
    while not done(page):
        assert ran.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    me = psutil.Process(ran.pid)
    running = [one for one in (me, *me.children(recursive=True)) if one.status() != psutil.STATUS_ZOMBIE]
    seen = {f"command {one.pid}": " ".join(one.cmdline()).encode() for one in running}
    ours = ("", "api/pipeline", "api/state", "api/topics", "api/dead", "api/queries/events", "metrics", "healthz")
    theirs = ("environment/", "jobs/", "stages/", "SQL/", "StreamingQuery/", "executors/")
    seen |= {f"page {path}": ask(f"{page}/{path}") for path in ours}
    seen |= {f"Spark's page {path}": ask(f"{own}/{path}") for path in theirs}
    application = httpx.get(f"{own}/api/v1/applications", timeout=60).json()[0]["id"]
    for path in ("environment", "sql?details=true&planDescription=true&length=100", "jobs"):
        seen[f"Spark's API {path}"] = ask(f"{own}/api/v1/applications/{application}/{path}")
    for number in range(8):
        seen[f"Spark's page SQL {number}"] = ask(f"{own}/SQL/execution/?id={number}")
    with connect(f"{page.replace('http', 'ws')}/ws", max_size=None) as socket:
        hello = str(socket.recv(60))
        socket.send('{"type": "subscribe", "channels": ["state", "events"]}')
        seen["the WebSocket"] = (hello + str(socket.recv(60))).encode()
    assert b"rate" in seen["page api/pipeline"]
    assert b"fs.s3a" in seen["Spark's API environment"]
    return seen


def done(page: str) -> bool:
    """Whether every query has done a batch."""
    try:
        told = httpx.get(f"{page}/api/state", timeout=60).json()
    except httpx.TransportError:
        return False
    queries = told.get("queries", ())
    return len(queries) >= 2 and all(one["batches"] for one in queries)


def ask(url: str) -> bytes:
    return httpx.get(url, timeout=60, follow_redirects=True).content


def require_unseen(safe: Secured, seen: dict[str, bytes]) -> None:
    """No secret is in anything."""
    password = safe.kafka.cluster().options["sasl.password"]
    found = [
        (where, name)
        for where, text in seen.items()
        for name, value in {**PLANTED, "KAFKA": password}.items()
        if value.encode() in text
    ]
    assert found == []
