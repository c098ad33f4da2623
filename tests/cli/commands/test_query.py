"""`millrace query`: which run is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.cli.commands.query import _folder
from millrace.engine.checkpoints.state_dir import nearby
from millrace.object_stores import StorePath


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MILLRACE_STATE", str(tmp_path))
    return tmp_path / "pipelines"


def runs(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "query.json").touch()
    return folder


def test_a_run_with_its_state_on_a_store_is_found_by_its_name(pipelines: Path) -> None:
    on_a_store = runs(nearby(StorePath("s3a://runs/words"), "words"))
    assert _folder("words") == on_a_store
    assert _folder(on_a_store.name) == on_a_store
    runs(nearby(StorePath("s3a://runs/others"), "others"))
    assert _folder("words") == on_a_store
    here = runs(pipelines / "words")
    assert _folder("words") == here
