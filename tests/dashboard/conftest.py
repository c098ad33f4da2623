"""A real server on a free port, over a subject that tests fill by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.dashboard.run_interface import RunInterface
from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.telemetry.channels import Channels
from millrace.telemetry.metrics import Health

Serve = Callable[..., Dashboard]


@pytest.fixture
def channels() -> Channels:
    """The channels of the subject."""
    return Channels()


@pytest.fixture
def subject(channels: Channels) -> RunInterface:
    """A run of which little is known."""
    return RunInterface(channels, lambda: Health(True, True), lambda: {"name": "test"})


@pytest.fixture
def serve(subject: RunInterface, tmp_path: Path) -> Iterator[Serve]:
    """`serve()` starts a server; what is given changes its subject."""
    with ExitStack() as stack:

        def start(options: ServerOptions | None = None, static: Path | None = None, **changes: Any) -> Dashboard:
            chosen = options or ServerOptions(port=0)
            made = Dashboard(replace(subject, **changes), chosen, static or tmp_path / "not built")
            return stack.enter_context(made)

        yield start
