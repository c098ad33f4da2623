"""Dead letters out of tasks: byte for byte, each once, whatever happens to the tasks."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import ReadRequest, read_records
from millrace.dead_letters import kafka_writer
from millrace.dead_letters.kafka_writer import KafkaDeadLetterTarget
from millrace.dead_letters.letter import DeadLetter, from_json_line, to_headers
from millrace.dead_letters.store import letters_in_folder, letters_in_topics
from millrace.dead_letters.writer import DeadLetterTarget, FolderDeadLetterTarget, WriterTask
from millrace.errors import AccessDenied, FileUnusable, InvalidOption, RecordRefused, TopicGone
from millrace.services.kafka import KafkaCluster, KafkaClusterOptions

DYING = """
import os, pickle, sys
from millrace.clients.kafka.transactions import TransactionalProducer

insist = TransactionalProducer._call_until_answered

def die_before_the_commit(self, call):
    if getattr(call, "__name__", None) == "commit_transaction":
        os._exit(9)
    insist(self, call)

if sys.argv[1] == "die":
    TransactionalProducer._call_until_answered = die_before_the_commit
target, tasks = pickle.load(sys.stdin.buffer)
for task, letters in tasks:
    writer = target.open(task)
    writer.write(letters)
    writer.close()
"""

Tasks = list[tuple[WriterTask, list[DeadLetter]]]


def letter(topic: str, offset: int, partition: int = 0, value: bytes | None = None) -> DeadLetter:
    return DeadLetter(
        value=b"%d" % offset if value is None else value,
        key=b"k",
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=1_700_000_000_000 + offset,
        reason=f"bad at {offset}",
        pipeline="p",
        source="s",
    )


def letters(topic: str, offsets: Iterable[int], partition: int = 0) -> list[DeadLetter]:
    return [letter(topic, offset, partition) for offset in offsets]


def task(batch: int | None = 0, partition: int = 0, query: str = "q") -> WriterTask:
    return WriterTask(query, batch, partition)


def write_letters(target: DeadLetterTarget, where: WriterTask, *chunks: Sequence[DeadLetter]) -> None:
    writer = target.open(where)
    for chunk in chunks:
        writer.write(chunk)
    writer.close()


def offsets(cluster: Cluster, topic: str) -> list[int]:
    """The offsets of the records whose letters can be seen, in order."""
    return sorted(one.letter.offset or 0 for one in letters_in_topics(cluster, [f"{topic}.dead"]))


def elsewhere(target: DeadLetterTarget, tasks: Tasks, how: str = "live") -> subprocess.Popen[bytes]:
    """Tasks in another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", DYING, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(pickle.dumps((target, tasks)))
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture
def target(cluster: Cluster, topic: str) -> KafkaDeadLetterTarget:
    """Letters of a topic that has a dead topic."""
    made = KafkaDeadLetterTarget(cluster, f"p-{topic}", "s")
    made.prepare([topic])
    return made


