"""The end of a transaction that is not to be: asked for again until it is there."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, Producer

_A_WHILE = 0.5
"""Seconds for one attempt."""


def abort(client: Producer, seconds: float) -> None:
    """Abort a transaction, within so many seconds; raises what Kafka says when it cannot be.

    Each attempt makes the client forget the records that wait. One that comes back at that very moment, to be sent
    again, is missed: the client would wait for it until its time is over, and readers with it. The next one finds it.
    """
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            client.abort_transaction(max(0.1, min(_A_WHILE, left)))
            return
        except KafkaException as error:
            if not error.args[0].retriable() or left <= 0:
                raise
