"""A connection to a broker."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from millrace.clients.kafka.authentication import AuthenticationFailed, Sasl, tls_context
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


@pytest.mark.parametrize(
    "answers",
    [
        [b"\xff\xff\xff\xff"],
        [b"\0\0\0\1\0"],
        [b"\0\0\0\x0a\0\0\0\1\0\0\0\0\0\0", b"\0\0\0\x0d\0\0\0\2\0\x3a\0\1\xff\0\0\0\0"],
    ],
    ids=["a length below zero", "no number", "text that is none"],
)
def test_responses_that_cannot_be_read_are_a_lost_connection(answers: list[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:

        def serve() -> None:
            accepted, _ = broker.accept()
            with accepted:
                for answer in answers:
                    accepted.recv(65536)
                    accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionLost, match="cannot be read"):
            BrokerConnection(*broker.getsockname(), 10.0, sasl=Sasl("PLAIN", "me", "mine"))
        thread.join()
