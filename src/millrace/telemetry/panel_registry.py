"""The panels of a run as channels: `panels` lists them, `panel:<id>` is what each shows now."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.errors import MillraceError, RunError
from millrace.pipeline.panels import RunPanel
from millrace.pipeline.plan import Plan
from millrace.telemetry.channels import Channels, error_fields
from millrace.telemetry.panel_views import PanelView, SeriesView, View
from millrace.telemetry.progress import METRICS

_EMPTY = View([])


@dataclass(frozen=True)
class RegisteredPanel:
    """A panel in its place."""

    shown: RunPanel
    query: str | None = None
    mode: str = "append"
    picture: PanelView | None = None
    width: int = 0
    """Columns of the rows that the picture takes, which Spark calls c0, c1, …"""
    error: MillraceError | None = None
    note: str | None = None

    def listed(self) -> dict[str, Any]:
        """The panel as the list of panels has it."""
        return {
            "id": self.shown.id,
            "table": self.shown.panel.table,
            "kind": self.shown.panel.kind,
            "title": self.shown.title,
            "options": {name: value for name, value in self.shown.given.items() if value is not None},
            "inferred": self.shown.inferred,
            "query": self.query,
            "error": error_fields(self.error),
        }

    def seen(self, now: int) -> dict[str, Any]:
        """What its channel holds."""
        view = self.picture.view(now) if self.picture else _EMPTY
        frame = self.picture.frame if self.picture else None
        return {
            "columns": frame.columns if frame else (),
            "types": frame.types if frame else (),
            "rows": view.rows,
            "time": now,
            "cut": view.cut,
            "window": view.window,
            "error": error_fields(self.error),
            "note": view.note or self.note,
        }


@dataclass
class PanelRegistry:
    """Every panel of a run; thread-safe."""

    channels: Channels
    _hung: dict[str, RegisteredPanel] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def expect(self, plan: Plan) -> None:
        """List the panels that were declared, before any of them has a picture."""
        for query in plan.queries:
            for one in query.panels:
                self._put(RegisteredPanel(one, query.name, query.mode))

    def hang(self, hung: RegisteredPanel) -> None:
        """A panel has its picture, or the reason why it has none; of a query that was started again, the old one."""
        known = self._hung.get(hung.shown.id)
        kept = known.picture if known and hung.picture else None
        self._put(replace(hung, picture=kept or hung.picture))

    def fail(self, panels: Iterable[RunPanel], error: MillraceError) -> None:
        """The query of panels has ended with an error; what they showed stays, beside the error."""
        for one in panels:
            known = self._hung.get(one.id, RegisteredPanel(one))
            self._put(replace(known, error=error))

    def observe(self, metrics: Mapping[str, Any]) -> None:
        """Take in what Spark told with one batch of a query."""
        seen = metrics.get(METRICS) or {}
        for hung in list(self._hung.values()):
            if hung.picture is None or f"#{hung.shown.id}" not in seen:
                continue
            self._take(hung, seen.get(hung.shown.id) or (), int(seen[f"#{hung.shown.id}"] or 0))

    def look(self) -> None:
        """Draw again what changes by time alone."""
        now = round(time.time() * 1000)
        for hung in list(self._hung.values()):
            if isinstance(hung.picture, SeriesView) and hung.picture.due(now):
                self._show(hung)

    def _take(self, hung: RegisteredPanel, rows: Sequence[Mapping[str, Any]], total: int) -> None:
        try:
            given = [tuple(row.get(f"c{place}") for place in range(hung.width)) for row in rows]
            with self._lock:
                if hung.picture is not None:
                    hung.picture.take(given, total, hung.mode)
            if given or hung.mode == "complete":
                self._show(hung)
        except (TypeError, ValueError) as error:  # told where it is missed; the others go on
            self._put(replace(hung, picture=None, error=RunError("the panel cannot be drawn", why=str(error))))

    def _put(self, hung: RegisteredPanel) -> None:
        with self._lock:
            self._hung[hung.shown.id] = hung
            listed = [one.listed() for one in self._hung.values()]
            self.channels.slot("panels").set(listed)
        self._show(hung)

    def _show(self, hung: RegisteredPanel) -> None:
        with self._lock:
            self.channels.slot(f"panel:{hung.shown.id}").set(hung.seen(round(time.time() * 1000)))