class TestKafka:
    """Letters into a topic."""

    def test_the_record_is_what_it_was(self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget) -> None:
        twice = (("h", b"1"), ("h", None), ("h", b""), ("millrace.topic", b"other"))
        all_bytes = bytes(range(256))
        written = [
            replace(letter(topic, 0, 1), value=all_bytes, key=all_bytes, headers=twice),
            replace(letter(topic, 1, 1), value=None, key=None, timestamp=None),
            replace(letter(topic, 5, 1), value=b"", key=b"", reason="«\N{SNOWMAN}»"),
        ]
        write_letters(pickle.loads(pickle.dumps(target)), task(), written)  # noqa: S301 - our own
        found = list(letters_in_topics(cluster, [f"{topic}.dead"]))
        assert [one.letter for one in found] == written
        raw = [
            one for batch in read_records(cluster, ReadRequest(f"{topic}.dead", "earliest", most=3)) for one in batch
        ]
        assert [one.value() for one in raw] == [all_bytes, None, b""]
        assert [one.key() for one in raw] == [all_bytes, None, b""]
        assert [one.headers() for one in raw] == [to_headers(one) for one in written]
        assert {one.partition() for one in raw} == {1}

    def test_letters_that_name_no_pipeline_get_that_of_the_target(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        write_letters(target, task(), [DeadLetter(value=b"", topic=topic, partition=0, offset=0, reason="r")])
        found = next(iter(letters_in_topics(cluster, [f"{topic}.dead"]))).letter
        assert (found.pipeline, found.source) == (f"p-{topic}", "s")

    def test_a_replayed_batch_writes_nothing_twice(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        for batch, first in ((0, 0), (0, 0), (1, 10), (0, 0), (1, 10), (2, 20)):
            write_letters(target, task(batch), letters(topic, range(first, first + 4)), letters(topic, range(6, 9), 2))
        assert offsets(cluster, topic) == sorted([*range(4), *range(10, 14), *range(20, 24), *range(6, 9)])

    def test_an_attempt_that_got_half_way_is_completed(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        write_letters(target, task(), letters(topic, range(5)))
        write_letters(target, task(), letters(topic, range(10)))
        assert offsets(cluster, topic) == list(range(10))

    def test_more_than_fits_into_one_transaction(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        many = letters(topic, range(12_000))
        for _ in range(2):
            write_letters(target, task(), many[:7000], many[7000:])
        assert offsets(cluster, topic) == list(range(12_000))

    def test_two_tasks_may_share_a_partition_and_the_later_part_may_be_first(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        for _ in range(2):
            write_letters(target, task(0, 1), letters(topic, range(500, 510)))
            write_letters(target, task(0, 0), letters(topic, range(100, 110)))
        write_letters(target, task(1), letters(topic, [900]))
        assert offsets(cluster, topic) == [*range(100, 110), *range(500, 510), 900]

    def test_another_query_writes_its_own_letters_unless_it_judges_alike(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        write_letters(target, task(9, query="one"), letters(topic, [5, 50]))
        write_letters(target, task(0, query="with another schema"), letters(topic, [20]))
        alike = replace(target, decoder_version="same schema")
        write_letters(alike, task(0, query="three"), letters(topic, [60, 61]))
        write_letters(alike, task(4, query="four"), letters(topic, [60, 61, 62]))
        assert offsets(cluster, topic) == [5, 20, 50, 60, 61, 62]

    def test_a_topic_that_is_made_again_begins_again(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        write_letters(target, task(), letters(topic, range(3)))
        topics.delete(cluster, [topic])
        topics.create(cluster, topic, 3)
        write_letters(target, task(1), letters(topic, range(3)))
        assert offsets(cluster, topic) == [0, 0, 1, 1, 2, 2]

    def test_two_threads_at_once(self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget) -> None:
        failed: list[BaseException] = []

        def work() -> None:
            try:
                for batch in range(6):
                    write_letters(target, task(batch), letters(topic, range(batch * 10, batch * 10 + 10)))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert offsets(cluster, topic) == list(range(60))

    def test_two_processes_at_once(self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget) -> None:
        tasks = [(task(batch), letters(topic, range(batch * 10, batch * 10 + 10))) for batch in range(6)]
        processes = [elsewhere(target, tasks) for _ in range(2)]
        for process in processes:
            assert process.communicate(timeout=120) == (b"", b"")
        assert offsets(cluster, topic) == list(range(60))

    def test_a_process_that_is_killed_before_it_commits(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        tasks = [(task(), letters(topic, range(10)))]
        dying = elsewhere(target, tasks, "die")
        assert dying.communicate(timeout=120) == (b"", b"")
        assert dying.returncode == 9
        assert offsets(cluster, topic) == []
        alive = elsewhere(target, tasks)
        assert alive.communicate(timeout=120) == (b"", b"")
        assert offsets(cluster, topic) == list(range(10))

    def test_a_letter_that_is_too_large_fails_the_task_and_is_named(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        topics.alter(cluster, f"{topic}.dead", configs={"max.message.bytes": "2000"})
        noise = random.Random(1)
        small = [letter(topic, offset, value=noise.randbytes(500)) for offset in range(20)]
        write_letters(target, task(), small)  # together they are too large as well
        large = letter(topic, 30, value=noise.randbytes(5000))
        with pytest.raises(RecordRefused, match=rf"{topic}\[0\]@30"):
            write_letters(target, task(1), [letter(topic, 25), large, letter(topic, 35)])
        topics.alter(cluster, f"{topic}.dead", configs={"max.message.bytes": "20000"})
        write_letters(target, task(1), [letter(topic, 25), large, letter(topic, 35)])
        assert offsets(cluster, topic) == [*range(20), 25, 30, 35]

    def test_a_dead_topic_that_is_gone(self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget) -> None:
        write_letters(target, task(), letters(topic, [0]))
        topics.delete(cluster, [f"{topic}.dead"])
        with pytest.raises(TopicGone):
            write_letters(target, task(1), letters(topic, [1]))
        write_letters(replace(target, create=True), task(1), letters(topic, [1]))
        assert offsets(cluster, topic) == [1]

    def test_a_dead_topic_of_another_name(self, cluster: Cluster, topic: str) -> None:
        target = KafkaDeadLetterTarget(cluster, f"p-{topic}", "s", {topic: f"{topic}-bad.dead"})
        assert target.prepare([topic]) == [f"{topic}-bad.dead"]
        write_letters(target, task(), letters(topic, [3]))
        assert offsets(cluster, f"{topic}-bad") == [3]

    def test_letters_out_of_order_are_a_mistake_of_ours(self, topic: str, target: KafkaDeadLetterTarget) -> None:
        with pytest.raises(ValueError, match="out of order"):
            write_letters(target, task(), letters(topic, [5, 3]))
        with pytest.raises(ValueError, match="not from a topic"):
            write_letters(target, task(), [DeadLetter(value=b"", file="a.csv", reason="")])

    def test_what_is_abandoned_is_not_written(
        self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget
    ) -> None:
        writer = target.open(task())
        writer.write(letters(topic, [0]))
        writer.abandon()
        writer.close()
        assert offsets(cluster, topic) == []

    def test_few_producers_stay_open(self, cluster: Cluster, topic: str, target: KafkaDeadLetterTarget) -> None:
        for number in range(3):
            write_letters(replace(target, source=f"s{number}"), task(), letters(topic, [number]))
        assert len(kafka_writer._PRODUCERS) <= 16
        assert len(kafka_writer._COMMITTED) <= 4

    def test_a_property_that_does_not_exist(self, cluster: Cluster, topic: str) -> None:
        wrong = replace(cluster, options={"no.such": "x"})
        with pytest.raises(InvalidOption):
            write_letters(KafkaDeadLetterTarget(wrong, f"wrong-{topic}", "s"), task(), letters(topic, [0]))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that wants passwords."""
    with KafkaCluster(tmp_path_factory.mktemp("secured"), KafkaClusterOptions(secure=True)) as cluster:
        yield cluster


@pytest.mark.long
def test_a_wrong_password_fails_the_task_at_once(secured: Cluster) -> None:
    topics.create(secured, "posts", 1)
    target = KafkaDeadLetterTarget(secured, "p", "s")
    target.prepare(["posts"])
    refused = replace(secured, options={**secured.options, "sasl.password": "guess"})
    with pytest.raises(AccessDenied):
        write_letters(replace(target, cluster=refused), task(), letters("posts", [0]))
    write_letters(target, task(), letters("posts", [0]))
    assert offsets(secured, "posts") == [0]


@pytest.mark.chaos
def test_a_broker_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    broker = KafkaCluster(tmp_path, KafkaClusterOptions(heap="256m"))
    broker.start()
    try:
        cluster = broker.cluster()
        topics.create(cluster, "posts", 1)
        target = KafkaDeadLetterTarget(cluster, "p", "s")
        target.prepare(["posts"])
        done, enough, failed = threading.Semaphore(0), threading.Event(), threading.Event()
        batches: list[int] = []

        def work() -> None:
            try:
                while not enough.is_set():
                    batches.append(len(batches))
                    first = batches[-1] * 5
                    write_letters(target, task(batches[-1]), letters("posts", range(first, first + 5)))
                    done.release()
            except BaseException:
                failed.set()
                raise

        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(3):
            assert done.acquire(timeout=60)
        broker.stop()
        broker.start()
        while done.acquire(blocking=False):
            pass
        for _ in range(3):
            assert done.acquire(timeout=120)
        enough.set()
        worker.join()
        assert not failed.is_set()
        assert offsets(cluster, "posts") == list(range(len(batches) * 5))
    finally:
        broker.stop()


class TestFolder:
    """Letters into files."""

    def of_file(self, number: int) -> DeadLetter:
        return DeadLetter(value=b"%d\xff" % number, file="in/a.csv", reason="r")

    def content(self, folder: Path) -> dict[str, list[bytes | None]]:
        return {
            file.name: [from_json_line(line).value for line in file.read_bytes().splitlines()]
            for file in folder.iterdir()
        }

    def test_a_file_a_task_and_a_replay_replaces_it(self, tmp_path: Path) -> None:
        target = pickle.loads(pickle.dumps(FolderDeadLetterTarget(tmp_path / "dead", "p", "s")))  # noqa: S301 - our own
        for _ in range(2):
            write_letters(target, task(3, 1), [self.of_file(0)], [self.of_file(1)])
        write_letters(target, task(3, 2), [self.of_file(2)])
        write_letters(target, task(3, 4))
        assert self.content(tmp_path / "dead") == {
            "q-3-1.jsonl": [b"0\xff", b"1\xff"],
            "q-3-2.jsonl": [b"2\xff"],
        }
        found = [one.letter for one in letters_in_folder(tmp_path / "dead")]
        assert {(one.pipeline, one.source, one.file) for one in found} == {("p", "s", "in/a.csv")}

    def test_nothing_is_seen_before_it_is_whole(self, tmp_path: Path) -> None:
        writer = FolderDeadLetterTarget(tmp_path, "p", "s").open(task())
        writer.write([self.of_file(0)])
        assert list(letters_in_folder(tmp_path)) == []
        writer.abandon()
        assert list(tmp_path.iterdir()) == []
        writer.close()
        assert list(tmp_path.iterdir()) == []

    def test_without_batches_no_file_is_replaced(self, tmp_path: Path) -> None:
        for number in range(2):
            write_letters(FolderDeadLetterTarget(tmp_path, "p", "s"), task(None), [self.of_file(number)])
        assert sorted(self.content(tmp_path).values()) == [[b"0\xff"], [b"1\xff"]]

    def test_batches_that_will_run_again_can_be_forgotten(self, tmp_path: Path) -> None:
        target = FolderDeadLetterTarget(tmp_path, "p", "s")
        for batch in (8, 9, 10, None):
            write_letters(target, task(batch, 2), [self.of_file(0)])
        write_letters(target, task(9, query="other"), [self.of_file(0)])
        target.forget("q", 9)
        assert {"q-8-2.jsonl", "other-9-0.jsonl"} < set(self.content(tmp_path))
        assert len(self.content(tmp_path)) == 3

    @pytest.mark.parametrize("at", ["write", "close"])
    def test_a_folder_that_cannot_be_written_fails_the_task(self, tmp_path: Path, at: str) -> None:
        (tmp_path / "file").write_bytes(b"")
        writer = FolderDeadLetterTarget(tmp_path / ("file" if at == "write" else "ok"), "p", "s").open(task())
        act: dict[str, Callable[[], None]] = {"write": lambda: writer.write([self.of_file(0)]), "close": writer.close}
        if at == "close":
            act["write"]()
            (tmp_path / "ok" / "q-0-0.jsonl").mkdir()
        with pytest.raises(FileUnusable):
            act[at]()
        writer.abandon()
