"""Tables of the forms `latest` and `top`, and functions of the user, from Kafka to Kafka, exactly once and again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import committed
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.errors import CheckpointIncompatible
from millrace.telemetry.query_status import RunStatus

pytestmark = pytest.mark.long
Run = Callable[..., RunStatus]

UDF = """
import pyarrow as pa
import pyarrow.compute as pc

import millrace as mr


def cents(price: float | None) -> int | None:
    return None if price is None else round(price * 100)


@mr.arrow_udf("string")
def symbol(name: pa.Array) -> pa.Array:
    return pc.utf8_upper(name)
"""
PIPELINE = """
name: forms
functions: ./udf.py
sources:
  quotes: {kafka: TOPIC, schema: "name string, price double, n int, labels map<string, string>"}
tables:
  typed: SELECT symbol(name) AS symbol, cents(price) AS cents, n, labels FROM quotes
  newest:
    latest: {from: typed, by: symbol, order: n}
  dearest:
    top: {from: typed, n: 2, by: symbol, order: "cents DESC, n DESC", rank: place}
sinks:
  - {from: newest, kafka: TOPIC-newest, key: symbol, mode: update}
  - {from: dearest, kafka: TOPIC-dearest, key: [symbol, place], mode: update}
"""


def send(cluster: Cluster, topic: str, *rows: tuple[str, float | None, int | None]) -> None:
    """Send quotes: name, price, number."""
    producer = Producer(cluster, topic)
    for name, price, n in rows:
        quote = {"name": name, "price": price, "n": n, "labels": {"n": f"{n}"}}
        producer.send([Record(json.dumps(quote).encode())])
    producer.close()


def newest_by_key(cluster: Cluster, topic: str) -> dict[str, Any]:
    """What a compacted topic holds: the last value of each key."""
    values = {(one.key() or b"").decode(): json.loads(one.value() or b"{}") for one in committed(cluster, topic)}
    return dict(sorted(values.items()))


def test_they_follow_a_topic_over_two_runs(cluster: Cluster, topic: str, run_pipeline: Run, tmp_path: Path) -> None:
    (tmp_path / "udf.py").write_text(UDF)
    file, state = tmp_path / "forms.yaml", tmp_path / "state"
    file.write_text(PIPELINE.replace("TOPIC", topic))
    send(cluster, topic, ("a", 1.5, 1), ("a", 2.5, 3), ("a", 3.5, 2), ("b", None, None))
    run_pipeline(file, state)
    newest = newest_by_key(cluster, f"{topic}-newest")
    assert newest["A"] == {"symbol": "A", "cents": 250, "n": 3, "labels": {"n": "3"}}
    assert newest["B"]["symbol"] == "B"
    send(cluster, topic, ("a", 9.0, 0), ("a", 3.5, 5), ("b", 0.5, 1))
    run_pipeline(file, state)
    newest = newest_by_key(cluster, f"{topic}-newest")
    assert (newest["A"]["n"], newest["B"]["n"]) == (5, 1)
    dearest = newest_by_key(cluster, f"{topic}-dearest").values()
    found = sorted((row["symbol"], row["place"], row.get("cents")) for row in dearest if row["symbol"] == "A")
    assert found == [("A", 1, 900), ("A", 2, 350)]
    file.write_text(PIPELINE.replace("TOPIC", topic).replace("order: n}", "order: cents}"))
    with pytest.raises(CheckpointIncompatible) as refused:
        run_pipeline(file, state)
    assert "order changed" in f"{refused.value.message} {refused.value.why}"
