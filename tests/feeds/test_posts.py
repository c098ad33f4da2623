import json
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest

from millrace.feeds.base.api import Run
from millrace.feeds.posts import Posts
from millrace.feeds.simulation.phrases import LANGUAGES, TOPICS

START = datetime(2026, 1, 31, 8, tzinfo=UTC)


def posts(count: int, **options: object) -> list[dict]:
    feed = Posts(**{"seed": 11, "start": START, **options})
    batches = islice(feed.batches(Run()), count // 500)
    return [json.loads(record.value) for batch in batches for record in batch.records]


@pytest.fixture(scope="module")
def some() -> list[dict]:
    return posts(20_000)


def test_ids_are_unique(some):
    assert len({post["id"] for post in some}) == len(some)


def test_the_key_is_the_author():
    batch = next(Posts(seed=1).batches(Run()))
    assert all(json.loads(record.value)["author"].encode() == record.key for record in batch.records)


def test_tags_are_the_hashtags_of_the_text(some):
    assert all(re.findall(r"#(\w+)", post["text"]) == post["tags"] for post in some)
    assert {len(post["tags"]) for post in some} == {0, 1, 2}


def test_texts_are_in_every_language_and_vary(some):
    assert {post["lang"] for post in some} == {language.code for language in LANGUAGES}
    assert len({post["text"] for post in some}) > len(some) / 3


def test_a_few_authors_write_much_and_most_write_little(some):
    by_author = Counter(post["author"] for post in some)
    busiest = sum(count for _, count in by_author.most_common(len(by_author) // 100))
    assert len(by_author) > 2000
    assert busiest / len(some) > 0.2


def test_a_fifth_answers_a_recent_post(some):
    numbers = {post["id"]: number for number, post in enumerate(some)}
    gaps = [n - numbers[post["reply_to"]] for n, post in enumerate(some) if post["reply_to"]]
    assert 0.18 < len(gaps) / len(some) < 0.22
    assert min(gaps) >= 1
    assert max(gaps) <= 512


def test_a_few_topics_lead_at_any_moment(some):
    tags = Counter(tag for post in some[:2000] for tag in post["tags"])
    top = sum(count for _, count in tags.most_common(10))
    assert 0.25 < top / tags.total() < 0.8


def test_trending_topics_change_within_minutes():
    minutes = posts(20_000, pace=1000 / 60)  # 1000 a minute, for 20 minutes
    charts = [
        {tag for tag, _ in Counter(tag for post in minutes[i : i + 1000] for tag in post["tags"]).most_common(10)}
        for i in range(0, len(minutes), 1000)
    ]
    near = [len(a & b) for a, b in pairwise(charts)]
    far = [len(a & b) for a, b in zip(charts, charts[8:], strict=False)]
    assert sum(near) / len(near) > 5
    assert sum(far) / len(far) < 5


def test_topics_are_words_that_every_reader_finds():
    assert len(set(TOPICS)) == len(TOPICS)
    assert all(re.fullmatch("[a-z]+", topic) for topic in TOPICS)


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.code)
def test_phrases_have_one_place_for_the_topic_and_need_no_escaping(language):
    assert all(opening.count("{}") == 1 for opening in language.openings)
    assert not any(re.search(r'[{}#"\\]', ending) for ending in language.endings)
    assert not any(re.search(r'[#"\\]', opening) for opening in language.openings)
