"""How many bytes the partitions of topics have on disk."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security import java_flags
from millrace.clients.properties import java_file
from millrace.errors import JavaUnusable
from millrace.services import jars, kafka
from millrace.services.java import find_java
from millrace.services.kafka import node_folder

Sizes = dict[tuple[str, int], int]
"""Bytes by topic and partition, of the largest replica."""


def sizes_on_disk(folder: Path, names: Sequence[str]) -> Sizes:
    """The sizes in our own cluster, read from its folders."""
    layout = kafka.running(folder)
    sizes: Sizes = {}
    for node in layout.nodes if layout else ():
        for name in names:
            for home in (node_folder(folder, node) / "data").glob(f"{name}-*"):
                number = home.name.removeprefix(f"{name}-")
                if number.isdigit():
                    _keep_largest(sizes, name, int(number), sum(map(_size, home.glob("*.log"))))
    return sizes


def sizes_by_tool(cluster: Cluster, names: Sequence[str]) -> Sizes | None:
    """Return the sizes that an outside cluster reports to Kafka's own tool; None if it does not.

    The Python client has no such request, so the tool is used if its jars and a Java are installed.
    """
    tools = jars.jar_set("kafka")
    if not tools.present():
        return None
    try:
        java = find_java()
    except JavaUnusable:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as properties:
        properties.write(java_file(cluster.java_properties()))
        properties.flush()
        command: list[str | Path] = [
            java.path, "-Xmx128m", "-XX:TieredStopAtLevel=1", *java_flags(cluster.options), "-cp", tools.classpath(),
            "org.apache.kafka.tools.LogDirsCommand", "--describe", "--bootstrap-server", cluster.bootstrap,
            "--topic-list", ",".join(names), "--command-config", properties.name,
        ]  # fmt: skip
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        except subprocess.TimeoutExpired:
            return None
    answer = next((line for line in ran.stdout.splitlines() if line.startswith("{")), None)
    return _parse(answer) if answer and not ran.returncode else None


def _size(segment: Path) -> int:
    try:
        return segment.stat().st_size
    except FileNotFoundError:  # retention was quicker
        return 0


def _parse(answer: str) -> Sizes:
    sizes: Sizes = {}
    for broker in json.loads(answer)["brokers"]:
        for folder in broker["logDirs"]:
            for replica in folder["partitions"]:
                name, _, number = replica["partition"].rpartition("-")
                _keep_largest(sizes, name, int(number), replica["size"])
    return sizes


def _keep_largest(sizes: Sizes, name: str, number: int, size: int) -> None:
    sizes[name, number] = max(size, sizes.get((name, number), 0))
