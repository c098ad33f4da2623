"""examples/kafka-word-count."""

from __future__ import annotations

from millrace.clients.kafka.record import Record

from .conftest import EXAMPLES, Stage, readme_rows

COUNTS = {"pours": 3, "kafka": 2, "spark": 2, "turns": 2, "what": 2, "and": 1, "turn": 1, "will": 1}


def test_the_whole_result_is_shown_each_time(stage: Stage) -> None:
    lines = stage.sample("kafka-word-count/data/lines.txt")
    stage.run("kafka-word-count", {"lines": lines})
    assert stage.shown("counts") == [(word, str(count)) for word, count in COUNTS.items()]
    assert readme_rows("kafka-word-count") == set(stage.shown("counts"))
    stage.send(lines, Record(b"spark turns"))
    stage.run("kafka-word-count", {"lines": lines})
    more = COUNTS | {"spark": 3, "turns": 3}
    assert stage.shown("counts") == [
        (word, str(more[word])) for word in sorted(more, key=lambda one: (-more[one], one))
    ]
    assert len((EXAMPLES / "kafka-word-count/data/lines.txt").read_text().split()) == sum(COUNTS.values())
