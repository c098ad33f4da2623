"""Examples run (in both of their forms), on topics and folders of the test's own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from conftest import RunPipeline
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.clients.kafka.producer import Producer
from millrace.clients.kafka.record import Record
from millrace.pipeline.loading import load
from millrace.pipeline.model import Connection, PipelineDef
from millrace.telemetry.query_status import RunStatus

EXAMPLES = Path(__file__).parents[2] / "examples"


def commands(page: Path) -> list[str]:
    """The commands of a README, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [found for block in blocks for found in re.findall(r"\$ (.+)", block)]


def moved(pipeline: PipelineDef, places: Mapping[str, Any]) -> PipelineDef:
    """The same pipeline, reading and writing elsewhere: other topics, folders, addresses than its file says."""
    unused = set(places)

    def move(connection: Connection) -> Connection:
        unused.discard(connection.argument)
        return replace(connection, argument=places.get(connection.argument, connection.argument))

    there = replace(
        pipeline,
        sources=tuple(replace(source, connection=move(source.connection)) for source in pipeline.sources),
        sinks=tuple(replace(sink, connection=move(sink.connection)) for sink in pipeline.sinks),
    )
    assert not unused, f"{pipeline.name} has no {unused}"
    return there


class Stage:
    """Where an example is played."""

    def __init__(self, form: str, run: RunPipeline, cluster: Cluster, folder: Path) -> None:
        self.form = form
        self.cluster = cluster
        self.folder = folder
        self._run = run

    def run(self, name: str, places: Mapping[str, Any], folder: Path | None = None, **more: Any) -> RunStatus:
        """Run an example (or a copy of it) until it has caught up; a second time it goes on where it was."""
        file = (folder or EXAMPLES / name) / f"pipeline.{self.form}"
        pipeline = moved(load(str(file)), places)
        return self._run(pipeline, self.folder / "state" / name, **more)

    def topic(self, *lines: bytes) -> str:
        """A new topic, with these lines in it."""
        name = f"example-{uuid.uuid4().hex[:12]}"
        topics.create(self.cluster, name, 1)
        self.send(name, *(Record(line) for line in lines))
        return name

    def sample(self, file: str) -> str:
        """A new topic with the lines of an example's file in it."""
        return self.topic(*(EXAMPLES / file).read_bytes().splitlines())

    def send(self, topic: str, *records: Record) -> None:
        """Records into a topic."""
        producer = Producer(self.cluster, topic)
        producer.send(records)
        producer.close()
        assert producer.delivered == len(records)

    def received(self, topic: str) -> list[tuple[str, Any]]:
        """The keys and (JSON) values of all records of a topic, in order."""
        (found,) = topics.describe(self.cluster, [topic])
        reading = ReadRequest(topic, "earliest", most=found.offsets, timeout=10)
        messages = (
            [message for batch in read_records(self.cluster, reading) for message in batch] if found.offsets else []
        )
        return [((message.key() or b"").decode(), orjson.loads(message.value() or b"")) for message in messages]

    @property
    def printed(self) -> list[str]:
        """What the console sinks of the last run printed."""
        return self._run.printed

    def shown(self, table: str) -> list[tuple[str, ...]]:
        """The rows of a table that the console showed, of all batches of the last run."""
        return [row for text in self.printed if text.startswith(f"{table}, batch ") for row in rows(text)]


def rows(text: str) -> list[tuple[str, ...]]:
    """The rows of a table that was printed."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[1:]]


def readme_rows(name: str) -> set[tuple[str, ...]]:
    """The rows that an example's README shows."""
    page = (EXAMPLES / name / "README.md").read_text("utf-8")
    found = {row for block in re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL) for row in rows(block)}
    assert found
    return found


@pytest.fixture(params=["py", pytest.param("yaml", marks=pytest.mark.chaos)])
def stage(request: pytest.FixtureRequest, run_pipeline: RunPipeline, cluster: Cluster, tmp_path: Path) -> Stage:
    """The stage for one form of an example; `make chaos` plays the other too."""
    return Stage(request.param, run_pipeline, cluster, tmp_path)
