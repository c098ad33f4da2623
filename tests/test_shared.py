"""That what several processes of a test run share is there for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import shared


def test_it_is_started_once_and_again_for_who_asks_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_STOPS", [])
    told: list[str] = []

    def use() -> None:
        with shared.started_once(tmp_path, lambda: told.append("start"), lambda: told.append("stop")):
            told.append("use")

    use()
    use()
    shared.stop_what_was_shared()
    use()
    shared.stop_what_was_shared()
    assert told == ["start", "use", "use", "stop", "start", "use", "stop"]


def test_a_start_that_fails_is_tried_again_by_who_asks_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_STOPS", [])
    told: list[str] = []

    def fails() -> None:
        raise OSError("no port is free")

    with pytest.raises(OSError, match="no port"), shared.started_once(tmp_path, fails, lambda: None):
        pass
    with shared.started_once(tmp_path, lambda: told.append("start"), lambda: None):
        pass
    shared.stop_what_was_shared()
    assert told == ["start"]
