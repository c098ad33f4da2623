"""Pictures on the page."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.errors import Problem, did_you_mean
from millrace.pipeline.model import PANELS
from millrace.pipeline.rules.scope import Scope


def unknown_kind(scope: Scope) -> Iterator[Problem]:
    """A panel is of a kind that the page can draw."""
    for panel in scope.pipeline.panels:
        if panel.kind and panel.kind not in PANELS:
            said = f"there is no panel of the kind {panel.kind!r}"
            yield Problem("panel.unknown", said, panel.place, did_you_mean(panel.kind, PANELS))
