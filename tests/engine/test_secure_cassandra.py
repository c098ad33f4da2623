"""A Cassandra with TLS and passwords, for its driver and for pipelines; and one sentence when it stays shut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millrace as mr
from conftest import RunPipeline
from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.connectors.memory import MEMORY
from millrace.errors import CassandraDenied
from millrace.services.cassandra import CassandraOptions, CassandraService

pytestmark = pytest.mark.chaos  # another Cassandra is a long start


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """One with TLS and passwords."""
    with CassandraService(tmp_path_factory.mktemp("locked"), CassandraOptions(heap="256m", secure=True)) as door:
        yield door


def test_a_secure_one_lets_us_in_and_nobody_else(locked: Cassandra) -> None:
    assert locked.execute("SELECT role FROM system_auth.roles") == [("millrace",)]
    assert "password" not in repr(locked)
    for wrong in ({"password": "guess"}, {"user": "cassandra", "password": "cassandra"}):
        with pytest.raises(CassandraDenied) as caught:
            replace(locked, options={**locked.options, **wrong}).session()
        assert locked.options["password"] not in str(caught.value.lines())
        assert len(caught.value.lines()) <= 3
    for missing in (["tls.ca"], ["user", "password"]):
        options = {key: value for key, value in locked.options.items() if key not in missing} | {"tls": "yes"}
        with pytest.raises(CassandraDenied):
            replace(locked, options=options).session()


@pytest.fixture
def run_with(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, set_environment: Callable[..., None]
) -> Callable[[Cassandra], RunPipeline]:
    """Runs pipelines with a Cassandra of one's choice."""
    return lambda door: RunPipeline(spark, cluster, tmp_path / "state", set_environment, lambda: door)


def test_rows_go_in_and_come_out(
    locked: Cassandra, cluster: Cluster, topic: str, run_with: Callable[[Cassandra], RunPipeline]
) -> None:
    copies = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    locked.execute(f"CREATE KEYSPACE IF NOT EXISTS vault WITH replication = {copies}")
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"k": "a", "n": 1}'), Record(b'{"k": "b", "n": 2}')])
    producer.close()
    run = run_with(locked)
    run(written(topic))
    assert sorted(locked.execute("SELECT k, n FROM vault.rows")) == [("a", 1), ("b", 2)]
    run(joined(topic))
    found = MEMORY.table("joined").to_pylist()
    assert sorted((row["k"], row["n"]) for row in found) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("wrong", [{"password": "guess-1234"}, {"tls.ca": ""}])
def test_who_is_not_let_in_is_told_so_in_one_sentence(
    locked: Cassandra, topic: str, run_with: Callable[[Cassandra], RunPipeline], wrong: dict[str, str]
) -> None:
    options = {name: value for name, value in {**locked.options, "tls": "yes", **wrong}.items() if value}
    with pytest.raises(CassandraDenied) as raised:
        run_with(replace(locked, options=options))(written(topic))
    assert len(raised.value.lines()) <= 3
    assert "guess-1234" not in "".join(raised.value.lines())


def written(topic: str) -> mr.Pipeline:
    pipeline = mr.Pipeline("writes")
    pipeline.source("source", mr.kafka(topic, schema="k string, n int"))
    pipeline.sink("source", mr.cassandra("vault.rows", create=True, key="k"))
    return pipeline


def joined(topic: str) -> mr.Pipeline:
    pipeline = mr.Pipeline("reads")
    pipeline.source("source", mr.kafka(topic, schema="k string"))
    pipeline.source("kept", mr.cassandra("vault.rows"), static=True)
    pipeline.sql("joined", "SELECT source.k, kept.n FROM source JOIN kept ON source.k = kept.k")
    pipeline.sink("joined", mr.memory())
    return pipeline
