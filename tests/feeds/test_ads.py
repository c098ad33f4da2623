import json
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from uuid import UUID

import pytest

from millrace.errors import InvalidOption
from millrace.feeds.ads import Ads
from millrace.feeds.base.api import Run


@pytest.fixture(scope="module")
def events() -> list[dict]:
    feed = Ads(seed=5, start=datetime(2026, 1, 31, tzinfo=UTC))
    return [json.loads(r.value) for batch in islice(feed.batches(Run()), 20) for r in batch.records]


def test_campaigns_have_ten_ads_each():
    campaigns = Ads(seed=5).campaigns()
    assert len(campaigns) == 1000
    assert set(Counter(campaigns.values()).values()) == {10}
    assert all(UUID(ad).version == UUID(campaign).version == 4 for ad, campaign in campaigns.items())


def test_every_event_is_of_a_known_ad(events):
    assert {event["ad_id"] for event in events} <= Ads(seed=5).campaigns().keys()
    assert not {event["ad_id"] for event in events} & Ads(seed=6).campaigns().keys()


def test_campaigns_of_no_seed_are_unknown():
    with pytest.raises(InvalidOption):
        Ads().campaigns()


def test_kinds_are_those_of_the_benchmark_and_equally_likely(events):
    types = Counter(event["event_type"] for event in events)
    assert set(types) == {"view", "click", "purchase"}
    assert max(types.values()) < 1.15 * min(types.values())
    assert {event["ad_type"] for event in events} == {"banner", "modal", "sponsored-search", "mail", "mobile"}


def test_users_and_pages_are_a_hundred_each(events):
    assert len({event["user_id"] for event in events}) == len({event["page_id"] for event in events}) == 100


def test_times_are_milliseconds_in_text(events):
    assert events[0]["event_time"] == "1769817600000"


def test_the_key_is_the_ad():
    batch = next(Ads(seed=1).batches(Run()))
    assert all(json.loads(record.value)["ad_id"].encode() == record.key for record in batch.records)
