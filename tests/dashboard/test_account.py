"""Whose a connection is."""

from __future__ import annotations

import os
import socket

import pytest

from millrace.dashboard import connections

PAIRS = [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "::1")]


@pytest.mark.parametrize(("family", "server", "client"), [*PAIRS, (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1")])
def test_the_kernel_and_its_lists_say_the_same(family: socket.AddressFamily, server: str, client: str) -> None:
    with socket.create_server((server, 0), family=family) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((client, port)), listener.accept()[0] as accepted:
            ends = accepted.getpeername()[:2], accepted.getsockname()[:2]
            asked, listed = list(connections._asked(*ends)), list(connections._listed(*ends))
            assert connections.account_of(*ends) == os.geteuid()
    assert asked == listed
    assert asked[0][0] == os.geteuid()


@pytest.mark.parametrize(("family", "server", "client"), PAIRS)
def test_a_socket_that_no_process_has_open_is_nobodys(
    family: socket.AddressFamily, server: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((server, 0), family=family) as listener:
        connection = socket.create_connection((client, listener.getsockname()[1]))
        with listener.accept()[0] as accepted:
            ends = accepted.getpeername()[:2], accepted.getsockname()[:2]
            connection.close()
            assert connections.account_of(*ends) is None
            monkeypatch.setattr(connections, "_asked", lambda *_: iter(()))
            assert connections.account_of(*ends) is None


def test_a_connection_that_does_not_exist_is_nobodys() -> None:
    assert connections.account_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
