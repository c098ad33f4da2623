"""Kafka's own tools, from the fetched jars, agree with what `millrace kafka` shows."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from conftest import CommandLine
from millrace.clients.kafka.cluster import Cluster
from millrace.services import jars
from millrace.services.java import find_java


def tool(name: str, *arguments: str) -> str:
    """What a main class of Kafka's prints."""
    command = [find_java().path, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars.ensure("kafka").classpath()]
    quiet = "-Dorg.apache.logging.log4j.level=OFF"
    ran = subprocess.run(
        [*command, quiet, f"org.apache.kafka.tools.{name}", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def produced(cluster: Cluster, topic: str) -> str:
    """A topic into which Kafka's own VerifiableProducer wrote 500 records."""
    said = tool(
        "VerifiableProducer", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--max-messages", "500"
    )
    assert '"acked":500' in said.replace(" ", "")
    return topic


@pytest.mark.long
def test_topic_command_agrees(cluster: Cluster, millrace: CommandLine, produced: str) -> None:
    described = tool("TopicCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", produced)
    theirs = {
        int(found["partition"]): (int(found["leader"]), found["replicas"], found["isr"])
        for found in re.finditer(
            r"Partition: (?P<partition>\d+)\s+Leader: (?P<leader>\d+)\s+Replicas: (?P<replicas>\S+)\s+"
            r"Isr: (?P<isr>\S+)",
            described,
        )
    }
    (topic,) = json.loads(millrace("kafka", "topics", "describe", produced, "--json").stdout)
    ours = {
        one["id"]: (one["leader"], ",".join(map(str, one["replicas"])), ",".join(map(str, one["in_sync"])))
        for one in topic["partitions"]
    }
    assert len(ours) == 3
    assert ours == theirs


@pytest.mark.long
def test_get_offset_shell_and_log_dirs_agree(cluster: Cluster, millrace: CommandLine, produced: str) -> None:
    shell = tool("GetOffsetShell", "--bootstrap-server", cluster.bootstrap, "--topic", produced)
    theirs = {int(part): int(end) for part, end in re.findall(rf"{produced}:(\d+):(\d+)", shell)}
    (topic,) = json.loads(millrace("kafka", "topics", "describe", produced, "--json").stdout)
    assert {one["id"]: one["end"] for one in topic["partitions"]} == theirs
    assert topic["offsets"] == 500
    logs = tool("LogDirsCommand", "--describe", "--bootstrap-server", cluster.bootstrap, "--topic-list", produced)
    (folder,) = json.loads(logs[logs.index("{") :])["brokers"][0]["logDirs"]
    sizes = {int(one["partition"].rpartition("-")[2]): one["size"] for one in folder["partitions"]}
    assert {one["id"]: one["bytes"] for one in topic["partitions"]} == sizes


@pytest.mark.long
def test_consumer_group_command_agrees(cluster: Cluster, millrace: CommandLine, produced: str) -> None:
    group = f"{produced}-readers"
    millrace("kafka", "consume", produced, "--group", group, "--from-beginning", "--max", "123")
    said = tool(
        "consumer.group.ConsumerGroupCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--group", group
    )
    rows = re.findall(rf"{group}\s+{produced}\s+(\d+)\s+(\d+|-)\s+(\d+)\s+(\d+|-)", said)
    theirs = {int(part): (offset, int(end), lag) for part, offset, end, lag in rows}
    shown = json.loads(millrace("kafka", "groups", "describe", group, "--json").stdout)
    ours = {one["partition"]: (str(one["offset"]), one["end"], str(one["lag"])) for one in shown["positions"]}
    assert ours == theirs
    assert sum(one["offset"] for one in shown["positions"]) == 123


@pytest.mark.long
def test_a_reset_is_seen_by_consumer_group_command(cluster: Cluster, millrace: CommandLine, produced: str) -> None:
    group = f"{produced}-moved"
    millrace("kafka", "groups", "reset", group, "--topic", produced, "--to", "latest", "--yes")
    said = tool(
        "consumer.group.ConsumerGroupCommand", "--bootstrap-server", cluster.bootstrap, "--describe", "--group", group
    )
    lags = re.findall(rf"{produced}\s+\d+\s+\d+\s+\d+\s+(\d+)", said)
    assert lags == ["0", "0", "0"]
