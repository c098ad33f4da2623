"""A run's hold on its name: for whom it waits, for whom it gives way, and what it does after it has slept."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.consumer_groups import Member
from millrace.engine.checkpoints import run_lease as leases
from millrace.engine.checkpoints.run_lease import LeaseHolder, RunLease, RunLocks
from millrace.engine.checkpoints.state_dir import StateDir
from millrace.errors import KafkaFailed, KafkaUnreachable, StateMismatch
from millrace.pipeline.model import PipelineDef

NOWHERE = Cluster("127.0.0.1:9")


class Alone(RunLease):
    """A lease that joins no group: who is in it is said by the test."""

    def __init__(self, state: str = "mine") -> None:
        super().__init__(NOWHERE, "p", state, "ledger")
        self.joins = 0
        self.slept = False

    def _lapsed(self) -> bool:
        return self.slept or super()._lapsed()

    def _be_member(self) -> None:
        self._heard, self.slept = time.clock_gettime(leases._CLOCK), False
        self.joins += 1
        self._joined.set()
        while not self._stop.wait(0.01) and not self._lapsed():
            self._heard = time.clock_gettime(leases._CLOCK)


class Others:
    """Who is in the group, each time that somebody asks; the last answer stays."""

    def __init__(self, *answers: list[LeaseHolder]) -> None:
        self.asked = 0
        self._answers = list(answers)

    def __call__(self, *_: object) -> tuple[Member, ...]:
        self.asked += 1
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return tuple(Member("", one.client, "", ()) for one in found)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(leases, "_POLL", 0.01)
    monkeypatch.setattr(leases, "_SILENT", 0.3)
    return monkeypatch


def say(asked: pytest.MonkeyPatch, *answers: list[LeaseHolder]) -> Others:
    others = Others(*answers)
    asked.setattr(consumer_groups, "members", others)
    asked.setattr(leases, "_SLEPT", 3600.0)
    return others


def other(since: int = 1, state: str = "theirs", host: str = "elsewhere") -> LeaseHolder:
    return LeaseHolder(since, state, host, "7")


def test_one_that_was_killed_is_waited_for(asked: pytest.MonkeyPatch) -> None:
    others = say(asked, [other()], [other()], [])
    with Alone() as lease:
        lease.join()
    assert others.asked >= 3


def test_one_that_stays_is_not_disturbed(asked: pytest.MonkeyPatch) -> None:
    say(asked, [other()])
    with pytest.raises(StateMismatch, match="runs already") as raised, Alone():
        pass
    assert "process is 7 on elsewhere" in str(raised.value.why)


def test_of_two_at_once_the_later_one_gives_way(asked: pytest.MonkeyPatch) -> None:
    others = say(asked, [], [other(since=10**15)], [other(since=10**15)], [])
    with Alone() as earlier:
        earlier.join()
    assert others.asked >= 4
    say(asked, [], [other(since=1)])
    with Alone() as later, pytest.raises(StateMismatch):
        later.join()


def test_whoever_was_let_in_before_stays_whatever_its_clock_says(asked: pytest.MonkeyPatch) -> None:
    say(asked, [], [other(since=10**15)])
    with Alone() as slow, pytest.raises(StateMismatch, match="runs already"):
        slow.join()


def test_a_name_that_another_has_taken_meanwhile_is_not_held(asked: pytest.MonkeyPatch) -> None:
    others = say(asked, [], [], [], [other(since=10**15)])
    with Alone() as lease:
        assert not lease.is_held()  # nobody has let us in yet
        lease.join()
        assert lease.is_held()
        assert not lease.is_held()
    assert others.asked >= 4
    assert not lease.is_held()


def test_ones_own_folder_is_not_waited_for_but_a_copy_of_it_is(asked: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pipeline = PipelineDef("p")
    names = []
    for folder in ("here", "copied"):
        state = StateDir(tmp_path / folder, pipeline)
        state.id = "the-same"
        names.append(state.identity)
    assert len(set(names)) == 2
    mine = Alone(names[0])
    say(asked, [mine._me, other(state=names[0], host=mine._me.host)])
    with mine:
        mine.join()
    say(asked, [other(state=names[1], host=mine._me.host)])
    with pytest.raises(StateMismatch), Alone(names[0]):
        pass


def test_whoever_has_not_slept_asks_nobody(asked: pytest.MonkeyPatch) -> None:
    others = say(asked, [])
    with Alone() as lease:
        lease.join()
        before = others.asked
        lease.check()
        assert others.asked == before


def test_whoever_has_slept_gives_way_to_who_came_meanwhile(asked: pytest.MonkeyPatch) -> None:
    say(asked, [])
    with Alone() as lease:
        lease.join()
        since = lease._me.since
        say(asked, [other(since=since + 1)])
        lease.join()  # it was there first
        pause = threading.Event()
        while round(time.time() * 1000) <= since + 1:
            pause.wait(0.001)
        lease.slept = True
        with pytest.raises(StateMismatch, match="runs already"):
            lease.check()
        assert lease.joins == 2
        assert lease._me.since > since + 1


def test_whoever_has_slept_gives_way_also_with_a_clock_that_is_slow(asked: pytest.MonkeyPatch) -> None:
    say(asked, [])
    with Alone() as lease:
        lease.join()
        say(asked, [other(since=10**15)])
        lease.slept = True
        with pytest.raises(StateMismatch, match="runs already"):
            lease.check()


def test_whoever_has_slept_alone_goes_on(asked: pytest.MonkeyPatch) -> None:
    say(asked, [])
    with Alone() as lease:
        lease.join()
        lease.slept = True
        lease.check()
        assert lease.joins == 2


def test_a_coordinator_that_does_not_answer_is_asked_once_more(asked: pytest.MonkeyPatch) -> None:
    clusters: list[Cluster] = []

    def members(cluster: Cluster, _: str) -> tuple[Member, ...]:
        clusters.append(cluster)
        if len(clusters) == 1:
            raise KafkaUnreachable("no broker answers")
        return ()

    asked.setattr(consumer_groups, "members", members)
    with Alone():
        assert len(clusters) == 2


def test_a_group_that_lets_nobody_in(asked: pytest.MonkeyPatch) -> None:
    say(asked, [])
    asked.setattr(leases, "_PATIENCE", 0.05)
    asked.setattr(Alone, "_be_member", lambda self: self._stop.wait(60))
    with Alone() as lease, pytest.raises(KafkaFailed, match="could not join"):
        lease.join()


def test_a_start_asks_kafka_though_this_run_was_never_silent(asked: pytest.MonkeyPatch, tmp_path: Path) -> None:
    say(asked, [])
    with Alone() as lease:
        locks = RunLocks(StateDir(tmp_path, PipelineDef("p")), lease)
        locks.check_start()
        say(asked, [other(since=0)])
        locks.check()  # before a batch: nobody is asked
        with pytest.raises(StateMismatch, match="runs already"):
            locks.check_start()
