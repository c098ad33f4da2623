"""Dead letters sent again from the page: one redrive at a time, told while it goes on and when it is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from millrace.clients import dead
from millrace.clients.outcome import Outcome
from millrace.clients.redrive import Redrive, redrive
from millrace.clients.refile import refile
from millrace.clients.selection import Selection
from millrace.dashboard.kafka.dead import Where
from millrace.dashboard.subject import Group
from millrace.errors import MillraceError, NoCluster, RedriveBusy, UnknownTopic
from millrace.telemetry.channels import Slot

_TOLD = 20


class Redriving:
    """The redrives of one run's page."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._busy = threading.Lock()

    def run(self, where: Where, group: Group) -> Mapping[str, Any]:
        """Send the letters of a group again; what became of them."""
        if not self._busy.acquire(blocking=False):
            raise RedriveBusy("letters are being sent again at this moment", hint="try again when that is done")
        try:
            outcome = self._send(where, group)
        except MillraceError as error:
            self._tell(group, "failed", Outcome(), error.message)
            raise
        finally:
            self._busy.release()
        return self._tell(group, "done", outcome)

    def _send(self, where: Where, group: Group) -> Outcome:
        wanted = Redrive(
            Selection(
                pipeline=where.pipeline,
                source=group.source,
                home=group.topic,
                reason=group.reason,
                letter=group.letter,
            )
        )
        whole = Outcome()
        self._tell(group, "running", whole)

        def tell(so_far: Outcome) -> None:
            self._tell(group, "running", so_far)

        if group.topic is not None:
            if where.cluster is None:
                raise NoCluster("this run uses no Kafka")
            cluster = where.cluster()
            if group.topic not in where.topics(cluster):
                raise UnknownTopic(f"this run has no dead letters in {group.topic!r}", hint="see --all-topics")
            return redrive(cluster, group.topic, wanted, tell)
        for folder in where.folders():
            if any(not one.redriven and wanted.selection.fits(one) for one in dead.in_folder(folder)):
                whole.add(refile(folder, wanted, tell))
        return whole

    def _tell(self, group: Group, state: str, outcome: Outcome, error: str | None = None) -> Mapping[str, Any]:
        counted = asdict(outcome) | {"failures": [asdict(one) for one in outcome.failures[:_TOLD]]}
        told = {**asdict(group), "state": state, **counted, "error": error, "time": round(time.time() * 1000)}
        self._slot.set(told)
        return told
