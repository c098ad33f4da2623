"""`millrace kafka groups` as a user meets it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from millrace.clients.kafka import consumer_groups, topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.clients.kafka.producer import Delivery, Producer
from millrace.clients.kafka.record import Record

Run = Callable[..., Any]


@pytest.fixture
def lane(cluster: Cluster) -> str:
    """A new topic with one partition and five records."""
    name = f"lane-{uuid.uuid4().hex[:12]}"
    topics.create(cluster, name, 1)
    producer = Producer(cluster, name, Delivery(idempotence=False))
    producer.send([Record(b"%d" % number) for number in range(5)])
    producer.close()
    return name


@pytest.fixture
def group(cluster: Cluster, lane: str) -> str:
    """A group that has read two of the five."""
    name = f"group-{uuid.uuid4().hex[:12]}"
    for _ in read_records(cluster, ReadRequest(lane, "earliest", group=name, most=2)):
        pass
    return name


def offset(cluster: Cluster, group: str) -> int | None:
    return consumer_groups.describe(cluster, group).positions[0].offset


def test_groups_are_listed(run: Run, lane: str, group: str) -> None:
    [found] = [one for one in json.loads(run("kafka", "groups", "list", "--json").out) if one["name"] == group]
    assert found == {"name": group, "state": "empty", "members": 0, "topics": [lane], "lag": 3}
    [row] = [line.split() for line in run("kafka", "groups", "list").out.splitlines() if group in line]
    assert row == [group, "empty", "0", lane, "3"]


def test_a_group_is_described(run: Run, lane: str, group: str) -> None:
    found = json.loads(run("kafka", "groups", "describe", group, "--json").out)
    position = {"topic": lane, "partition": 0, "offset": 2, "end": 5, "member": None, "lag": 3}
    assert found == {"name": group, "state": "empty", "members": [], "positions": [position], "lag": 3}
    assert lane in run("kafka", "groups", "describe", group).out


def test_a_group_is_moved(run: Run, cluster: Cluster, lane: str, group: str) -> None:
    reset = ("kafka", "groups", "reset", group, "--topic", lane)
    moves = json.loads(run(*reset, "--to", "earliest", "--yes", "--json").out)
    assert moves == [{"topic": lane, "partition": 0, "before": 2, "after": 0}]
    assert offset(cluster, group) == 0
    run(*reset, "--to", "4", "--partition", "0", "--yes")
    assert offset(cluster, group) == 4
    run(*reset, "--to", "1h ago", "--yes")
    assert offset(cluster, group) == 0


def test_a_dry_run_changes_nothing(run: Run, cluster: Cluster, lane: str, group: str) -> None:
    shown = run("kafka", "groups", "reset", group, "--topic", lane, "--to", "latest", "--dry-run", "--json").out
    assert [move["after"] for move in json.loads(shown)] == [5]
    assert offset(cluster, group) == 2


def test_nothing_is_changed_where_nobody_can_be_asked(run: Run, cluster: Cluster, lane: str, group: str) -> None:
    reset = run("kafka", "groups", "reset", group, "--topic", lane, "--to", "earliest", code=2)
    delete = run("kafka", "groups", "delete", group, code=2)
    assert "error[option.invalid]" in reset.err
    assert "error[option.invalid]" in delete.err
    assert offset(cluster, group) == 2


def test_a_deleted_group_is_gone(run: Run, group: str) -> None:
    run("kafka", "groups", "delete", group, "--yes")
    assert "error[kafka.group-unknown]" in run("kafka", "groups", "describe", group, code=2).err
    assert "error[kafka.group-unknown]" in run("kafka", "groups", "delete", group, "--yes", code=2).err


def test_a_group_that_is_in_use_is_left_alone(
    start: Callable[..., object], run: Run, cluster: Cluster, lane: str, group: str
) -> None:
    start("kafka", "consume", lane, "--group", group)
    while not consumer_groups.describe(cluster, group).members:
        pass
    moved = run("kafka", "groups", "reset", group, "--topic", lane, "--to", "earliest", "--yes", code=2)
    deleted = run("kafka", "groups", "delete", group, "--yes", code=2)
    assert "error[kafka.group-in-use]" in moved.err
    assert "error[kafka.group-in-use]" in deleted.err
    assert (offset(cluster, group) or 0) >= 2


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        (["--topic", "no-such-topic", "--to", "earliest"], "kafka.topic-unknown"),
        (["--topic", "LANE", "--to", "99"], "option.invalid"),
        (["--topic", "LANE", "--partition", "3", "--to", "earliest"], "kafka.topic-unknown"),
    ],
)
def test_what_is_wrong_exits_2(run: Run, lane: str, group: str, arguments: list[str], condition: str) -> None:
    words = [lane if word == "LANE" else word for word in arguments]
    assert f"error[{condition}]" in run("kafka", "groups", "reset", group, *words, "--yes", code=2).err
