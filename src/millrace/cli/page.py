"""The options of commands that serve the page, and the page itself around what they do."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.output import say
from millrace.errors import InvalidOption
from millrace.settings import TOKEN

if TYPE_CHECKING:
    from millrace.clients.cluster import Cluster
    from millrace.dashboard.server import Options
    from millrace.dashboard.watching import Watching

LOCAL = "127.0.0.1"
_PANEL = "The page"
Dashboard = Annotated[
    bool, typer.Option("--dashboard/--no-dashboard", help="Serve a live page of the run.", rich_help_panel=_PANEL)
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        show_default="the first free one from 4040",
        help="The page's port.",
        rich_help_panel=_PANEL,
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host", help="The page's address; one beyond this machine asks for a token.", rich_help_panel=_PANEL
    ),
]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="No actions on the page, as SQL.", rich_help_panel=_PANEL)]
AllTopics = Annotated[
    bool,
    typer.Option(
        "--all-topics", help="Show every topic of the cluster, not only those of the run.", rich_help_panel=_PANEL
    ),
]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.", rich_help_panel=_PANEL)]


def page_options(port: int | None, host: str = LOCAL, *, read_only: bool = False, all_topics: bool = False) -> Options:
    """Return what was chosen for the page; the token comes from the environment alone, which others cannot see."""
    from millrace.dashboard.server import Options

    return Options(host, port, read_only, TOKEN.value(), all_topics)


def require_page(dashboard: bool, **options: object) -> None:
    """Refuse options of a page that is not wanted."""
    for name, value in options.items():
        if value and not dashboard:
            said = f"--{name.replace('_', '-')} is about the page, and --no-dashboard leaves that out"
            raise InvalidOption(said, hint="drop one of them")


@contextmanager
def with_kafka(page: Watching | None, cluster: Callable[[], Cluster] | None) -> Iterator[None]:
    """A time in which a page, if there is one, knows of a Kafka, if there is one."""
    if page is None or cluster is None:
        yield
        return
    with page.kafka(cluster):
        yield


@contextmanager
def served(page: Watching | None, *, open_: bool) -> Iterator[Watching | None]:
    """Serve a page for the time of a block, and say where it is."""
    if page is None:
        yield None
        return
    with page:
        say(f"the page is at {page.address}")
        if open_ and page.loopback:  # where this account needs no token, which a command line would show to all
            webbrowser.open(page.address.partition("?")[0])
        elif open_:
            say("open it yourself: on a browser's command line, every account of this machine could see the token")
        yield page
