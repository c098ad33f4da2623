"""What is stored beside dead letters in a folder: which were sent again, and how the source reads its files.

- `Journal`: a line names letters and the file they were written to. It is written when that file is complete but still
  has the name of a draft, which no source reads; then the draft gets its name. So a draft with a line is finished by
  the next redrive, a draft without a line never counts, and a line without a draft is done.
- `JournalCounts`: how often each letter was sent.
- `FileSource`: the path, pattern and header of a source's files, which redriven files must match.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import orjson

from millrace.atomic_files import sync_folder, write_whole
from millrace.dead_letters.letter import DeadLetter
from millrace.errors import RedriveBusy

JOURNAL_FILE = "redriven.log"
_LOCK = "redrive.lock"


def letter_identity(letter: DeadLetter) -> str:
    """What makes a letter of a file the same one when its batch is run again: the file it was in, and its bytes."""
    file = (letter.file or "").encode("utf-8", "surrogatepass")
    return blake2b(file + (b"\0" if letter.value is None else b"\1" + letter.value), digest_size=12).hexdigest()


@dataclass(frozen=True)
class JournalEntry:
    """Letters, and the file that they were sent with."""

    draft: Path
    file: Path
    letters: tuple[str, ...]
    at: int = 0
    fix: str | None = None

    def is_done(self) -> bool:
        """Whether the file has got its name."""
        return not self.draft.exists()


@dataclass
class JournalCounts:
    """How often each letter was sent; equal lines of one file are only counted."""

    sent: Counter[str] = field(default_factory=Counter)
    _met: Counter[tuple[str, str]] = field(default_factory=Counter)

    def is_done(self, file: Path, letter: DeadLetter) -> bool:
        """Whether the next letter that is met was sent already; to be asked once for each letter, file by file.

        A query that starts from scratch stores the same letters again, in files of its own: they are counted by query.
        """
        name = letter_identity(letter)
        query = file.name.rsplit("-", 2)[0]
        self._met[query, name] += 1
        return self._met[query, name] <= self.sent[name]


class Journal:
    """What was sent again of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / JOURNAL_FILE

    def entries(self) -> Iterator[JournalEntry]:
        """Every line; one that a crash cut off does not count."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            entry = orjson.loads(line)
            letters = tuple(entry["letters"])
            yield JournalEntry(Path(entry["draft"]), Path(entry["file"]), letters, entry["at"], entry["fix"])

    def counts(self) -> JournalCounts:
        """How often each letter was sent, as far as its file got its name."""
        return JournalCounts(Counter(name for entry in self.entries() if entry.is_done() for name in entry.letters))

    def add(self, entries: Sequence[JournalEntry]) -> None:
        """Write lines; when it returns they are on disk."""
        with self._path.open("ab+") as file:
            _cut_torn_line(file)
            file.writelines(orjson.dumps(entry, str, orjson.OPT_APPEND_NEWLINE) for entry in entries)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.folder)

    def name_drafts(self, entries: Iterable[JournalEntry]) -> None:
        """Give drafts their names. The journal is as new as that: who follows it looks at its time."""
        unnamed = [entry for entry in entries if not entry.is_done()]
        for entry in unnamed:
            entry.draft.rename(entry.file)
            sync_folder(entry.file.parent)
        if unnamed:
            os.utime(self._path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """A time in which nobody else sends letters of the folder."""
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                what = f"another redrive of {self.folder} is at work"
                raise RedriveBusy(what, hint="try again when it has ended") from None
            yield
        finally:
            os.close(lock)


def _cut_torn_line(file: BinaryIO) -> None:
    """Remove what a crash has left of a line, which would spoil the next one."""
    if not file.seek(0, os.SEEK_END):
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


SOURCE_FILE = "source.json"


@dataclass(frozen=True)
class FileSource:
    """A folder or a pattern, as a pipeline names it."""

    path: str
    only: str | None = None
    """The pattern that names of files must match."""
    header: str | None = None
    """The first line that every file must have."""

    def save(self, folder: Path) -> None:
        """Write it into a folder of dead letters."""
        content = orjson.dumps(asdict(self))
        path = folder / SOURCE_FILE
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content)

    @classmethod
    def load(cls, folder: Path) -> FileSource | None:
        """That of a folder of dead letters; None where no files are read (a socket)."""
        try:
            return cls(**orjson.loads((folder / SOURCE_FILE).read_bytes()))
        except FileNotFoundError:
            return None

    def would_read(self, file: Path, beside: Path) -> bool:
        """Whether a new file would be read as the one beside it was."""
        if self.only and not _matches(file.name, self.only):
            return False
        # A folder is read whole; a pattern that goes as deep as the files do chooses among their names.
        pattern = PurePosixPath(unquote(urlsplit(self.path).path) if "://" in self.path else self.path)
        named = beside.name if len(pattern.parts) == 1 else str(PurePosixPath(*beside.parts[-len(pattern.parts) :]))
        of_files = _matches(named, str(pattern)) or _matches(str(beside), str(pattern))
        return not of_files or _matches(file.name, pattern.name)


def local_path(file: str | None) -> Path | None:
    """The path of a file on this machine; None when it is elsewhere."""
    if not file:
        return None
    url = urlsplit(file)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return None if "://" in file else Path(file).absolute()


def _matches(name: str, pattern: str) -> bool:
    """As Hadoop's patterns do: braces hold choices, the rest is as in a shell."""
    before, brace, rest = pattern.partition("{")
    choices, end, after = rest.partition("}")
    if brace and end and "{" not in choices:
        return any(_matches(name, before + choice + after) for choice in choices.split(","))
    return fnmatchcase(name, pattern)
