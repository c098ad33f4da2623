"""`millrace feed` from the command line."""

from __future__ import annotations

import json
import random
import signal
import textwrap

import httpx

from cli.conftest import Start
from conftest import CommandLine
from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.feeds.base.api import FEEDS

CLICKS = '''
from dataclasses import dataclass
from millrace.clients.kafka.record import Record
from millrace.feeds.base.api import Batch, Feed
from millrace.plugins import option


@dataclass(frozen=True, kw_only=True)
class Clicks(Feed):
    """Clicks on a button."""

    button: str = option("red", "Which button.")

    def batches(self, run):
        while not run.stop.is_set():
            yield Batch([Record(self.button.encode())])
'''


COUNTER = '''
from dataclasses import dataclass
from millrace.clients.kafka.record import Record
from millrace.feeds.base.api import Batch, Feed


@dataclass(frozen=True, kw_only=True)
class Counter(Feed):
    """Goes on counting where it was."""

    def batches(self, run):
        number = int(run.cursor.load() or "0") + 1
        yield Batch([Record(b"%d" % number)], lambda problem: run.cursor.save(str(number)))
'''
JSON = {"content-type": "application/json"}


def test_a_count_of_posts_arrives(millrace: CommandLine, cluster: Cluster, topic: str) -> None:
    said = millrace("feed", "posts", "--topic", topic, "--count", "5000", "--seed", "7")
    assert "5,000 delivered, 0 failed" in said.stderr
    assert topics.describe(cluster, [topic])[0].offsets == 5000


def test_the_same_seed_and_start_give_the_same_bytes(offline_millrace: CommandLine) -> None:
    arguments = ("feed", "posts", "--to", "console", "--count", "50", "--seed", "3", "--start", "2026-01-01T00:00:00Z")
    first, second = offline_millrace(*arguments).stdout, offline_millrace(*arguments).stdout
    assert first == second
    assert len(first.splitlines()) == 50
    assert json.loads(first.splitlines()[0])["at"].startswith("2026-01-01T00:00:00")


def test_a_missing_topic_is_made(millrace: CommandLine, cluster: Cluster, topic: str) -> None:
    millrace("feed", "sensors", "--topic", f"{topic}-new", "--count", "10")
    assert topics.describe(cluster, [f"{topic}-new"])[0].offsets == 10


def test_into_a_file(offline_millrace: CommandLine) -> None:
    offline_millrace("feed", "trips", "--to", "files", "--out", "trips.jsonl", "--count", "20")
    lines = (offline_millrace.folder / "trips.jsonl").read_text().splitlines()
    assert len(lines) == 20


def test_a_file_line_by_line(millrace: CommandLine, topic: str) -> None:
    (millrace.folder / "sonnet.txt").write_text("a\nb\nc\n")
    millrace("feed", "file", "sonnet.txt", "--topic", topic, "--rate", "100/s")
    read = millrace("kafka", "consume", topic, "--from-beginning", "--max", "3")
    assert sorted(read.stdout.split()) == ["a", "b", "c"]


def test_http_answers_when_kafka_has_it(start: Start, cluster: Cluster, topic: str) -> None:
    process = start("feed", "http", "--topic", topic)
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        words = [word for word in line.decode().split() if word.startswith("http://")]
        if words:
            address = words[0].rstrip(".,;")
            break
    answer = httpx.post(address, json=[{"n": 1}, {"n": 2}])
    assert (answer.status_code, answer.json()) == (200, {"accepted": 2})
    assert topics.describe(cluster, [topic])[0].offsets == 2
    # A record that the topic will not take is its sender's business, and nobody else's.
    too_large = json.dumps({"noise": random.Random(1).randbytes(2_000_000).hex()})
    assert httpx.post(address, content=too_large, headers=JSON).status_code == 413
    assert httpx.post(address, content="{broken", headers=JSON).status_code == 400
    assert httpx.post(address, json={"n": 3}).status_code == 200
    assert topics.describe(cluster, [topic])[0].offsets == 3
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_two_places_have_two_positions(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "counter.py").write_text(textwrap.dedent(COUNTER))
    for place, first in (("a", "1"), ("a", "2"), ("b", "1")):
        offline_millrace("feed", "./counter.py", "--to", "files", "--out", place, "--count", "1")
        assert (offline_millrace.folder / place).read_text().split()[-1] == first
    said = offline_millrace("feed", "./counter.py", "--to", "console", "--count", "1")
    assert said.stdout == "1\n"


def test_a_mistake_in_a_feed_is_told_with_its_line(offline_millrace: CommandLine) -> None:
    broken = COUNTER.replace('run.cursor.load() or "0"', "nothing")
    (offline_millrace.folder / "counter.py").write_text(textwrap.dedent(broken))
    said = offline_millrace("feed", "./counter.py", "--to", "console", code=1)
    assert "feed.failed" in said.stderr
    line = broken.splitlines().index("        number = int(nothing) + 1") + 1
    assert f"counter.py:{line}" in said.stderr


def test_a_feed_in_one_file_of_the_users(offline_millrace: CommandLine) -> None:
    (offline_millrace.folder / "clicks.py").write_text(textwrap.dedent(CLICKS))
    said = offline_millrace("feed", "./clicks.py", "--button", "blue", "--count", "2", "--to", "console")
    assert said.stdout == "blue\nblue\n"
    assert "Which button" in offline_millrace("feed", "./clicks.py", "--help").stdout


def test_ctrl_c_ends_it_with_what_was_delivered(millrace: CommandLine, topic: str) -> None:
    with millrace.start("feed", "ads", "--topic", topic, "--rate", "50/s") as process:
        millrace("kafka", "consume", topic, "--from-beginning", "--max", "1")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b" 0 failed" in said


def test_wrong_input(millrace: CommandLine) -> None:
    assert "name.unknown" in millrace("feed", "postz", code=2).stderr
    assert "name.unknown" in millrace("feed", "posts", "--to", "nowhere", code=2).stderr
    assert "option.invalid" in millrace("feed", "posts", "--rate", "fast", code=2).stderr
    assert "option.invalid" in millrace("feed", "posts", "--malformed", "200%", code=2).stderr
    assert "file.unusable" in millrace("feed", "file", "nothing.txt", code=2).stderr
    assert "file.unusable" in millrace("feed", "./nothing.py", code=2).stderr


def test_every_feed_is_listed_and_has_help(offline_millrace: CommandLine) -> None:
    shown = offline_millrace("feed", "--help").stdout
    expected = {"posts", "sensors", "weblogs", "trips", "ads", "file", "http", "wikimedia", "bluesky", "mastodon", "x"}
    assert expected <= set(FEEDS.names())
    assert all(f" {name} " in shown for name in expected)
