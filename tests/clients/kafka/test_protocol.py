"""A connection to a broker."""

from __future__ import annotations

import socket
import time

from millrace.clients.kafka.protocol import BrokerConnection


def test_a_connection_that_the_broker_has_closed_is_not_used_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        connection = BrokerConnection(*broker.getsockname(), 10.0)
        accepted, _ = broker.accept()
        assert connection.idle
        accepted.close()
        deadline = time.monotonic() + 10
        while connection.idle:
            assert time.monotonic() < deadline
        connection.close()
