"""Which topics are shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from millrace.dashboard.kafka.topics import VisibleTopics
from millrace.telemetry.progress import BatchProgress, SourceProgress
from millrace.telemetry.query_status import RunStatus
from millrace.telemetry.topology import UNPLANNED, Edge, Topology

PLANNED = Topology(edges=(Edge("a", "sink:0", "q", "written"), Edge("a", "b")), topics={"posts": ("read",)})


@pytest.mark.parametrize("topic", ["read", "read.dead", "read.g2.dead", "written", "web.de", "web.de.dead"])
def test_topics_of_the_pipeline(topic: str) -> None:
    assert VisibleTopics(PLANNED, RunStatus(), (r"(?!.*\.dead$)(?:web\..+)",)).among([topic])


@pytest.mark.parametrize(
    "topic", ["", "other", "other.dead", ".dead", "written.dead", "read.g2", "readx", "__consumer_offsets", "webxde"]
)
def test_other_topics(topic: str) -> None:
    assert not VisibleTopics(PLANNED, RunStatus(), (r"(?!.*\.dead$)(?:web\..+)",)).among([topic])
    assert VisibleTopics(PLANNED, RunStatus(), everything=True).among([topic])


def test_a_pattern_never_means_topics_of_kafka_itself() -> None:
    assert not VisibleTopics(Topology(), RunStatus(), (".*",)).among(["__consumer_offsets"])


def test_topics_that_the_queries_of_a_program_are_seen_to_read() -> None:
    run_status = RunStatus()
    visible = VisibleTopics(UNPLANNED, run_status)
    assert not visible.among(["posts"])
    run_status.started("query 1")
    read = SourceProgress("KafkaV2[Subscribe[posts]]", 1, end={"posts": {"0": 5}})
    run_status.batch_done(BatchProgress("query 1", "r", 0, datetime.now(UTC), sources=(read,)))
    assert visible.among(["posts"])
    assert visible.among(["posts.dead"])
    assert not visible.among(["others"])
