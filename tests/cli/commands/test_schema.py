"""`millrace schema` as a user meets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record

Run = Callable[..., Any]


def test_one_broken_record_is_told_and_does_not_spoil_it(run: Run, cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"n":%d}' % number) for number in range(30)])
    producer.send([Record(b'{"n":"\x1b'), Record(b'{"n":"many"}')])
    producer.close()
    ran = run("schema", topic)
    assert ran.out == "n bigint\n"
    assert "from 32 records" in ran.err
    assert "2 of them do not fit" in ran.err
    assert "1 × column n: wrong type: expected bigint, got string" in ran.err
    assert "\x1b" not in ran.err


def test_keys_in_another_case_are_told(run: Run, cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster, topic)
    producer.send([Record(b'{"id":1,"by":{"name":"a"}}')] * 3 + [Record(b'{"ID":1,"by":{"Name":"a"}}')])
    producer.close()
    ran = run("schema", topic)
    assert "1 record of them: key 'ID' is not column 'id'" in ran.err or "key 'id' is not column 'ID'" in ran.err
    assert "'by.Name'" in ran.err


def test_an_empty_topic(run: Run, topic: str) -> None:
    assert "input.invalid" in run("schema", topic, code=2).err
