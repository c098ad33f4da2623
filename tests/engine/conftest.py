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
