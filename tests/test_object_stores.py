"""Paths on a store that is a dictionary."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.atomic_files import write_whole
from millrace.errors import FileUnusable
from millrace.object_stores import Store, StorePath, is_mounted, is_url, mounted, path_of, remove_folder, state_path

STATE = StorePath("s3a://bucket/state")


class Kept(Store):
    """Files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._writing = threading.Lock()

    def read(self, url: str) -> bytes:
        if url not in self.files:
            raise FileNotFoundError(url)
        return self.files[url]

    def write(self, url: str, content: bytes, *, new: bool = False) -> None:
        with self._writing:
            if new and url in self.files:
                raise FileExistsError(url)
            self.files[url] = content

    def names(self, url: str) -> list[str]:
        inside = (one.removeprefix(f"{url}/") for one in self.files if one.startswith(f"{url}/"))
        return sorted({one.split("/")[0] for one in inside})

    def is_folder(self, url: str) -> bool | None:
        return False if url in self.files else True if self.names(url) else None

    def remove(self, url: str) -> bool:
        gone = [one for one in self.files if one == url or one.startswith(f"{url}/")]
        for one in gone:
            del self.files[one]
        return bool(gone)


@pytest.fixture
def store() -> Iterator[Kept]:
    kept = Kept()
    with mounted(kept):
        yield kept
    assert not is_mounted()


def test_urls_are_told_from_paths(tmp_path: Path) -> None:
    assert [is_url(text) for text in ("s3a://b/x", "hdfs://n:9000/x", "hdfs:///x")] == [True, True, True]
    assert [is_url(text) for text in ("file:///x", "/x", "x", "c:/x", "s3a:/x")] == [False] * 5
    assert path_of(f"file://{tmp_path}") == tmp_path
    assert path_of("s3a://b/x") == StorePath("s3a://b/x")


@pytest.mark.parametrize("url", ["s3a://bucket/a/b", "hdfs://name:9000/a"])
def test_a_url_stays_as_it_is(url: str) -> None:
    path = StorePath(url)
    assert str(path) == url
    assert str(path / "x" / "y.json") == f"{url}/x/y.json"
    assert str((path / "x").parent) == url
    assert str((path / "x").with_name("z")) == f"{url}/z"
    assert str(pickle.loads(pickle.dumps(path)).absolute().resolve()) == url  # noqa: S301 - our own


@pytest.mark.parametrize("url", ["hdfs:///a/b", "s3a://bucket", "s3a://bucket/", "s3a://bucket".upper()])
def test_a_store_and_a_folder_must_be_named_for_a_state(url: str) -> None:
    with pytest.raises(FileUnusable):
        state_path(url)


def test_all_of_a_store_can_be_looked_at() -> None:
    assert str(path_of("s3a://bucket") / "x") == "s3a://bucket/x"


def test_what_the_disk_alone_can_do_is_refused() -> None:
    for call in (STATE.open, STATE.stat, lambda: os.fspath(STATE)):
        with pytest.raises(TypeError):
            call()


def test_files(store: Kept) -> None:
    write_whole(STATE / "a.json", "{}")
    write_whole(STATE / "sinks" / "b.json", b"[]")
    assert store.files == {"s3a://bucket/state/a.json": b"{}", "s3a://bucket/state/sinks/b.json": b"[]"}
    assert (STATE / "a.json").read_text("utf-8") == "{}"
    assert ((STATE / "sinks").is_dir(), (STATE / "a.json").is_file(), (STATE / "no").exists()) == (True, True, False)
    assert [one.name for one in STATE.glob("*")] == ["a.json", "sinks"]
    assert [str(one) for one in STATE.glob("*/b.json")] == ["s3a://bucket/state/sinks/b.json"]
    (STATE / "mark").touch()
    with pytest.raises(FileExistsError):
        (STATE / "mark").touch(exist_ok=False)
    (STATE / "mark").unlink()
    (STATE / "mark").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (STATE / "mark").unlink()
    remove_folder(STATE)
    assert not store.files


def test_who_has_no_store_is_told() -> None:
    with pytest.raises(FileUnusable):
        STATE.exists()
