"""Addresses as people write them."""

from __future__ import annotations

import pytest

from millrace.clients.properties import host_ports, tidy_addresses
from millrace.errors import InvalidOption


def test_hosts_and_ports() -> None:
    assert host_ports("a:1, [::1]:9092,b", "Cassandra", 9042) == [("a", 1), ("::1", 9092), ("b", 9042)]
    assert tidy_addresses(" a:1, b:2 ", "Kafka") == "a:1,b:2"


@pytest.mark.parametrize("wrong", ["", "a", "a:", "a:0", "a:65536", "a b:1", "a:1,", "a:1;b:2", "kafka://a:1"])
def test_no_address(wrong: str) -> None:
    with pytest.raises(InvalidOption, match="is not an address of Kafka"):
        tidy_addresses(wrong, "Kafka")
