"""examples/kafka-to-kafka."""

from __future__ import annotations

from millrace.dead_letters.store import letters_in_topics

from .conftest import EXAMPLES, Stage


def test_failures_go_on_and_broken_lines_are_kept_apart(stage: Stage) -> None:
    weblogs, failures = stage.sample("kafka-to-kafka/data/weblogs.jsonl"), stage.topic()
    run_status = stage.run("kafka-to-kafka", {"weblogs": weblogs, "failures": failures})
    received = [(key, *value.values()) for key, value in stage.received(failures)]
    assert received == [
        ("payments", "payments", "2026-05-04T08:00:01.000Z", "/payments", 503, 801.2),
        ("payments", "payments", "2026-05-04T08:00:04.000Z", "/refunds", 503, 799.9),
        ("stock", "stock", "2026-05-04T08:00:06.000Z", "/stock/7", 500, 40.0),
    ]
    lines = (EXAMPLES / "kafka-to-kafka/data/weblogs.jsonl").read_bytes().splitlines()
    letters = [found.letter for found in letters_in_topics(stage.cluster, [f"{weblogs}.dead"])]
    assert [(letter.offset, letter.value) for letter in letters] == [(3, lines[3]), (5, lines[5])]
    assert "application" in letters[1].reason
    assert run_status.dead() == {"weblogs": 2}
