"""Every kind of lock on Kafka's door, for every client that goes through it; and one sentence when it stays shut."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from conftest import RunPipeline, committed
from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer_groups import list_groups
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.engine.failures.explain import explain
from millrace.errors import AccessDenied, FileUnusable, KafkaUnreachable, MillraceError
from millrace.services.disk_usage import sizes_by_tool
from millrace.services.process import free_port
from millrace.settings import BULK_READER
from secure import Secured

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "MUTUAL")


def no_cassandra() -> Cassandra:
    raise AssertionError("nobody asked for it")


@pytest.fixture
def run_on(
    spark: SparkSession, tmp_path: Path, set_environment: Callable[..., None]
) -> Callable[[Cluster], RunPipeline]:
    """Runs pipelines on a cluster of one's choice."""
    return lambda cluster: RunPipeline(spark, cluster, tmp_path / "state", set_environment, no_cassandra)


def copied(topic: str) -> mr.Pipeline:
    pipeline = mr.Pipeline(f"copy-{topic}")
    pipeline.source("events", mr.kafka(topic, schema="n int"))
    pipeline.sql("copied", "SELECT n FROM events")
    pipeline.sink("copied", mr.kafka(f"{topic}-out"))
    return pipeline


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism", [pytest.param(one, marks=[pytest.mark.chaos] * (one == "SCRAM-SHA-256")) for one in MECHANISMS]
)
@pytest.mark.usefixtures("either_source")
def test_every_client_is_let_in(
    safe: Secured, mechanism: str, run_on: Callable[[Cluster], RunPipeline], tmp_path: Path
) -> None:
    cluster, topic = safe.cluster(mechanism), f"in-{mechanism.lower()}-{BULK_READER.value()}"
    topics.create(cluster, topic, 1)
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"n": 1}'), Record(b"nonsense"), Record(b'{"n": 2}')])
    producer.close()
    pipeline = copied(topic)
    run_on(cluster)(pipeline, tmp_path / "kept")
    # Exactly once, dead letters and the group that Kafka's tools see: three clients of two kinds.
    assert [json.loads(one.value() or b"") for one in committed(cluster, f"{topic}-out")] == [{"n": 1}, {"n": 2}]
    assert [one.value() for one in committed(cluster, f"{topic}.dead")] == [b"nonsense"]
    assert [one.lag for one in list_groups(cluster) if one.name.startswith(f"millrace.{pipeline.name}.")] == [0]
    assert not [text for text in texts(tmp_path) for secret in secrets_of(cluster) if secret in text]


def secrets_of(cluster: Cluster) -> list[bytes]:
    return [cluster.options[name].encode() for name in cluster.options if name.endswith(("password", "client.secret"))]


def texts(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER", "MUTUAL"])
def test_kafkas_own_tools_are_let_in(safe: Secured, mechanism: str) -> None:
    cluster = safe.cluster(mechanism)
    topics.ensure(cluster, "measured", 1)
    assert sizes_by_tool(cluster, ["measured"]) == {("measured", 0): 0}


def without(cluster: Cluster, *names: str, **more: str) -> Cluster:
    """Another client of the same cluster."""
    kept = {name: value for name, value in cluster.options.items() if name not in names}
    return replace(cluster, options=kept | {name.replace("_", "."): value for name, value in more.items()})


def wrong(safe: Secured, what: str) -> Cluster:
    """A client that cannot be let in."""
    plain, token, mutual = (safe.cluster(one) for one in ("PLAIN", "OAUTHBEARER", "MUTUAL"))
    return {
        "password": lambda: without(plain, sasl_password="guess-1234"),
        "user": lambda: without(safe.cluster("SCRAM-SHA-512"), sasl_username="nobody"),
        "authority": lambda: without(plain, ssl_ca_location=str(safe.authority.certificate)),
        "expired": lambda: safe.at("OLD"),
        "host": lambda: safe.at("ELSEWHERE"),
        "secret": lambda: without(token, **{"sasl.oauthbearer.client.secret": "guess-1234"}),
        "no endpoint": lambda: without(
            token, **{"sasl.oauthbearer.token.endpoint.url": f"https://127.0.0.1:{free_port()}/token"}
        ),
        "no certificate": lambda: without(mutual, "ssl.certificate.location", "ssl.key.location"),
        "no TLS there": lambda: Cluster(safe.plain, plain.options, 5.0),
        "no TLS here": lambda: Cluster(plain.bootstrap, {}, 5.0),
    }[what]()


SAID = {
    "password": "does not let user 'millrace' in",
    "user": "does not let user 'nobody' in",
    "authority": "of an authority that is not trusted",
    "expired": "is not valid now",
    "host": "is that of another host",
    "secret": "no token for client 'reporter'",
    "no endpoint": "no token for client 'reporter'",
    "no certificate": "wants a certificate of ours",
    "no TLS there": "speaks no TLS",
    "no TLS here": "wants TLS",
}


@pytest.mark.long
@pytest.mark.parametrize("what", SAID)
def test_who_is_not_let_in_is_told_why_in_one_sentence(safe: Secured, what: str) -> None:
    cluster = wrong(safe, what)
    with pytest.raises(KafkaUnreachable if what == "no endpoint" else AccessDenied) as raised:
        cluster.connect()
    require_sentence(raised.value, what)


def require_sentence(error: MillraceError, what: str) -> None:
    assert SAID[what] in error.message
    assert error.hint
    said = "\n".join(error.lines())
    assert len(error.lines()) <= 3
    assert not [word for word in ("guess-1234", "error:0A", "Exception", "org.apache", "(after ") if word in said], said


@pytest.mark.parametrize("what", ["password", "no TLS here"])
def test_a_pipeline_is_told_the_same_before_spark_is_asked(
    safe: Secured, what: str, run_on: Callable[[Cluster], RunPipeline]
) -> None:
    with pytest.raises(AccessDenied) as raised:
        run_on(wrong(safe, what))(copied("never"))
    require_sentence(raised.value, what)


@pytest.mark.long
@pytest.mark.parametrize(
    "what",
    [
        "password",
        "authority",
        "secret",
        *(pytest.param(one, marks=pytest.mark.chaos) for one in ("user", "expired", "host", "no certificate")),
    ],
)
def test_what_sparks_own_client_says_becomes_the_same_sentence(safe: Secured, what: str, spark: SparkSession) -> None:
    cluster = wrong(safe, what)
    topics.ensure(safe.cluster("PLAIN"), "asked", 1)
    options = {f"kafka.{name}": value for name, value in cluster.java_properties().items()}
    reader = spark.read.format("kafka").options(**options).option("fetchOffset.retryIntervalMs", "10")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever Spark makes of it
        reader.option("kafka.bootstrap.servers", cluster.bootstrap).option("subscribe", "asked").load().count()
    error = explain(raised.value, cluster=cluster)
    assert isinstance(error, AccessDenied)
    require_sentence(error, what)


def test_certificates_that_are_not_there_or_none(safe: Secured, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("no certificate\n")
    for path in (tmp_path / "gone.pem", tmp_path / "none.pem", tmp_path):
        with pytest.raises(FileUnusable) as raised:
            without(safe.cluster("PLAIN"), ssl_ca_location=str(path)).connect()
        assert str(path) in raised.value.message
