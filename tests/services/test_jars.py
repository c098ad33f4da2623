"""Jars arrive whole, once, with the right bytes, or not at all."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import FetchFailed, FileUnusable, UnknownName
from millrace.services import jars
from millrace.services.jars import Artifact, JarSet

BYTES = {"wheel": b"a wheel", "sluice": b"a sluice", "flume": b"a flume"}


@pytest.fixture
def mirror(tmp_path: Path, set_environment: Callable[..., None]) -> Path:
    """A company mirror in a folder, chosen by an Ivy settings file, and an empty cache."""
    folder = tmp_path / "mirror"
    for name, content in BYTES.items():
        home = folder / "mill" / name / "1.0"
        home.mkdir(parents=True)
        (home / f"{name}-1.0.jar").write_bytes(content)
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="company"/><resolvers><filesystem name="company" m2compatible="true">'
        f'<artifact pattern="{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    set_environment(MILLRACE_IVY_SETTINGS=str(settings), MILLRACE_CACHE=str(tmp_path / "cache"))
    return folder


def the_set(**wrong: str) -> JarSet:
    """Three jars with the checksums of their bytes, unless another is given."""
    artifacts = (
        Artifact("mill", name, "1.0", wrong.get(name, hashlib.sha256(content).hexdigest()))
        for name, content in BYTES.items()
    )
    return JarSet("mill", "a mill", tuple(artifacts))


def left_behind(wanted: JarSet) -> list[str]:
    """What a fetch left in the cache beside the lock."""
    home = wanted.folder.parent
    return [entry.name for entry in home.iterdir() if not entry.name.endswith(".lock")] if home.exists() else []


def test_a_set_is_fetched_whole(mirror: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = jars.fetch(the_set(), lambda arrived, total, _: seen.append((arrived, total)))
    assert found.present()
    assert not found.damaged()
    assert (seen[0], seen[-1]) == ((0, 3), (3, 3))
    assert [Path(path).name for path in found.classpath().split(":")] == [jar.file for jar in found.artifacts]
    assert left_behind(found) == [found.folder.name]


def test_once_fetched_nothing_is_asked_for(mirror: Path, set_environment: Callable[..., None]) -> None:
    found = jars.fetch(the_set())
    set_environment(MILLRACE_IVY_SETTINGS="/nonexistent", MILLRACE_JAVA="/nonexistent")
    assert jars.fetch(the_set()).folder == found.folder


def test_wrong_bytes_are_refused_and_nothing_is_kept(mirror: Path) -> None:
    wanted = the_set(sluice="0" * 64)
    with pytest.raises(FetchFailed) as caught:
        jars.fetch(wanted)
    assert "mill:sluice:1.0" in caught.value.message
    assert not wanted.present()
    assert left_behind(wanted) == []


def test_a_missing_artifact_is_named_and_nothing_is_kept(mirror: Path) -> None:
    (mirror / "mill" / "flume" / "1.0" / "flume-1.0.jar").unlink()
    with pytest.raises(FetchFailed) as caught:
        jars.fetch(the_set())
    assert "mill:flume:1.0" in caught.value.message
    assert left_behind(the_set()) == []


def test_another_version_is_another_folder(mirror: Path) -> None:
    assert the_set().folder != the_set(wheel="0" * 64).folder


def test_a_damaged_jar_is_noticed_and_a_lost_one_is_fetched_again(mirror: Path) -> None:
    found = jars.fetch(the_set())
    (found.folder / "wheel-1.0.jar").write_bytes(b"rust")
    assert [jar.name for jar in found.damaged()] == ["wheel"]
    (found.folder / "wheel-1.0.jar").unlink()
    assert not found.present()
    assert not jars.fetch(the_set()).damaged()


def fetcher(*, stop_at_start: bool = False) -> subprocess.Popen[str]:
    """A process of its own that fetches the set."""
    program = (
        "import hashlib, os, signal\n"
        "from millrace.services import jars\n"
        "from millrace.services.jars import Artifact, JarSet\n"
        f"artifacts = tuple(Artifact('mill', n, '1.0', hashlib.sha256(c).hexdigest()) for n, c in {BYTES!r}.items())\n"
        "def progress(arrived, total, name):\n"
        "    print(arrived, flush=True)\n"
        f"    if {stop_at_start}: os.kill(os.getpid(), signal.SIGKILL)\n"
        "jars.fetch(JarSet('mill', 'a mill', artifacts), progress)\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_fetch_once(mirror: Path) -> None:
    both = [fetcher(), fetcher()]
    said = [process.communicate(timeout=60)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(bool(words) for words in said) == [False, True]
    assert not the_set().damaged()


def test_a_fetch_killed_in_the_middle_leaves_nothing_that_counts(mirror: Path) -> None:
    with fetcher(stop_at_start=True) as killed:
        killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert not the_set().present()
    assert not jars.fetch(the_set()).damaged()
    assert left_behind(the_set()) == [the_set().folder.name]


def test_a_cache_that_cannot_be_made(mirror: Path, tmp_path: Path, set_environment: Callable[..., None]) -> None:
    (tmp_path / "file").touch()
    set_environment(MILLRACE_CACHE=str(tmp_path / "file"))
    with pytest.raises(FileUnusable):
        jars.fetch(the_set())


def test_a_settings_file_that_is_not_there(mirror: Path, set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_IVY_SETTINGS="/nonexistent")
    with pytest.raises(FileUnusable):
        jars.fetch(the_set())


def test_an_unknown_set() -> None:
    with pytest.raises(UnknownName):
        jars.jar_set("kafak")


def test_every_pinned_set_has_distinct_files_and_whole_checksums() -> None:
    for found in jars.jar_sets().values():
        files = [jar.file for jar in found.artifacts]
        assert len(files) == len(set(files))
        assert all(len(jar.sha256) == 64 for jar in found.artifacts)


def test_the_connector_jars_come_from_maven_itself(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_CACHE=str(tmp_path), MILLRACE_IVY_SETTINGS=None)
    found = jars.ensure("spark")
    assert not found.damaged()


@pytest.mark.parametrize(
    ("pinned", "message"),
    [
        ('[mill]\nabout = "a mill"\njars = ["mill:wheel:1.0"]', r"\[mill.jars\] is not a table"),
        ('[mill]\nabout = "a mill"', r"\[mill.jars\] is not a table"),
        ('[mill]\nabout = "a mill"\n[mill.jars]\n"mill:wheel" = "00"', "mill:wheel is not of the form"),
        ('[mill]\nabout = "a mill"\n[mill.jars]\n"mill:wheel:1.0" = 0', "mill:wheel:1.0 is not of the form"),
    ],
)
def test_a_table_of_another_form_is_refused(pinned: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        jars.sets_in(pinned)
