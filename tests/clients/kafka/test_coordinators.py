"""Coordinators of groups that do not answer: who asks them gives up, and does not come to harm when they are back."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import Future

import pytest
from confluent_kafka.admin import AdminClient

from gate import Gate
from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import KafkaUnreachable

NOBODY = "127.0.0.1:9"


CHILD = """
import sys
from concurrent.futures import ThreadPoolExecutor
from millrace.clients.kafka import consumer_groups
from millrace.clients.kafka.cluster import Cluster
from millrace.errors import KafkaFailed, KafkaUnreachable

def ask(cluster):
    try:
        return consumer_groups.members(cluster, "nobody") == ()
    except (KafkaUnreachable, KafkaFailed):  # or it has just come, and does not know its groups yet
        return False

cluster = Cluster(sys.argv[1], timeout=1.0)
with ThreadPoolExecutor() as pool:
    assert not any(pool.map(ask, [cluster] * 5))
print("asked", flush=True)
while not ask(cluster):
    pass
"""
"""Asks some times while nobody is there, and then until somebody is."""


def test_questions_that_were_given_up_do_no_harm_when_the_broker_is_back(cluster: Cluster) -> None:
    # In a process of its own, which librdkafka would end when it finds such questions.
    with (
        Gate(cluster.bootstrap) as gate,
        subprocess.Popen([sys.executable, "-c", CHILD, gate.address], stdout=subprocess.PIPE) as child,
    ):
        assert child.stdout
        assert child.stdout.readline() == b"asked\n"
        gate.open()
        assert child.wait() == 0


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
        consumer_groups.members(Cluster(NOBODY, timeout=0.1), "g")


def test_a_cluster_that_has_asked_can_travel(cluster: Cluster) -> None:
    consumer_groups.members(cluster, "nobody")
    assert pickle.loads(pickle.dumps(cluster)) == cluster  # noqa: S301 - our own bytes
