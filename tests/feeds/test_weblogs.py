import json
from collections import Counter
from datetime import UTC, datetime
from itertools import islice

import pytest

from millrace.feeds.base.api import Run
from millrace.feeds.weblogs import Weblogs


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    """Half an hour."""
    feed = Weblogs(seed=5, start=datetime(2026, 1, 31, tzinfo=UTC), pace=20.0)
    return [json.loads(r.value) for batch in islice(feed.batches(Run()), 72) for r in batch.records]


def test_the_key_is_the_application():
    batch = next(Weblogs(seed=1).batches(Run()))
    assert all(json.loads(record.value)["application"].encode() == record.key for record in batch.records)


def test_a_few_applications_write_most_lines(lines):
    by_application = Counter(line["application"] for line in lines)
    assert len(by_application) == 12
    assert sum(count for _, count in by_application.most_common(3)) > len(lines) / 2


def test_levels_go_with_statuses(lines):
    assert {(line["level"], line["status"] // 100) for line in lines} == {("INFO", 2), ("WARN", 4), ("ERROR", 5)}


def test_messages_say_what_the_columns_say(lines):
    for line in lines[:1000]:
        assert line["message"].startswith(f"{line['method']} {line['path']}: ")
        assert f"({line['status']})" in line["message"]
        assert line["latency"] > 0


def test_errors_come_in_bursts(lines):
    busiest = [line for line in lines if line["application"] == "gateway"]
    errors_a_minute = Counter(line["time"][:16] for line in busiest if line["level"] == "ERROR")
    assert errors_a_minute.total() < len(busiest) / 4
    assert max(errors_a_minute.values()) > 10 * min(errors_a_minute.values())
