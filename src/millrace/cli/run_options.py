"""Options of the commands that run queries: `run`, `replay`, `exec` and `demo`.

- `RecoveryOptions`: how often queries are restarted, and how long a stop waits.
- `AlertOptions`: where alerts are sent; `alerting` sends them while a block runs.
- `DashboardOptions`: the dashboard; `served_dashboard` serves it while a block runs.
"""

from __future__ import annotations

import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from millrace.cli.app import DASHBOARD_PANEL, STATE_PANEL, OptionGroup, renamed_option
from millrace.cli.output import print_line
from millrace.errors import InvalidOption
from millrace.settings import ALERT, ALERT_DEAD, ALERT_LAG, RESTARTS, STOP_TIMEOUT, TOKEN

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dashboard.run_page import RunPage
    from millrace.dashboard.server import ServerOptions
    from millrace.engine.supervision.restart_policy import Policy
    from millrace.pipeline.plan import Plan
    from millrace.telemetry.alerts import Limits, Send
    from millrace.telemetry.query_status import RunStatus


@dataclass(frozen=True)
class RecoveryOptions(OptionGroup):
    """How often queries are restarted, and how long a stop waits for running batches."""

    restarts: Annotated[str | None, STATE_PANEL.setting(RESTARTS, "N")] = None
    stop_timeout: Annotated[str | None, STATE_PANEL.setting(STOP_TIMEOUT, "DURATION")] = None
    patience: Annotated[str | None, renamed_option("--patience", "--stop-timeout")] = None

    def policy(self) -> Policy:
        """Return how often queries are restarted."""
        from millrace.engine.supervision.restart_policy import Policy

        return Policy(restarts=RESTARTS.value(self.restarts))

    def stop_timeout_s(self) -> float:
        """Return how many seconds a stop waits."""
        return STOP_TIMEOUT.value(self.patience if self.stop_timeout is None else self.stop_timeout)


@dataclass(frozen=True)
class AlertSettings:
    """Where alerts go, and from which values on."""

    send: Send
    limits: Limits


@dataclass(frozen=True)
class AlertOptions(OptionGroup):
    """Where alerts go, and from which values on, as the user wrote it."""

    alert: Annotated[str | None, DASHBOARD_PANEL.setting(ALERT, "URL|COMMAND")] = None
    alert_lag: Annotated[str | None, DASHBOARD_PANEL.setting(ALERT_LAG, "LAG")] = None
    alert_dead: Annotated[str | None, DASHBOARD_PANEL.setting(ALERT_DEAD, "RATE")] = None

    def settings(self) -> AlertSettings | None:
        """Return the alerts to send; raise InvalidOption if the options do not fit together."""
        from millrace.telemetry.alerts import Limits, alert_sender

        target = ALERT.value(self.alert)
        if target is None:
            if self.alert_lag or self.alert_dead:
                raise InvalidOption("--alert-lag and --alert-dead need --alert", hint="add --alert URL_OR_COMMAND")
            return None
        limits = Limits(ALERT_LAG.value(self.alert_lag), ALERT_DEAD.value(self.alert_dead))
        return AlertSettings(alert_sender(target), limits)


@contextmanager
def alerting(
    alerts: AlertSettings | None,
    plan: Plan,
    run_status: RunStatus,
    page: RunPage | None,
    cluster: Callable[[], Cluster] | None,
) -> Iterator[None]:
    """Send alerts while the block runs; an error that ends the block is one of them."""
    if alerts is None:
        yield
        return
    from millrace.connectors.base.registry import topics_read
    from millrace.dashboard.kafka.lag import LAG_EVERY, LagMeter
    from millrace.telemetry.alerts import POLL_INTERVAL_S, AlertMonitor, AlertSender
    from millrace.telemetry.channels import Channels
    from millrace.telemetry.measurements import Measurements, Sampler
    from millrace.telemetry.topology import topology_of

    with ExitStack() as stack:
        sender = AlertSender(alerts.send, print_line)
        stack.callback(sender.close)
        measurements = page.measurements if page else Measurements()
        topology = topology_of(plan, topics_read(plan.pipeline))
        monitor = AlertMonitor(plan.pipeline.name, run_status, measurements, topology, alerts.limits, sender.send)
        if page is None and cluster and alerts.limits.lag:  # there is no dashboard that measures it
            meter = LagMeter(cluster, run_status, measurements, topology, Channels())
            stack.callback(meter.close)
            stack.callback(Sampler("lag", meter.look, LAG_EVERY, last=False).start().close)
        sampler = Sampler("alerts", lambda: monitor.look(time.monotonic()), POLL_INTERVAL_S).start()
        stack.callback(sampler.close)
        try:
            yield
        except KeyboardInterrupt:
            sender.timeout = 0.0
            raise
        except Exception as error:
            sampler.close()
            monitor.ended(error)
            raise


LOCAL_HOST = "127.0.0.1"
Port = Annotated[
    int | None,
    DASHBOARD_PANEL.option("The dashboard's port.", "N", min=0, max=65535, show_default="the first free one from 4040"),
]
AllTopics = Annotated[bool, DASHBOARD_PANEL.flag("Show every topic of the cluster, not only the run's.")]


@dataclass(frozen=True)
class DashboardOptions(OptionGroup):
    """Whether there is a dashboard, where, and what it may do."""

    dashboard: Annotated[
        bool, DASHBOARD_PANEL.flag("Serve a live dashboard of the run.", names="--dashboard/--no-dashboard")
    ] = True
    port: Port = None
    host: Annotated[
        str,
        DASHBOARD_PANEL.option("The dashboard's address; one that other machines reach requires a token.", "ADDRESS"),
    ] = LOCAL_HOST
    read_only: Annotated[bool, DASHBOARD_PANEL.flag("Allow no actions on the dashboard, such as SQL.")] = False
    all_topics: AllTopics = False
    open_: Annotated[bool, DASHBOARD_PANEL.flag("Open the dashboard in a browser.", names="--open/--no-open")] = False

    def server_options(self) -> ServerOptions:
        """Return the options of the server; raise InvalidOption if --no-dashboard contradicts them.

        The token comes from the environment only, which other users cannot see.
        """
        from millrace.dashboard.server import ServerOptions

        given = {"--port": self.port is not None, "--host": self.host != LOCAL_HOST}
        for flag, is_given in (given | {"--all-topics": self.all_topics, "--open": self.open_}).items():
            if is_given and not self.dashboard:
                raise InvalidOption(f"{flag} has no effect with --no-dashboard", hint="drop one of them")
        return ServerOptions(self.host, self.port, self.read_only, TOKEN.value(), self.all_topics)


def with_kafka(page: RunPage | None, cluster: Callable[[], Cluster] | None) -> AbstractContextManager[None]:
    """Let the dashboard, if there is one, show a cluster while the block runs."""
    return nullcontext() if page is None or cluster is None else page.kafka(cluster)


@contextmanager
def served_dashboard(page: RunPage | None, *, open_: bool) -> Iterator[RunPage | None]:
    """Serve the dashboard while the block runs, and print its address."""
    if page is None:
        yield None
        return
    with page:
        print_line(f"the dashboard is at {page.address}")
        if open_ and page.loopback:  # this account needs no token, which a command line would show to every account
            webbrowser.open(page.address.partition("?")[0])
        elif open_:
            print_line(
                "open it yourself: on the browser's command line, other accounts of this machine could read the token"
            )
        yield page
