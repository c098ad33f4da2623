"""Dead letters of files, put back."""

from __future__ import annotations

import gzip
import itertools
import os
import signal
import sys
from pathlib import Path

import pytest

from millrace.dead_letters.file_journal import FileSource, Journal
from millrace.dead_letters.file_redrive import redrive_files
from millrace.dead_letters.fixes import Fix
from millrace.dead_letters.letter import DeadLetter, to_json_line
from millrace.dead_letters.redrive import Redrive
from millrace.dead_letters.redrive_filter import RedriveFilter
from millrace.dead_letters.store import letters_in_folder
from millrace.errors import InvalidOption, NotRedrivable, RedriveBusy


class Place:
    """A source's folder, and that of its dead letters."""

    def __init__(self, root: Path) -> None:
        self.source, self.folder = root / "in", root / "dead" / "logs"
        self.source.mkdir()
        self.folder.mkdir(parents=True)
        FileSource(str(self.source)).save(self.folder)

    def bury(self, *lines: bytes, file: str = "a.json", name: str = "q-0-0", reason: str = "not JSON") -> None:
        """Letters of one file, in one file of letters."""
        uri = (self.source / file).as_uri()
        letters = [DeadLetter(value=line, file=uri, reason=reason, pipeline="p", source="logs") for line in lines]
        with (self.folder / f"{name}.jsonl").open("ab") as out:
            out.writelines(map(to_json_line, letters))

    def open(self) -> list[bytes]:
        """The values of open letters."""
        return [one.letter.value or b"" for one in letters_in_folder(self.folder) if not one.redriven]

    def files(self) -> dict[str, bytes]:
        """What Spark would see in the source's folder."""
        return {one.name: one.read_bytes() for one in sorted(self.source.glob("[!._]*"))}

    def lines(self) -> list[bytes]:
        """All lines that Spark would see."""
        return [line for content in self.files().values() for line in content.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Nothing buried yet."""
    return Place(tmp_path)


def fix(mend: object) -> Fix:
    return Fix("fix", mend)  # type: ignore[arg-type]


def test_letters_go_back_once(place: Place) -> None:
    place.bury(b"{a", b"{b")
    place.bury(b"{c", file="b c.json", name="q-1-0")
    assert redrive_files(place.folder, Redrive()).sent == 3
    first = place.files()
    assert sorted(content for content in first.values()) == [b"{a\n{b\n", b"{c\n"]
    assert all("-redriven-2-" in name and name.endswith(".json") for name in first)
    assert place.open() == []
    assert redrive_files(place.folder, Redrive()).letters == 0
    assert place.files() == first


def test_chosen_letters_go_mended_and_the_rest_stays(place: Place) -> None:
    place.bury(b"{a", b"{b", b"{c", b"{d")

    def mend(letter: DeadLetter) -> bytes | None:
        if letter.value == b"{b":
            raise ValueError("not b")
        return None if letter.value == b"{c" else (letter.value or b"") + b"}"

    outcome = redrive_files(place.folder, Redrive(fix=fix(mend)))
    assert (outcome.sent, outcome.left, outcome.failed) == (2, 1, 1)
    assert outcome.failures[0].place == f"{place.folder}/q-0-0.jsonl:2"
    assert "not b" in outcome.failures[0].why
    assert place.open() == [b"{b", b"{c"]
    assert place.lines() == [b"{a}", b"{d}"]
    one = Redrive(RedriveFilter(letter=f"{place.folder}/q-0-0.jsonl:3"))
    assert redrive_files(place.folder, one).sent == 1
    assert place.open() == [b"{b"]


def test_equal_lines_are_as_many_as_they_were(place: Place) -> None:
    place.bury(b"{", b"{")
    second = Redrive(RedriveFilter(letter=f"{place.folder}/q-0-0.jsonl:2"))
    assert redrive_files(place.folder, second).sent == 1
    assert place.open() == [b"{"]
    assert redrive_files(place.folder, Redrive()).sent == 1
    assert place.open() == []
    assert place.lines() == [b"{", b"{"]
    assert len(place.files()) == 2


def test_a_batch_that_is_run_again_or_anew_changes_nothing(place: Place) -> None:
    place.bury(b"{a", b"{b")
    redrive_files(place.folder, Redrive())
    (place.folder / "q-0-0.jsonl").unlink()
    place.bury(b"{a", name="q-0-1")  # cut into other tasks
    place.bury(b"{b", name="q-0-0")
    place.bury(b"{a", b"{b", b"{new", name="of-another-start-0-0")
    assert place.open() == [b"{new"]


def test_two_starts_of_a_query_have_one_record(place: Place) -> None:
    place.bury(b"{a", name="one-0-0")
    place.bury(b"{a", name="two-0-0")
    assert redrive_files(place.folder, Redrive()).sent == 1
    assert place.open() == []


def test_what_dies_again_has_its_attempts(place: Place) -> None:
    place.bury(b"{a")
    redrive_files(place.folder, Redrive())
    (name,) = place.files()
    place.bury(b"{a", file=name, name="q-1-0")
    (again,) = (one for one in letters_in_folder(place.folder) if not one.redriven)
    assert again.letter.attempts == 2
    redrive_files(place.folder, Redrive())
    assert sorted(one.partition("-redriven-")[2][:2] for one in place.files()) == ["2-", "3-"]
    assert all(one.count("redriven") == 1 for one in place.files())


def test_a_header_goes_first_and_gzip_stays_gzip(place: Place) -> None:
    FileSource(str(place.source), header="id,name").save(place.folder)
    place.bury(b"1;ann", file="a.csv.gz")
    redrive_files(place.folder, Redrive())
    ((name, content),) = place.files().items()
    assert name.endswith(".csv.gz")
    assert gzip.decompress(content) == b"id,name\n1;ann\n"


def test_what_would_not_be_read_stays(place: Place) -> None:
    place.bury(b"{a", file="log-01.json")
    for path, only in ((str(place.source / "log-??.json"), None), (str(place.source), "log-??.json")):
        FileSource(path, only).save(place.folder)
        outcome = redrive_files(place.folder, Redrive())
        assert (outcome.sent, outcome.failed) == (0, 1)
        assert "would not be read" in outcome.failures[0].why
    for path, only in ((str(place.source / "*.{json,log}"), None), (str(place.source.parent / "*"), "log*.json")):
        FileSource(path, only).save(place.folder)
        (place.folder / "redriven.log").unlink(missing_ok=True)
        assert redrive_files(place.folder, Redrive()).sent == 1
    two = fix(lambda _: b"{\n}")
    place.bury(b"{b")
    assert "more than one line" in redrive_files(place.folder, Redrive(fix=two)).failures[0].why


def test_letters_of_a_socket_and_topics_are_refused(place: Place) -> None:
    with pytest.raises(InvalidOption):
        redrive_files(place.folder, Redrive(to="posts"))
    (place.folder / "source.json").unlink()
    with pytest.raises(NotRedrivable):
        redrive_files(place.folder, Redrive())


def test_only_one_at_a_time(place: Place) -> None:
    place.bury(b"{a")
    with Journal(place.folder).locked(), pytest.raises(RedriveBusy):
        redrive_files(place.folder, Redrive())
    assert redrive_files(place.folder, Redrive()).sent == 1


def killed_at(step: int, folder: Path) -> bool:
    """Redrive in a child that is killed at so many changes of files; whether it was."""
    child = os.fork()
    if child == 0:
        steps = iter(range(step))

        def look(event: str, arguments: tuple[object, ...]) -> None:
            changes = event == "os.rename" or (event == "open" and arguments[1] not in ("r", "rb"))
            if changes and next(steps, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(look)
        redrive_files(folder, Redrive())
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def test_killed_at_every_step_each_line_goes_once(tmp_path: Path) -> None:
    lines = [b"{a", b"{b", b"{c", b"{d"]
    for step in itertools.count():
        root = tmp_path / str(step)
        root.mkdir()
        place, read = Place(root), []
        place.bury(*lines[:3])
        place.bury(lines[3], file="b.json")
        killed = killed_at(step, place.folder)
        for _ in range(2):
            read += place.lines()
            for name in place.files():  # a pipeline has read and removed what was there
                (place.source / name).unlink()
            redrive_files(place.folder, Redrive())
        assert sorted(read) == lines
        assert place.open() == []
        if not killed:
            break
    assert step >= 6
