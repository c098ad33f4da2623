"""The options of a run that say what happens when something fails, and the alerts around it.

The options of commands that serve the page, and the page itself around what they do.
"""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.options import setting_option
from millrace.cli.output import say
from millrace.errors import InvalidOption
from millrace.settings import ALERT, ALERT_DEAD, ALERT_LAG, RESTARTS, STOP_TIMEOUT, TOKEN, Setting

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage
    from millrace.dashboard.server import ServerOptions
    from millrace.engine.supervision.restart_policy import Policy
    from millrace.pipeline.plan import Plan
    from millrace.telemetry.alerts import Limits, Send
    from millrace.telemetry.query_status import RunStatus

_FAILURE_PANEL = "When something fails"


def _option(setting: Setting[Any], metavar: str, flag: str | None = None) -> Any:
    made = setting_option(setting, metavar, flag)
    made.rich_help_panel = _FAILURE_PANEL
    return made


Restarts = Annotated[str | None, _option(RESTARTS, "N")]
Patience = Annotated[str | None, _option(STOP_TIMEOUT, "DURATION", STOP_TIMEOUT.old_flag)]
AlertTo = Annotated[str | None, _option(ALERT, "URL|COMMAND")]
AlertLag = Annotated[str | None, _option(ALERT_LAG, "LAG")]
AlertDead = Annotated[str | None, _option(ALERT_DEAD, "RATE")]


@dataclass(frozen=True)
class AlertOptions:
    """Where alerts go, and what is too much."""

    send: Send
    limits: Limits


def restart_policy(restarts: str | None) -> Policy:
    """How often queries are restarted."""
    from millrace.engine.supervision.restart_policy import Policy

    return Policy(restarts=RESTARTS.value(restarts))


def alerts_of(to: str | None, lag: str | None, dead: str | None) -> AlertOptions | None:
    """The alerts that were asked for; raises when what was asked for cannot be."""
    from millrace.telemetry.alerts import Limits, alert_sender

    target = ALERT.value(to)
    if target is None:
        if lag or dead:
            raise InvalidOption("--alert-lag and --alert-dead need somebody to tell", hint="add --alert URL_OR_COMMAND")
        return None
    return AlertOptions(alert_sender(target), Limits(ALERT_LAG.value(lag), ALERT_DEAD.value(dead)))


@contextmanager
def alerting(
    alerts: AlertOptions | None,
    plan: Plan,
    run_status: RunStatus,
    page: RunPage | None,
    cluster: Callable[[], Cluster] | None,
) -> Iterator[None]:
    """A time in which alerts are sent; an error that ends it is one of them."""
    if alerts is None:
        yield
        return
    from millrace.connectors.base.registry import topics_read
    from millrace.telemetry.alerts import POLL_INTERVAL_S, AlertMonitor, AlertSender
    from millrace.telemetry.measurements import Measurements, Sampler
    from millrace.telemetry.topology import topology_of

    with ExitStack() as opened:
        sender = AlertSender(alerts.send, say)
        opened.callback(sender.close)
        measurements = page.measurements if page else Measurements()
        topology = topology_of(plan, topics_read(plan.pipeline))
        monitor = AlertMonitor(plan.pipeline.name, run_status, measurements, topology, alerts.limits, sender.send)
        if page is None and cluster and alerts.limits.lag:
            opened.callback(_metered(cluster, run_status, measurements, plan))
        sampler = Sampler("alerts", lambda: monitor.look(time.monotonic()), POLL_INTERVAL_S).start()
        opened.callback(sampler.close)
        try:
            yield
        except KeyboardInterrupt:
            sender.timeout = 0.0
            raise
        except Exception as error:
            sampler.close()
            monitor.ended(error)
            raise


def _metered(
    cluster: Callable[[], Cluster], run_status: RunStatus, measurements: Any, plan: Plan
) -> Callable[[], None]:
    """Measure lag where there is no page that does it; gives what ends that."""
    from millrace.connectors.base.registry import topics_read
    from millrace.dashboard.kafka.lag import LAG_EVERY, LagMeter
    from millrace.telemetry.channels import Channels
    from millrace.telemetry.measurements import Sampler
    from millrace.telemetry.topology import topology_of

    meter = LagMeter(cluster, run_status, measurements, topology_of(plan, topics_read(plan.pipeline)), Channels())
    sampler = Sampler("lag", meter.look, LAG_EVERY, last=False).start()

    def end() -> None:
        sampler.close()
        meter.close()

    return end


LOCAL = "127.0.0.1"
_PAGE_PANEL = "The page"
Dashboard = Annotated[
    bool, typer.Option("--dashboard/--no-dashboard", help="Serve a live page of the run.", rich_help_panel=_PAGE_PANEL)
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        show_default="the first free one from 4040",
        help="The page's port.",
        rich_help_panel=_PAGE_PANEL,
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host", help="The page's address; one beyond this machine asks for a token.", rich_help_panel=_PAGE_PANEL
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="No actions on the page, as SQL.", rich_help_panel=_PAGE_PANEL)
]
AllTopics = Annotated[
    bool,
    typer.Option(
        "--all-topics", help="Show every topic of the cluster, not only those of the run.", rich_help_panel=_PAGE_PANEL
    ),
]
Open = Annotated[
    bool, typer.Option("--open/--no-open", help="Open the page in a browser.", rich_help_panel=_PAGE_PANEL)
]


def page_options(
    port: int | None, host: str = LOCAL, *, read_only: bool = False, all_topics: bool = False
) -> ServerOptions:
    """Return what was chosen for the page; the token comes from the environment alone, which others cannot see."""
    from millrace.dashboard.server import ServerOptions

    return ServerOptions(host, port, read_only, TOKEN.value(), all_topics)


def require_page(dashboard: bool, **options: object) -> None:
    """Refuse options of a page that is not wanted."""
    for name, value in options.items():
        if value and not dashboard:
            said = f"--{name.replace('_', '-')} is about the page, and --no-dashboard leaves that out"
            raise InvalidOption(said, hint="drop one of them")


@contextmanager
def with_kafka(page: RunPage | None, cluster: Callable[[], Cluster] | None) -> Iterator[None]:
    """A time in which a page, if there is one, knows of a Kafka, if there is one."""
    if page is None or cluster is None:
        yield
        return
    with page.kafka(cluster):
        yield


@contextmanager
def served_page(page: RunPage | None, *, open_: bool) -> Iterator[RunPage | None]:
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
