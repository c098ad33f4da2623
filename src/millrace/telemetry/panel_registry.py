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
from millrace.telemetry.panel_views import Frame, PanelView, SeriesView, View
from millrace.telemetry.progress import METRICS


@dataclass(frozen=True)
class RegisteredPanel:
    """A panel, its query and what it shows."""

    shown: RunPanel
    query: str | None = None
    mode: str = "append"
    view: PanelView | None = None
    width: int = 0
    """Columns of the rows that the view takes, which Spark calls c0, c1, …"""
    error: MillraceError | None = None
    note: str | None = None

    def summary(self) -> dict[str, Any]:
        """Return the panel as the list of panels has it."""
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

    def content(self, now: int) -> dict[str, Any]:
        """Return what its channel holds."""
        view = self.view.view(now) if self.view else View([])
        frame = self.view.frame if self.view else Frame((), ())
        return {
            "columns": frame.columns,
            "types": frame.types,
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
    _panels: dict[str, RegisteredPanel] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def expect(self, plan: Plan) -> None:
        """List the declared panels, before any of them has a view."""
        for query in plan.queries:
            for panel in query.panels:
                self._put(RegisteredPanel(panel, query.name, query.mode))

    def register(self, panel: RegisteredPanel) -> None:
        """Set the view of a panel, or why it has none; after a restart of its query it keeps the old view."""
        before = self._panels.get(panel.shown.id)
        kept = before.view if before and panel.view else None
        self._put(replace(panel, view=kept or panel.view))

    def fail(self, panels: Iterable[RunPanel], error: MillraceError) -> None:
        """Set the error with which the query of panels has ended; what they showed stays."""
        for panel in panels:
            self._put(replace(self._panels.get(panel.id, RegisteredPanel(panel)), error=error))

    def observe(self, metrics: Mapping[str, Any]) -> None:
        """Take the observed metrics of one batch of a query."""
        observed = metrics.get(METRICS) or {}
        for panel in list(self._panels.values()):
            if panel.view is not None and (total := f"#{panel.shown.id}") in observed:
                self._take(panel, panel.view, observed.get(panel.shown.id) or (), int(observed[total] or 0))

    def look(self) -> None:
        """Update what changes by time alone."""
        now = round(time.time() * 1000)
        for panel in list(self._panels.values()):
            if isinstance(panel.view, SeriesView) and panel.view.due(now):
                self._show(panel)

    def _take(self, panel: RegisteredPanel, view: PanelView, rows: Sequence[Mapping[str, Any]], total: int) -> None:
        try:
            with self._lock:
                view.take([tuple(row.get(f"c{n}") for n in range(panel.width)) for row in rows], total, panel.mode)
            if rows or panel.mode == "complete":
                self._show(panel)
        except (TypeError, ValueError) as error:  # shown in place of the panel; the others continue
            self._put(replace(panel, view=None, error=RunError("the panel cannot be drawn", why=str(error))))

    def _put(self, panel: RegisteredPanel) -> None:
        with self._lock:
            self._panels[panel.shown.id] = panel
            self.channels.slot("panels").set([registered.summary() for registered in self._panels.values()])
        self._show(panel)

    def _show(self, panel: RegisteredPanel) -> None:
        with self._lock:
            self.channels.slot(f"panel:{panel.shown.id}").set(panel.content(round(time.time() * 1000)))
