"""A connection to a broker."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from millrace.clients.kafka.authentication import AuthenticationFailed, tls_context
from millrace.clients.kafka.protocol import BrokerConnection, ConnectionLost


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


@pytest.mark.parametrize(
    ("answer", "error"), [(b"", ConnectionLost), (b"\0\0\0\4text", AuthenticationFailed)], ids=["closes", "without TLS"]
)
def test_a_broker_that_closes_in_a_tls_handshake_has_gone_and_refuses_nobody(
    answer: bytes, error: type[Exception]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:

        def serve() -> None:
            accepted, _ = broker.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(error):
            BrokerConnection(*broker.getsockname(), 10.0, tls_context({"security.protocol": "SSL"}))
        thread.join()
