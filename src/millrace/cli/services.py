"""A service of ours in the terminal: what `kafka up` and `cassandra up` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from millrace.cli.output import fetching, out, say, status_line
from millrace.cli.signals import interruptible, until_stopped

if TYPE_CHECKING:
    from threading import Event

    from millrace.services.embedded import Embedded

Client = TypeVar("Client")
Secure = Annotated[
    bool | None,
    typer.Option(
        "--secure/--plain",
        show_default="plain, or as the data was",
        help="Ask clients for TLS and a password; the client properties are written beside the data.",
    ),
]


def detach_option(command: str) -> Any:
    """The option that leaves a service running."""
    return typer.Option("--detach", help=f"Leave it running; stop it with millrace {command} down.")


def up(service: Embedded[Any, Any], *, detach: bool, data: str | None) -> None:
    """Start a service; unless detached, keep it until Ctrl-C."""
    if detach:
        start(service)
        flag = f" --data {data}" if data else ""
        say(f"it goes on in the background; stop it with: millrace {service.name.lower()} down{flag}")
        return
    with until_stopped() as stop:
        try:
            start(service)
            say("Ctrl-C stops it")
            _stay(service, stop)
        finally:
            service.stop()
    say("stopped; the data is kept")


def start(service: Embedded[Any, Client]) -> Client:
    """Start a service, telling what is being waited for and then the address (on standard output)."""
    from millrace.services.embedded import client_properties

    with interruptible(), fetching() as progress, status_line() as status:
        client = service.start(status, progress)
    out().print(f"{service.name} is up at {service.known().address}", markup=False, soft_wrap=True)
    if service.known().secure:
        say(f"clients need --{service.name.lower()}-config {client_properties(service.folder)}")
    return client


@contextmanager
def found_or_own(find: Callable[[], Client], own: Embedded[Any, Client]) -> Iterator[Client]:
    """The one that is named or runs already; else one of ours meanwhile."""
    try:
        try:
            client = find()
        except own.none:
            client = start(own)
        yield client
    finally:
        own.stop()


def _stay(service: Embedded[Any, Any], stop: Event) -> None:
    """Wait for Ctrl-C, or until somebody else has stopped it (`down`); a process that fails raises."""
    while not stop.wait(0.5):
        gone = service.died()
        if gone and not gone.was_stopped():
            raise gone.failure(f"{gone.name} ended by itself")
        if gone:
            return
