"""Scratch folders: private, where they belong, and removed when their owners have ended and not before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.engine.session import scratch
from millrace.engine.session.scratch import PREFIX, Scratch, is_scratch, remove_abandoned
from millrace.errors import FileUnusable

NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is used because TMPDIR is not set."""
    monkeypatch.delenv("TMPDIR", raising=False)
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_private_and_gone_when_it_is_removed(place: Path) -> None:
    made = Scratch(place)
    assert made.folder.parent == place
    assert is_scratch(made.folder)
    assert made.folder.stat().st_mode & 0o777 == 0o700
    (made.folder / "blockmgr").mkdir()
    made.remove()
    made.remove()
    assert names(place) == []


def test_one_that_nobody_removes_is_gone_when_its_process_ends_and_not_when_a_forked_one_does(place: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from millrace.engine.session.scratch import Scratch
made = Scratch(Path(sys.argv[1]))
if not (forked := os.fork()):
    sys.exit()
os.waitpid(forked, 0)
print(made.folder.exists())
"""
    ran = subprocess.run([sys.executable, "-c", program, place], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"
    assert names(place) == []


def test_tmpdir_wins_and_a_missing_folder_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    made = Scratch(tmp_path / "state")
    assert made.folder.parent == tmp_path
    made.remove()
    monkeypatch.delenv("TMPDIR")
    made = Scratch(tmp_path / "new" / "state")
    assert made.folder.parent == tmp_path / "new" / "state"
    made.remove()


def test_without_a_lasting_folder_it_is_where_temporary_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Scratch()
    assert made.folder.parent == tmp_path
    made.remove()


def test_an_abandoned_one_is_removed_and_one_in_use_is_not(place: Path) -> None:
    used, left = Scratch(place), Scratch(place)
    (left.folder / "deep" / "er").mkdir(parents=True)
    left._lock.release()
    remove_abandoned(place)
    assert names(place) == [used.folder.name]
    used.remove()


def test_the_next_one_removes_what_was_abandoned(place: Path) -> None:
    left = Scratch(place)
    left._lock.release()
    made = Scratch(place)
    for thread in [one for one in threading.enumerate() if one.name == "scratch"]:
        thread.join(30)
    assert names(place) == [made.folder.name]
    made.remove()


def test_a_child_keeps_it_when_its_parent_is_dead(place: Path) -> None:
    made = Scratch(place)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[made.lock_fd])
    made._lock.release()
    remove_abandoned(place)
    assert names(place) == [made.folder.name]
    child.communicate(b"\n")
    remove_abandoned(place)
    assert names(place) == []


def test_one_whose_removal_was_cut_off_is_removed(place: Path) -> None:
    for name in (f"{PREFIX}a", f"{PREFIX}b.removed"):
        (place / name / "spark-1").mkdir(parents=True)
    remove_abandoned(place)
    assert names(place) == []


def test_no_link_is_followed(place: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    (place / f"{PREFIX}link").symlink_to(kept)
    abandoned = place / f"{PREFIX}a"
    abandoned.mkdir()
    (abandoned / "folder").symlink_to(kept)
    (abandoned / "file").symlink_to(kept / "file")
    locked = place / f"{PREFIX}locked"
    locked.mkdir()
    (locked / "lock").symlink_to(kept / "made")
    remove_abandoned(place)
    assert names(kept) == ["file"]
    assert names(place) == [f"{PREFIX}link", f"{PREFIX}locked"]


def test_what_is_of_another_account_is_left_alone(place: Path) -> None:
    (theirs := place / f"{PREFIX}theirs").mkdir()
    os.chown(theirs, NOBODY, NOBODY)
    place.chmod(0o1777)
    remove_abandoned(place)
    assert names(theirs) == []
    assert names(place) == [theirs.name]


def _everybody_writes(folder: Path) -> Path:
    folder.chmod(0o777)
    return folder


def _of_another(folder: Path) -> Path:
    os.chown(folder, NOBODY, NOBODY)
    return folder


def _with_comma(folder: Path) -> Path:
    (made := folder / "a,b").mkdir()
    return made


@pytest.mark.parametrize("spoil", [_everybody_writes, _of_another, _with_comma])
def test_a_folder_that_is_not_safe_is_not_used(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], Path]
) -> None:
    unsafe = spoil(place)
    (unsafe / f"{PREFIX}a").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    made = Scratch(unsafe)  # a run's own folder: another place will do
    assert made.folder.parent == tmp_path / "temporary"
    made.remove()
    monkeypatch.setenv("TMPDIR", str(unsafe))  # the user's choice: the user is asked
    with pytest.raises(FileUnusable):
        Scratch()
    remove_abandoned(unsafe)
    assert names(unsafe) == [f"{PREFIX}a"]


def test_a_tmpdir_that_does_not_exist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with pytest.raises(FileUnusable) as raised:
        Scratch(tmp_path)
    assert "nowhere" in raised.value.message
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    with pytest.raises(FileUnusable):
        Scratch(tmp_path)


def test_a_folder_that_cannot_be_made_is_not_used(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Scratch(place / "file" / "state")
    assert made.folder.parent == tmp_path
    made.remove()


def test_a_machine_without_a_folder_for_temporary_files_will_do(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_usable() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(scratch.tempfile, "gettempdir", none_is_usable)
    made = Scratch(place)
    assert made.folder.parent == place
    made.remove()


def test_a_folder_without_libraries_is_not_used(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "_is_noexec", lambda folder: folder == place)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Scratch(place)
    assert made.folder.parent == tmp_path
    made.remove()


def test_a_shared_folder_with_a_sticky_bit_is_fine(place: Path) -> None:
    place.chmod(0o1777)
    made = Scratch(place)
    assert made.folder.parent == place
    made.remove()


def test_one_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tempfile.mkdtemp
    taken: list[str] = []

    def mkdtemp(**options: Any) -> str:
        folder: str = real(**options)
        if not taken:
            taken.append(folder)
            remove_abandoned(place)
        return folder

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", mkdtemp)
    made = Scratch(place)
    assert str(made.folder) not in taken
    assert names(place) == [made.folder.name]
    made.remove()


def test_starts_and_removals_at_the_same_time(place: Path) -> None:
    failures: list[str] = []
    over = threading.Event()

    def start() -> None:
        for _ in range(30):
            folder, lock = scratch._create(place)
            (folder / "file").write_text("mine")
            if not (folder / "file").exists():
                failures.append(str(folder))
            lock.release()  # as a process that is killed

    def remove() -> None:
        while not over.is_set():
            remove_abandoned(place)

    removers = [threading.Thread(target=remove) for _ in range(2)]
    starters = [threading.Thread(target=start) for _ in range(4)]
    for thread in [*removers, *starters]:
        thread.start()
    for thread in starters:
        thread.join()
    over.set()
    for thread in removers:
        thread.join()
    for _ in range(2):  # two that remove the same one may leave a part of it
        remove_abandoned(place)
    assert failures == []
    assert names(place) == []


def test_the_users_own_folder_of_java_wins(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    made = Scratch(place)
    ours = f'"-Djava.io.tmpdir={made.folder}"'
    assert made.java_options({"spark.driver.extraJavaOptions": "-Da=b"}) == ours
    for key in ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"):
        assert made.java_options({key: "-Da=b -Djava.io.tmpdir=/mine"}) == ""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Djava.io.tmpdir=/mine")
    assert made.java_options({}) == ""
    made.remove()


def test_a_name_that_java_options_must_quote(place: Path) -> None:
    (odd := place / 'a "b\\c').mkdir()
    made = Scratch(odd)
    assert made.java_options({}).startswith(f'"-Djava.io.tmpdir={place}/a \\"b\\\\c/{PREFIX}')
    made.remove()


def test_buffers_of_hadoop_are_in_it_unless_the_user_says_where(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    made = Scratch(place)
    folder = str(made.folder)
    assert made.variables({}) == {"TMPDIR": folder, "LOCAL_DIRS": folder}
    assert made.variables({"spark.hadoop.hadoop.tmp.dir": "/mine"}) == {"TMPDIR": folder}
    monkeypatch.setenv("LOCAL_DIRS", "/mine")
    assert made.variables({}) == {"TMPDIR": folder}
    made.remove()
