"""Dead letters of topics, sent again: each once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from confluent_kafka import Message
from confluent_kafka import Producer as ConfluentProducer

from millrace.clients.kafka import topics
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer import topic_ranges
from millrace.clients.kafka.record import Record
from millrace.dead_letters import redrive
from millrace.dead_letters.fixes import Fix
from millrace.dead_letters.letter import REDRIVEN_HEADER, DeadLetter, dead_topic, to_headers
from millrace.dead_letters.redrive import Redrive, RedriveTarget, redrive_topic
from millrace.dead_letters.redrive_filter import RedriveFilter
from millrace.dead_letters.redrive_result import RedriveResult
from millrace.dead_letters.store import (
    StoredDeadLetter,
    create_dead_letter_topics,
    letters_in_ranges,
    letters_in_topics,
    redrive_markers_in_topics,
)
from millrace.errors import KafkaFailed, MillraceError, RedriveBusy, UnknownTopic

Drain = Callable[..., list[Message]]
Put = Callable[..., object]
MOMENT = 1_700_000_000_000


class Place:
    """A topic with dead letters."""

    def __init__(self, cluster: Cluster, topic: str, put: Put) -> None:
        self.cluster, self.topic, self.dead = cluster, topic, dead_topic(topic)
        self._put = put
        create_dead_letter_topics(cluster, {topic: self.dead})

    def letter(self, number: int, **more: Any) -> DeadLetter:
        common = {"key": b"k%d" % number, "timestamp": MOMENT + number, "reason": "not JSON", "pipeline": "p"}
        place = {"topic": self.topic, "partition": number % 3, "offset": number, "source": "s"}
        return DeadLetter(**{"value": b"%d" % number, "headers": (("trace", b"x"),), **place, **common, **more})

    def bury(self, *letters: DeadLetter) -> None:
        """Letters as an undertaker writes them."""
        records = [Record(one.value, one.key, None, tuple(to_headers(one)), one.partition) for one in letters]
        self._put(self.dead, *records)

    def redrive(
        self, fix: Callable[[DeadLetter], object] | None = None, to: str | None = None, **chosen: Any
    ) -> RedriveResult:
        wanted = (
            Redrive(RedriveFilter(**chosen), Fix("mend.py:mend", fix), to)
            if fix
            else Redrive(RedriveFilter(**chosen), to=to)
        )
        return redrive_topic(self.cluster, self.dead, wanted)

    def found(self) -> list[StoredDeadLetter]:
        marks = redrive_markers_in_topics(self.cluster, [self.dead])
        return list(letters_in_topics(self.cluster, [self.dead], markers=marks))

    def open(self) -> set[int]:
        """The offsets of records whose letters are open."""
        return {one.letter.offset or 0 for one in self.found() if not one.redriven}


@pytest.fixture
def place(cluster: Cluster, topic: str, put: Put) -> Place:
    """A topic whose dead letters are none yet."""
    return Place(cluster, topic, put)


def values(messages: list[Message]) -> list[int]:
    return sorted(int(one.value() or b"-1") for one in messages)


def provenance(message: Message) -> dict[str, Any]:
    headers = dict(message.headers() or [])
    told: dict[str, Any] = orjson.loads(headers[REDRIVEN_HEADER])  # type: ignore[arg-type]
    return told


def test_records_go_back_as_they_were_and_once(place: Place, drain: Drain) -> None:
    place.bury(*(place.letter(number) for number in range(6)), place.letter(6, value=None, key=None, timestamp=None))
    assert place.redrive() == RedriveResult(sent=7)
    assert place.open() == set()
    assert all(one.redriven for one in place.found())
    assert place.redrive() == RedriveResult()
    sent = drain(place.topic)
    by_value = {one.value(): one for one in sent}
    assert len(sent) == 7
    five = by_value[b"5"]
    assert (five.key(), five.partition(), five.timestamp()[1]) == (b"k5", 2, MOMENT + 5)
    assert (five.headers() or [])[0] == ("trace", b"x")
    told = provenance(five)
    assert told.pop("at") > MOMENT
    assert told.pop("dead").startswith(f"{place.dead}[2]@")
    assert told == {
        "attempt": 2,
        "topic": place.topic,
        "partition": 2,
        "offset": 5,
        "timestamp": MOMENT + 5,
        "reason": "not JSON",
        "pipeline": "p",
        "source": "s",
        "fix": None,
    }
    assert by_value[None].key() is None
    assert by_value[None].timestamp()[1] > MOMENT  # it had none


def test_marks_are_no_strange_records(place: Place) -> None:
    place.bury(place.letter(0), place.letter(1))
    place.redrive(reason="not JSON")
    strange: list[None] = []
    marked: list[object] = []
    ranges = topic_ranges(place.cluster, [place.dead])
    found = list(
        letters_in_ranges(place.cluster, ranges, lambda: strange.append(None), lambda *told: marked.append(told))
    )
    assert (len(found), len(strange), len(marked)) == (2, 0, 2)


def test_chosen_by_reason_time_source_and_place(place: Place, drain: Drain) -> None:
    place.bury(*(place.letter(number, reason=f"not JSON at {number}") for number in range(3)))
    place.bury(*(place.letter(number, source="t", reason="field is missing") for number in (3, 4, 5)))
    place.bury(place.letter(6, pipeline="q"))
    lies = {one.letter.offset: one for one in place.found()}
    assert place.redrive(reason="not JSON at 1").sent == 1
    assert place.open() == {0, 2, 3, 4, 5, 6}
    assert place.redrive(reason="not JSON at N").sent == 2
    assert place.redrive(letter=lies[3].position).sent == 1
    assert place.redrive(letter=lies[3].position) == RedriveResult()
    assert place.redrive(letter=lies[4].letter.origin).sent == 1
    assert place.redrive(containing="MISSING", until=lies[5].stored_at).sent == 0
    assert place.redrive(since=lies[6].stored_at + 1).sent == 0
    assert place.redrive(source="t", since=lies[5].stored_at, until=lies[6].stored_at + 1).sent == 1
    assert place.redrive(pipeline="p").sent == 0
    assert place.redrive(pipeline="q", partition=0, offset=6).sent == 1
    assert values(drain(place.topic)) == list(range(7))


def test_a_fix_mends_leaves_and_fails(place: Place, drain: Drain) -> None:
    place.bury(*(place.letter(number) for number in range(4)))

    def mend(letter: DeadLetter) -> object:
        if letter.offset == 1:
            raise ValueError("not one")
        return {0: b"100", 2: None, 3: Record(b"300", b"other")}[letter.offset or 0]

    outcome = place.redrive(mend)
    assert (outcome.sent, outcome.left, outcome.failed) == (2, 1, 1)
    assert outcome.failures[0].place == f"{place.topic}[1]@1"
    assert "ValueError: not one" in outcome.failures[0].why
    assert place.open() == {1, 2}
    sent = {one.value(): one for one in drain(place.topic)}
    assert provenance(sent[b"100"])["fix"] == "mend.py:mend"
    assert sent[b"300"].key() == b"other"


def test_a_record_with_letters_of_several_pipelines_goes_once(place: Place, drain: Drain) -> None:
    place.bury(place.letter(0), place.letter(0, pipeline="q", reason="another"), place.letter(1))
    assert place.redrive(pipeline="p").sent == 2
    assert place.open() == set()
    place.bury(place.letter(1, pipeline="late"))
    assert place.open() == {1}
    assert place.redrive() == RedriveResult(already=1)
    assert place.open() == set()
    place.bury(place.letter(1, value=b"2", pipeline="of a topic that was made anew"))
    assert place.redrive().sent == 1
    assert values(drain(place.topic)) == [0, 1, 2]


def test_what_dies_again_has_its_attempts(place: Place, drain: Drain) -> None:
    place.bury(place.letter(300))
    for attempt in (2, 3):
        place.redrive()
        sent = drain(place.topic)[-1]
        headers: Any = tuple(sent.headers() or ())
        assert [name for name, _ in headers] == ["trace", REDRIVEN_HEADER]
        again = place.letter(300, headers=headers, offset=sent.offset())
        assert again.attempts == attempt
        place.bury(again)
    assert [one.letter.attempts for one in place.found()] == [1, 2, 3]


def test_into_another_topic_and_into_none(place: Place, lane: str, drain: Drain) -> None:
    place.bury(place.letter(0), place.letter(1, topic="gone"), place.letter(2))
    assert place.redrive(to=lane, offset=0).sent == 1
    assert values(drain(lane)) == [0]
    outcome = place.redrive()
    assert (outcome.sent, outcome.failed) == (1, 1)
    assert "gone" in outcome.failures[0].why
    assert values(drain(place.topic)) == [2]
    with pytest.raises(UnknownTopic):
        redrive_topic(place.cluster, f"{place.topic}.none.dead", Redrive())


def test_what_is_too_large_stays_and_the_others_go(place: Place, drain: Drain, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.alter(place.cluster, place.topic, configs={"max.message.bytes": "2000"})
    noise = os.urandom(5000)
    place.bury(place.letter(0), place.letter(1, value=noise), place.letter(2))
    outcome = place.redrive()
    assert (outcome.sent, outcome.failed, outcome.failures[0].place) == (2, 1, f"{place.topic}[1]@1")
    place.bury(place.letter(3), place.letter(5))
    monkeypatch.setattr(RedriveTarget, "refusal", lambda *_: None)  # Kafka itself refuses it
    outcome = place.redrive()
    assert (outcome.sent, outcome.failed, outcome.failures[0].place) == (2, 1, f"{place.topic}[1]@1")
    assert values(drain(place.topic)) == [0, 2, 3, 5]
    assert place.open() == {1}


def test_a_record_that_would_be_deleted_at_once_gets_the_present_time(place: Place, drain: Drain) -> None:
    topics.alter(place.cluster, place.topic, configs={"retention.ms": "86400000"})
    place.bury(place.letter(0))
    place.redrive()
    (sent,) = drain(place.topic)
    assert sent.timestamp()[1] > MOMENT + 86_400_000
    assert provenance(sent)["timestamp"] == MOMENT


def test_a_mark_behind_an_open_transaction_is_waited_for(place: Place, drain: Drain) -> None:
    place.bury(place.letter(0))
    burying = ConfluentProducer(place.cluster.config(transactional_id=f"burying-{place.topic}"))
    burying.init_transactions(30)
    burying.begin_transaction()
    new = place.letter(3)
    burying.produce(place.dead, new.value, new.key, partition=0, headers=to_headers(new))
    burying.flush(30)
    waiting = threading.Thread(target=place.redrive)
    waiting.start()
    waiting.join(3)
    assert waiting.is_alive()  # longer than those who only look would wait
    burying.commit_transaction(30)
    waiting.join(60)
    assert values(drain(place.topic)) == [0, 3]


def test_two_at_once(place: Place, drain: Drain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "MAX_TRANSACTION_LETTERS", 5)
    place.bury(*(place.letter(number) for number in range(300)))
    outcomes: list[RedriveResult] = []
    fenced: list[MillraceError] = []

    def run() -> None:
        try:
            outcomes.append(redrive_topic(Cluster(place.cluster.bootstrap), place.dead, Redrive()))
        except (RedriveBusy, KafkaFailed) as error:  # Kafka does not always say why it refused
            fenced.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) + len(fenced) == 3
    assert outcomes
    assert place.open() == set()
    assert values(drain(place.topic)) == list(range(300))


KILLED = """
import os, signal, sys
from confluent_kafka import Producer
from millrace.clients.kafka import transactions
from millrace.dead_letters.redrive import redrive_topic
from millrace.dead_letters import redrive
from millrace.clients.kafka.cluster import Cluster
from millrace.dead_letters.redrive import Redrive

left = int(sys.argv[3])

def step():
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Killed(Producer):
    def begin_transaction(self, *given):
        step()
        return super().begin_transaction(*given)
    def produce(self, *given, **named):
        step()
        return super().produce(*given, **named)
    def flush(self, *given):
        step()
        super().flush(*given)
        step()
    def commit_transaction(self, *given):
        super().commit_transaction(*given)
        step()

transactions.Producer = Killed
redrive.MAX_TRANSACTION_LETTERS = 2
redrive_topic(Cluster(sys.argv[1]), sys.argv[2], Redrive())
"""


def test_killed_at_any_step_each_goes_once(place: Place, drain: Drain) -> None:
    number = 0
    for step in (0, 1, 2, 4, 5, 6, 7, 8, 12, 14):
        place.bury(*(place.letter(number + one) for one in range(4)))
        number += 4
        arguments = [place.cluster.bootstrap, place.dead, str(step)]
        ran = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=120)
        assert ran.returncode == -signal.SIGKILL
    place.redrive()
    sent = Counter(values(drain(place.topic)))
    assert sent == Counter(range(number))
    assert place.open() == set()
    raw = drain(place.topic, committed=False)
    assert len(raw) > number  # there were records of transactions that did not come to an end
