"""The feed of Flume's agents."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from millrace.errors import InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.listeners.backpressure import queued_batches
from millrace.feeds.listeners.flume_server import FlumeListenerOptions, FlumeServer
from millrace.plugins import option
from millrace.sockets import address_of, format_address, is_loopback, listening_socket


@dataclass(frozen=True, kw_only=True)
class Flume(Feed):
    """What agents of Apache Flume send with their Avro sink, each batch answered once the sink has it.

    It speaks Flume's Avro RPC (append and appendBatch), plain or with `compression-type = deflate`. An event's body
    becomes the value, its headers become headers, and the header that --key names the key. A batch is answered OK when
    the sink has all of it, and FAILED when it has not: the agent keeps its events in its channel and sends them again.

    At least once: an agent that got no answer in time (its `request-timeout`, 20 s) sends its batch again.
    """

    delivery_timeout: ClassVar[float] = 15.0  # less than an agent's 20 s, so that it gets FAILED before it gives up

    host: str = option("127.0.0.1", "The address to listen at; beyond this machine it needs --allow.")
    port: int = option(4141, "The port to listen at; 0 is a free one.")
    key: str | None = option("key", "The header whose value becomes the record's key.")
    allow: str | None = option(None, "Who may send, as 10.1.0.0/16,10.2.0.7; 0.0.0.0/0 is everybody.")
    max_bytes: int = option(16_000_000, "The largest batch that is taken, in bytes.")

    def batches(self, run: Run) -> Iterator[Batch]:
        if self.max_bytes <= 0:
            raise InvalidOption(f"max-bytes: {self.max_bytes} is not above zero")
        options = FlumeListenerOptions(self.max_bytes, self.key, networks(self.allow or ""))
        server = FlumeServer(options, run.notify)
        listener = listening_socket(self._address(), self.port)
        address = format_address(listener)
        server.start(listener)
        try:
            run.notify(f"listening for agents of Flume at {address}")
            run.ready()
            yield from queued_batches(server.batches, run.stop)
        finally:
            # Agents whose events the sink still has are answered after this, when it confirms them. The server's
            # thread runs until then; it is no daemon, so the process waits for it.
            server.stop()

    def _address(self) -> str:
        _, address = address_of(self.host, self.port)
        if not self.allow and not is_loopback(address):
            raise InvalidOption(
                f"{self.host} can be reached from other machines, and Flume's protocol has no passwords",
                hint="say who may send with --allow 10.1.0.0/16, or listen at 127.0.0.1",
            )
        return address


def networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks of a comma-separated list."""
    try:
        return tuple(ipaddress.ip_network(network.strip()) for network in text.split(",") if network.strip())
    except ValueError as error:
        raise InvalidOption(
            f"allow: {text!r} is not a list of networks", why=str(error), hint="write 10.1.0.0/16,10.2.0.7"
        ) from None
