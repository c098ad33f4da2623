"""Questions to the coordinators of groups: how long they are waited for is decided here, not by the client.

librdkafka has a fault (its issue 4605, still in 2.16). When the time of such a question is over while the coordinator
is away, the client frees the question and does not forget it. Once the coordinator is there again it goes on with what
is freed: the process ends with an abort, if nothing worse. So a question gets a time that is never over; whoever gives
up closes the client, and its questions with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

T = TypeVar("T")
Question = Callable[[AdminClient, float], dict[str, Future[T]]]
"""Asks, with a time limit for the client, for something of each of some groups."""

_NEVER = 3600.0
"""Seconds: the longest limit that the client takes."""
_LONGEST = 1200.0
"""Seconds after which we give up, however much time was asked for: well before the client would."""


class Coordinators:
    """A client that asks coordinators and does nothing else, so that it can be closed without harm to others."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._open = ExitStack()
        self._client = self._open.enter_context(AdminClient(config))

    def ask(self, question: Question[T], seconds: float) -> dict[str, Future[T]]:
        """Answers that are there, or have failed; raises when for so many seconds none comes.

        A client that has raised is closed. That it is closed, and not only left, matters: who keeps an exception
        keeps the frames that it came through, and what is in them.
        """
        try:
            asked = question(self._client, _NEVER)
            _await(asked.values(), min(seconds, _LONGEST))
        except BaseException:
            self._open.close()
            raise
        return asked


def _await(asked: Collection[Future[T]], seconds: float) -> None:
    deadline = time.monotonic() + _LONGEST
    late = set(asked)
    while late:
        come, late = wait(late, seconds)
        if late and (not come or time.monotonic() > deadline):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the group's coordinator does not answer"))
