"""Which letters a redrive means where a replay has made generations; without Kafka."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millrace.cli.commands.dead.selection import DeadLetterSelection
from millrace.dead_letters.letter import DeadLetter
from millrace.dead_letters.redrive_filter import RedriveFilter
from millrace.dead_letters.store import StoredDeadLetter
from millrace.engine.replay import generations
from millrace.engine.replay.generations import Generation


def test_a_file_means_the_generation_that_counts_and_letters_since_its_replay(tmp_path: Path) -> None:
    file = tmp_path / "trending.yaml"
    file.write_text("name: trending")
    before = DeadLetterSelection.named(str(file), tmp_path, None, None)
    assert (before.pipeline, before.since) == ("trending", None)
    made = Generation(2, ("earliest", "latest"), "", {}, {}, (), done=7.5)
    base = tmp_path / "pipelines" / "trending"
    generations.change(base, lambda now: replace(now.with_generation(made), current=2, before=1))
    for text in (str(file), "trending@2"):
        after = DeadLetterSelection.named(text, tmp_path, None, None)
        assert (after.pipeline, after.since) == ("trending@2", 7500)
    assert DeadLetterSelection.named("trending", tmp_path, None, None).pipeline == "trending"


def test_what_a_replay_has_buried_is_not_sent_again_unless_its_topic_is_named() -> None:
    letter = DeadLetter(value=b"", topic="posts", partition=0, offset=1, reason="r", pipeline="trending@2")
    live, replayed = (StoredDeadLetter(letter, home, 0, 0, 0) for home in ("posts.dead", "posts.g2.dead"))
    of_pipeline = RedriveFilter(pipeline="trending@2", include_replays=False)
    assert [of_pipeline.matches(one) for one in (live, replayed)] == [True, False]
    assert RedriveFilter(location="posts.g2.dead").matches(replayed)
    follower = replace(live, letter=replace(letter, topic="posts.g2"), location="posts.g2.dead")
    assert of_pipeline.matches(follower)  # read from a generation of another pipeline
