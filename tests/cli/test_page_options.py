"""The options of commands that serve the page: what becomes of the token."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from millrace.cli import run_options
from millrace.cli.run_options import DashboardOptions, served_dashboard
from millrace.dashboard.run_page import RunPage

TOKEN = "a-token-of-16/or+more"


class Page:
    """A page that is served somewhere."""

    def __init__(self, loopback: bool) -> None:
        self.loopback = loopback
        self.address = f"http://127.0.0.1:4040/?token={TOKEN}"

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_the_token_comes_from_the_environment_alone(set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_TOKEN=TOKEN)
    options = DashboardOptions(port=0, all_topics=True).server_options()
    assert (options.token, options.all_topics, options.host) == (TOKEN, True, "127.0.0.1")
    assert TOKEN not in repr(options)
    set_environment(MILLRACE_TOKEN=None)
    assert DashboardOptions(port=0).server_options().token is None


@pytest.mark.parametrize(("loopback", "opened"), [(True, ["http://127.0.0.1:4040/"]), (False, [])])
def test_no_command_line_of_a_browser_has_the_token(
    monkeypatch: pytest.MonkeyPatch, loopback: bool, opened: list[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(run_options.webbrowser, "open", asked.append)
    with served_dashboard(cast("RunPage", Page(loopback)), open_=True):
        pass
    assert asked == opened
