"""A service of ours in the terminal: what `kafka up` and `cassandra up` share.

What every command that starts Spark has ready before: the connectors, and an archive for quick starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from millrace.cli.output import fetching, out, say, status_line
from millrace.cli.signals import interruptible, until_stopped

if TYPE_CHECKING:
    from threading import Event

    from millrace.services.lifecycle import Embedded

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


def start_until_stopped(service: Embedded[Any, Any], *, detach: bool, data: str | None) -> None:
    """Start a service; unless detached, keep it until Ctrl-C."""
    if detach:
        start_service(service)
        flag = f" --data {data}" if data else ""
        say(f"it goes on in the background; stop it with: millrace {service.name.lower()} down{flag}")
        return
    with until_stopped() as stop:
        try:
            start_service(service)
            say("Ctrl-C stops it")
            _stay(service, stop)
        finally:
            service.stop()
    say("stopped; the data is kept")


def start_service(service: Embedded[Any, Client]) -> Client:
    """Start a service, telling what is being waited for and then the address (on standard output)."""
    from millrace.services.lifecycle import client_properties

    with interruptible(), fetching() as progress, status_line() as status:
        client = service.start(status, progress)
    out().print(f"{service.name} is up at {service.require_layout().address}", markup=False, soft_wrap=True)
    if service.require_layout().secure:
        say(f"clients need --{service.name.lower()}-config {client_properties(service.folder)}")
    return client


@contextmanager
def found_or_own(find: Callable[[], Client], own: Embedded[Any, Client]) -> Iterator[Client]:
    """The one that is named or runs already; else one of ours meanwhile."""
    try:
        try:
            client = find()
        except own.none:
            client = start_service(own)
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


def prepare_spark(*sets: str) -> None:
    """Fetch and make what is missing; the first time takes a while and says so. `sets` are jars besides Spark's."""
    from millrace.engine.session.class_archive import ensure_class_archive
    from millrace.engine.session.session import is_submitted

    if is_submitted():  # Spark runs, and has its jars
        return
    fetch_jars("spark", *sets)
    with interruptible(), status_line() as tell:
        ensure_class_archive(tell)


def fetch_jars(*sets: str) -> None:
    """Fetch the sets that are missing."""
    from millrace.services import jars

    for name in sets:
        with interruptible(), fetching() as progress:
            jars.ensure(name, progress)
