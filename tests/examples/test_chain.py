"""examples/chain: the rows of the README, through Cassandra's own driver."""

from __future__ import annotations

import re

from millrace.clients.cassandra import Cassandra
from millrace.dead_letters.store import letters_in_topics

from .conftest import EXAMPLES, Stage


def test_readings_go_all_the_way(stage: Stage, cassandra: Cassandra, keyspace: str) -> None:
    readings, celsius = stage.sample("chain/data/readings.jsonl"), stage.topic()
    table = f"{keyspace}.rooms"
    for _ in range(2):  # each step does what is there when it starts
        stage.run("chain", {"readings": readings, "celsius": celsius, "home.rooms": table})
    found = cassandra.session().execute(f"SELECT room, minute, average, readings FROM {table}")  # noqa: S608
    assert sorted(
        (room, f"{minute:%Y-%m-%dT%H:%M:%S.000Z}", average, readings) for room, minute, average, readings in found
    ) == sorted(told())
    assert len(list(letters_in_topics(stage.cluster, [f"{readings}.dead"]))) == 1


def told() -> list[tuple[str, str, float, int]]:
    """The rows that the README shows."""
    page = (EXAMPLES / "chain" / "README.md").read_text("utf-8")
    rows = re.findall(r"^(\w+) +(2026\S+) +([\d.]+) +(\d+)$", page, re.MULTILINE)
    assert len(rows) == 5
    return [(room, minute, float(average), int(readings)) for room, minute, average, readings in rows]
