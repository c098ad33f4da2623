"""The options of a run that say what happens when something fails, and the alerts around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from millrace.cli.options import setting_option
from millrace.cli.output import say
from millrace.errors import InvalidOption
from millrace.settings import ALERT, ALERT_DEAD, ALERT_LAG, PATIENCE, RESTARTS, Setting

if TYPE_CHECKING:
    from millrace.clients.cluster import Cluster
    from millrace.dashboard.watching import Watching
    from millrace.engine.supervision import Policy
    from millrace.pipeline.plan import Plan
    from millrace.telemetry.alerts import Limits
    from millrace.telemetry.board import Board
    from millrace.telemetry.messenger import Send

_PANEL = "When something fails"


def _option(setting: Setting[Any], metavar: str) -> Any:
    made = setting_option(setting, metavar)
    made.rich_help_panel = _PANEL
    return made


Restarts = Annotated[str | None, _option(RESTARTS, "N")]
Patience = Annotated[str | None, _option(PATIENCE, "DURATION")]
AlertTo = Annotated[str | None, _option(ALERT, "URL|COMMAND")]
AlertLag = Annotated[str | None, _option(ALERT_LAG, "LAG")]
AlertDead = Annotated[str | None, _option(ALERT_DEAD, "RATE")]


@dataclass(frozen=True)
class Alerts:
    """Where alerts go, and what is too much."""

    send: Send
    limits: Limits


def policy(restarts: str | None) -> Policy:
    """How often queries are restarted."""
    from millrace.engine.supervision import Policy

    return Policy(restarts=RESTARTS.value(restarts))


def alerts_of(to: str | None, lag: str | None, dead: str | None) -> Alerts | None:
    """The alerts that were asked for; raises when what was asked for cannot be."""
    from millrace.telemetry import messenger
    from millrace.telemetry.alerts import Limits

    target = ALERT.value(to)
    if target is None:
        if lag or dead:
            raise InvalidOption("--alert-lag and --alert-dead need somebody to tell", hint="add --alert URL_OR_COMMAND")
        return None
    return Alerts(messenger.to(target), Limits(ALERT_LAG.value(lag), ALERT_DEAD.value(dead)))


@contextmanager
def alerting(
    alerts: Alerts | None, plan: Plan, board: Board, page: Watching | None, cluster: Callable[[], Cluster] | None
) -> Iterator[None]:
    """A time in which alerts are sent; an error that ends it is one of them."""
    if alerts is None:
        yield
        return
    from millrace.connectors.systems import topics_read
    from millrace.telemetry.alerts import EVERY, Alarm
    from millrace.telemetry.messenger import Messenger
    from millrace.telemetry.outline import outline_of
    from millrace.telemetry.sampler import Sampler
    from millrace.telemetry.samples import Samples

    with ExitStack() as opened:
        messenger = Messenger(alerts.send, say)
        opened.callback(messenger.close)
        samples, outline = page.samples if page else Samples(), outline_of(plan, topics_read(plan.pipeline))
        alarm = Alarm(plan.pipeline.name, board, samples, outline, alerts.limits, messenger.tell)
        if page is None and cluster and alerts.limits.lag:
            opened.callback(_metered(cluster, board, samples, plan))
        sampler = Sampler("alerts", lambda: alarm.look(time.monotonic()), EVERY).start()
        opened.callback(sampler.close)
        try:
            yield
        except KeyboardInterrupt:
            messenger.patience = 0.0
            raise
        except Exception as error:
            sampler.close()
            alarm.ended(error)
            raise


def _metered(cluster: Callable[[], Cluster], board: Board, samples: Any, plan: Plan) -> Callable[[], None]:
    """Measure lag where there is no page that does it; gives what ends that."""
    from millrace.connectors.systems import topics_read
    from millrace.dashboard.kafka.lag import EVERY, LagMeter
    from millrace.telemetry.channels import Channels
    from millrace.telemetry.outline import outline_of
    from millrace.telemetry.sampler import Sampler

    meter = LagMeter(cluster, board, samples, outline_of(plan, topics_read(plan.pipeline)), Channels())
    sampler = Sampler("lag", meter.look, EVERY, last=False).start()

    def end() -> None:
        sampler.close()
        meter.close()

    return end
