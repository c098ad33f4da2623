"""Aliases as they are read, and the topic that keeps them, without a broker."""

from __future__ import annotations

import pytest

from millrace.clients.kafka.topics import Partition, Topic
from millrace.connectors.kafka.generation_alias import TOPIC, GenerationAlias, leading, read_alias, require_fit
from millrace.errors import InvalidTopic


def topic(partitions: int, policy: str | None) -> Topic:
    parts = tuple(Partition(number, 1, (1,), (1,), 0, 0) for number in range(partitions))
    return Topic(TOPIC, parts, {} if policy is None else {"cleanup.policy": policy})


def test_the_later_word_counts_whatever_the_order_of_records() -> None:
    early, late = (
        GenerationAlias("one", 2, 1.0, {"popular": "popular.g2"}),
        GenerationAlias("two", 3, 2.0, {"popular": "popular.g3"}),
    )
    assert leading([late, early]) == leading([early, late]) == {"popular": "popular.g3"}


def test_a_record_that_says_no_alias_is_passed_over() -> None:
    for content in (None, b"", b"no", b"[]", b"{}", b'{"pipeline": "one", "generation": 2, "at": 1, "topics": 3}'):
        assert read_alias(content) is None
    more = b'{"pipeline": "one", "generation": 2, "at": 1.5, "topics": {"a": "a.g2"}, "by": "a later version"}'
    assert read_alias(more) == GenerationAlias("one", 2, 1.5, {"a": "a.g2"})


def test_a_topic_that_would_lose_aliases_is_refused() -> None:
    require_fit(topic(1, "compact"))
    for partitions, policy in ((3, "compact"), (1, None), (1, "compact,delete")):
        with pytest.raises(InvalidTopic, match="cannot keep"):
            require_fit(topic(partitions, policy))
