"""Coordinators of groups that do not answer: who asks them gives up, and does not come to harm when they are back."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.synchronize import Event

import pytest
from confluent_kafka.admin import AdminClient

from gate import Gate
from millrace.clients import groups
from millrace.clients.cluster import Cluster
from millrace.errors import KafkaFailed, KafkaUnreachable

NOBODY = "127.0.0.1:9"


def ask(cluster: Cluster) -> bool:
    """Whether somebody answers."""
    with suppress(KafkaUnreachable, KafkaFailed):  # or it has just come, and does not know its groups yet
        groups.members(cluster, "nobody")
        return True
    return False


def ask_until_answered(address: str, asked: Event) -> None:
    """Ask some times while nobody is there, and then until somebody is."""
    cluster = Cluster(address, timeout=1.0)
    with ThreadPoolExecutor() as pool:
        assert not any(pool.map(ask, [cluster] * 5))
    asked.set()
    while not ask(cluster):
        pass


def test_questions_that_were_given_up_do_no_harm_when_the_broker_is_back(cluster: Cluster) -> None:
    apart = multiprocessing.get_context("spawn")  # librdkafka ends the process where it finds such questions
    asked = apart.Event()
    with Gate(cluster.bootstrap) as gate:
        child = apart.Process(target=ask_until_answered, args=(gate.address, asked))
        child.start()
        while not asked.wait(0.1):
            assert child.is_alive()
        gate.open()
        child.join()
    assert child.exitcode == 0


def test_a_client_that_owes_an_answer_is_closed_and_another_one_asks(cluster: Cluster) -> None:
    clients: list[AdminClient] = []

    def question(admin: AdminClient, limit: float) -> dict[str, Future[object]]:
        clients.append(admin)
        return {"g": Future()} if len(clients) == 1 else answered

    answered: dict[str, Future[object]] = {"g": Future()}
    answered["g"].set_result(None)
    impatient = Cluster(cluster.bootstrap, timeout=0.1)
    with pytest.raises(KafkaUnreachable, match="could not look"):
        impatient.ask_coordinators("look", question)
    with pytest.raises(RuntimeError, match="closed"):
        clients[0].list_topics(timeout=0.1)
    impatient.ask_coordinators("look", question)
    impatient.ask_coordinators("look", question)
    assert clients[0] is not clients[1] is clients[2]


def test_nobody_is_there_at_all() -> None:
    with pytest.raises(KafkaUnreachable, match="describe the group 'g'"):
        groups.members(Cluster(NOBODY, timeout=0.1), "g")


def test_a_cluster_that_has_asked_can_travel(cluster: Cluster) -> None:
    ask(cluster)
    assert pickle.loads(pickle.dumps(cluster)) == cluster  # noqa: S301 - our own bytes
