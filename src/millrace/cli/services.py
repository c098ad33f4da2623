"""Services and libraries that commands need.

- `start_until_stopped` is `kafka up` and `cassandra up`; `found_or_own` finds a service or starts one for a run.
- `prepare_spark` fetches Spark's jars and creates its class archive; `fetch_jars` fetches other sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from millrace.cli.app import SERVICE_PANEL
from millrace.cli.output import fetching, print_line, print_result, status_line
from millrace.cli.signals import interruptible, until_stopped

if TYPE_CHECKING:
    from millrace.services.lifecycle import Embedded

Client = TypeVar("Client")
_POLL_INTERVAL_S = 0.5
Secure = Annotated[
    bool | None,
    SERVICE_PANEL.option(
        "Require TLS and a password; the client properties are written to the data directory.",
        names="--secure/--plain",
        show_default="plain, or as before",
    ),
]


def detach_option(command: str) -> Any:
    """Return the option that leaves a service running."""
    return SERVICE_PANEL.flag(f"Run in the background; millrace {command} down stops it.")


def port_option(help_: str) -> Any:
    """Return the option for a service's port."""
    return SERVICE_PANEL.option(help_, "N", min=1024, max=65000, show_default="a free one")


def start_until_stopped(service: Embedded[Any, Any], *, detach: bool, data: str | None) -> None:
    """Start a service; unless detached, keep it until Ctrl-C."""
    if detach:
        start_service(service)
        flag = f" --data {data}" if data else ""
        print_line(f"it runs in the background; stop it with: millrace {service.name.lower()} down{flag}")
        return
    with until_stopped() as stop:
        try:
            start_service(service)
            print_line("Ctrl-C stops it")
            process = None
            while not process and not stop.wait(_POLL_INTERVAL_S):  # `down` may stop it as well
                process = service.died()
                if process and not process.was_stopped():
                    raise process.failure(f"{process.name} ended by itself")
        finally:
            service.stop()
    print_line("stopped; the data is kept")


def start_service(service: Embedded[Any, Client]) -> Client:
    """Start a service; print what is waited for and then the address (on standard output)."""
    from millrace.services.lifecycle import client_properties

    with interruptible(), fetching() as progress, status_line() as status:
        client = service.start(status, progress)
    print_result(f"{service.name} is up at {service.require_layout().address}")
    if service.require_layout().secure:
        print_line(f"clients need --{service.name.lower()}-config {client_properties(service.folder)}")
    return client


@contextmanager
def found_or_own(find: Callable[[], Client], own: Embedded[Any, Client]) -> Iterator[Client]:
    """Yield the service that is named or already runs; else start one and stop it after the block."""
    try:
        try:
            client = find()
        except own.none:
            client = start_service(own)
        yield client
    finally:
        own.stop()


def prepare_spark(*sets: str) -> None:
    """Fetch Spark's jars and the sets named, and create the class archive, unless they exist."""
    from millrace.engine.session.class_archive import ensure_class_archive
    from millrace.engine.session.session import is_submitted

    if is_submitted():  # Spark is running and has its jars
        return
    fetch_jars("spark", *sets)
    with interruptible(), status_line() as notify:
        ensure_class_archive(notify)


def fetch_jars(*sets: str) -> None:
    """Fetch the jar sets that are missing."""
    from millrace.services import jars

    for name in sets:
        with interruptible(), fetching() as progress:
            jars.ensure(name, progress)
