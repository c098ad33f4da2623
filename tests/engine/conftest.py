"""What the tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from secure import Secured, secured


@pytest.fixture(scope="session")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with every kind of lock, started by each process that asks for it."""
    with secured(tmp_path_factory.mktemp("safe")) as found:
        yield found


@pytest.fixture(params=["bulk", "spark"])
def either_source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are read in bulk, and by Spark's own source: for tests that must hold for both."""
    monkeypatch.setenv("MILLRACE_BULK_READER", "on" if request.param == "bulk" else "off")
