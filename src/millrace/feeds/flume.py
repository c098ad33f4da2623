"""The feed of Flume's agents."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty
from typing import ClassVar

from millrace.errors import InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.listeners.flume_server import FlumeListenerOptions, FlumeServer
from millrace.plugins import option
from millrace.sockets import address_of, is_loopback, listening_socket, shown_address

_TICK = 0.1


@dataclass(frozen=True, kw_only=True)
class Flume(Feed):
    """What agents of Apache Flume send with their Avro sink, each batch answered once the sink has it.

    It speaks Flume's Avro RPC (append and appendBatch), plain or with `compression-type = deflate`. An event's body
    becomes the value, its headers become headers, and the header that --key names the key. A batch is answered OK when
    the sink has all of it, and FAILED when it has not: the agent keeps its events in its channel and sends them again.

    At least once: an agent that got no answer in time (its `request-timeout`, 20 s) sends its batch again.
    """

    patience: ClassVar[float] = 15.0  # less than an agent's 20 s: it is told FAILED before it gives up, and sends once

    host: str = option("127.0.0.1", "The address to listen at; beyond this machine it needs --allow.")
    port: int = option(4141, "The port to listen at; 0 is a free one.")
    key: str | None = option("key", "The header whose value becomes the record's key.")
    allow: str | None = option(None, "Who may send, as 10.1.0.0/16,10.2.0.7; 0.0.0.0/0 is everybody.")
    max_bytes: int = option(16_000_000, "The largest batch that is taken, in bytes.")

    def batches(self, run: Run) -> Iterator[Batch]:
        """One batch a call, as they come."""
        agents = FlumeServer(FlumeListenerOptions(self._largest(), self.key, networks(self.allow or "")), run.say)
        listener = listening_socket(self._address(), self.port)
        there = shown_address(listener)
        agents.start(listener)

        def take() -> Batch | None:
            while not run.stop.is_set():
                try:
                    return agents.batches.get(timeout=_TICK)
                except Empty:
                    continue
            return None

        try:
            run.say(f"listening for agents of Flume at {there}")
            run.ready()
            # Not a loop with a name for the batch: who drops its receipt must be the sink and nobody else.
            yield from iter(take, None)
        finally:
            # The agents whose events the sink still works on are answered after this, when it has. So its thread goes
            # on until they are; it is no daemon, and the process waits for it.
            agents.stop()

    def _largest(self) -> int:
        if self.max_bytes <= 0:
            raise InvalidOption(f"max-bytes: {self.max_bytes} is not above zero")
        return self.max_bytes

    def _address(self) -> str:
        _, address = address_of(self.host, self.port)
        if not self.allow and not is_loopback(address):
            raise InvalidOption(
                f"{self.host} can be reached from other machines, and Flume's protocol knows no passwords",
                hint="say who may send with --allow 10.1.0.0/16, or listen at 127.0.0.1",
            )
        return address


def networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Addresses and networks, with commas between them."""
    try:
        return tuple(ipaddress.ip_network(one.strip()) for one in text.split(",") if one.strip())
    except ValueError as error:
        raise InvalidOption(
            f"allow: {text!r} is not a list of networks", why=str(error), hint="write 10.1.0.0/16,10.2.0.7"
        ) from None
