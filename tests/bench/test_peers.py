"""The benchmark's judge: what it expects of the records that it makes, and what it takes for right."""

import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

# For a moment: its programs have names that folders of tests have.
sys.path.append(str(Path(__file__).parents[2] / "bench"))

from peers.answers import Counts, Once
from peers.chart import drawn
from peers.jobs.ads import Ads, write_campaigns
from peers.jobs.latency import KEYS, keyed, stateless
from peers.jobs.once import Copied
from peers.jobs.state import FILLING, State
from peers.jobs.words import Words
from peers.results import medians
from peers.tables import tables

sys.path.pop()


def values(records):
    return [value for _, value in records]


def word_rows(lines):
    counts = Counter(word for line in lines for word in line.decode().split())
    return [orjson.dumps({"word": word, "count": count}) for word, count in counts.items()]


def test_words_are_right_when_every_count_is():
    job = Words(1500)
    answer = job.answer()
    first = word_rows(values(job.first()))
    for row in first[:-1]:
        answer.take(row)
    assert not answer.right()
    answer.take(first[-1])
    assert answer.right()
    answer.ask()
    assert not answer.right()
    for row in word_rows(values(job.first()) + values(job.second())):
        answer.take(row)
    assert answer.right()


def test_a_count_too_high_a_word_too_many_and_a_later_word_that_is_wrong_are_not_right():
    def answered():
        made = Counts({"a": 2}, {"a": 2}, lambda said: (said["word"], said["count"]), (1, 1))
        made.take(b'{"word": "a", "count": 2}')
        assert made.right()
        return made

    for wrong in (b'{"word": "a", "count": 3}', b'{"word": "b", "count": 1}', b'{"word": "a", "count": 1}'):
        answer = answered()
        answer.take(wrong)
        assert not answer.right()
        assert answer.problem() != "none"
    for harmless in (b"", b'{"word": "a", "count": 1, "diff": -1}', b'{"word": "a", "count": 2}'):
        answer = answered()
        answer.take(harmless)
        assert answer.right()


def ad_rows(events, campaigns):
    counts = Counter(
        (campaigns[event["ad_id"]], event["event_time"] // 10_000 * 10_000)
        for event in map(orjson.loads, events)
        if event["event_type"] == "view"
    )
    return [orjson.dumps({"campaign": key[0], "window": key[1], "count": count}) for key, count in counts.items()]


def test_ads_are_right_when_every_window_is_and_markers_do_not_count(tmp_path):
    write_campaigns(tmp_path / "campaigns")
    rows = map(orjson.loads, (tmp_path / "campaigns").read_bytes().splitlines())
    campaigns = {row["ad_id"]: row["campaign_id"] for row in rows}
    job = Ads(25_000)
    answer = job.answer()
    for row in ad_rows(values(job.first()), campaigns):
        answer.take(row)
    assert answer.right(), answer.problem()
    answer.ask()
    assert not answer.right()
    for row in ad_rows(values(job.second()), campaigns):
        answer.take(row)
    assert answer.right(), answer.problem()


def test_a_half_is_later_than_the_markers_before_it():
    job = Ads(1000)
    first, second = (
        [orjson.loads(value)["event_time"] for value in values(half)] for half in (job.first(), job.second())
    )
    assert max(first) < min(second)
    assert {partition for partition, _ in list(job.first())[-200:]} == {0, 1}


def test_the_floor_is_right_when_it_has_seen_every_record():
    job = Ads(100)
    answer = job.answer()
    answer.take(orjson.dumps({"seen": len(values(job.first()))}))
    assert answer.right()
    answer.ask()
    assert not answer.right()
    answer.take(orjson.dumps({"seen": len(values(job.first())) + len(values(job.second()))}))
    assert answer.right()


def test_once_is_neither_missing_nor_twice():
    job = Copied(10)
    answer = job.answer()
    for value in values(job.first()):
        answer.take(value)
    assert answer.right()
    answer.ask()
    for value in values(job.second()):
        answer.take(value)
    assert answer.right()
    answer.take(values(job.first())[3])
    assert not answer.right()
    assert Once(1, 1).problem() == "1 of 1 missing, 0 twice"


def test_every_key_of_the_state_is_met():
    job = State(1000)
    answer = job.answer()
    counts = Counter(orjson.loads(value)["key"] for value in values(job.first()))
    assert counts == Counter(dict.fromkeys(range(1000), FILLING // 1000))
    for key, count in counts.items():
        answer.take(orjson.dumps({"key": key, "count": count}))
    assert answer.right()


@pytest.mark.parametrize("rows", [[{"key": 0, "at": 0, "even": True}, {"key": 1, "at": 1, "even": False}]])
def test_the_latency_of_a_record_is_that_of_its_own_result(rows):
    job = stateless()
    job.record(10.0)
    job.record(10.5)
    for row in rows:
        job.take(orjson.dumps(row), 11.0)
    assert job.took(0) == [1000.0, 500.0]
    assert job.took(10.2) == [500.0]
    assert job.problem() is None
    job.take(orjson.dumps(rows[0]), 12.0)
    assert job.problem() == "1 twice"


def test_a_count_answers_for_the_records_of_its_key_before_it():
    job = keyed()
    for _ in range(KEYS + 1):
        job.record(1.0)
    job.take(b'{"key": 0, "count": 2}', 2.0)
    assert job.missing() == KEYS - 1
    job.take(b'{"key": 0, "count": 3}', 2.0)
    assert job.problem() == "1 wrong: key 0: 3"


def test_only_right_runs_count_and_the_median_is_shown():
    figures = {"about": "words", "warm_records": 100, "cold_wall": 1.0, "cold_cpu": 1.0, "warm_cpu": 1.0, "memory": 1}
    rows = [{"job": "W", "size": 1, "peer": "Millrace", **figures, "warm_wall": wall} for wall in (1.0, 2.0, 9.0)]
    rows += [{"job": "W", "size": 1, "peer": "other", "wrong": "it ended"}]
    made = medians(rows)
    (table,) = tables(made)
    assert [row[0] for row in table.rows] == ["**Millrace**", "other"]
    assert table.rows[0][3] == "50"
    assert table.rows[1][1] == "wrong"
    assert "Millrace</text>" in drawn(made)
    assert "other" not in drawn(made)
