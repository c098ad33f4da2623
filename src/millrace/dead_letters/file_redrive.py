"""Redrive dead letters of file sources: write them to new files beside those they came from, each exactly once.

- The letters of a file go to one new file, whose name the source must match (`FileSource`).
- The file is written as a draft, added to the journal, and then renamed: a crash leaves nothing that counts twice.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from millrace.atomic_files import sync_folder
from millrace.dead_letters.file_journal import FileSource, Journal, JournalEntry, letter_identity, local_path
from millrace.dead_letters.fixes import apply_fix
from millrace.dead_letters.letter import redriven_file_name
from millrace.dead_letters.redrive import Redrive
from millrace.dead_letters.redrive_result import OnProgress, RedriveResult
from millrace.dead_letters.store import StoredDeadLetter, letters_in_folder
from millrace.errors import FileUnusable, InvalidOption, NotRedrivable

_MAX_BATCH_FILES = 100
"""Files that are named together, after one line of the journal for each is on disk."""

Lines = list[tuple[str, StoredDeadLetter, bytes]]
"""What to write for letters, each with a name that no other ever has."""


def redrive_files(folder: Path, wanted: Redrive, on_progress: OnProgress = lambda _: None) -> RedriveResult:
    """Write letters of a folder to new files beside those they came from; report the letters that cannot be written."""
    if wanted.to:
        raise InvalidOption("--to names a topic, and these are letters of files", hint="leave --to out")
    source = FileSource.load(folder)
    if source is None:
        raise NotRedrivable(
            f"the letters in {folder} cannot be put back",
            why="their source reads no files",
            hint="millrace dead export writes them to a file",
        )
    journal = Journal(folder)
    try:
        with journal.locked():
            return _FileRedrive(journal, source, wanted, on_progress).run()
    except OSError as error:
        raise FileUnusable(f"dead letters of {folder} cannot be put back: {error}") from error


class _FileRedrive:
    """The only one at work in its folder."""

    def __init__(self, journal: Journal, source: FileSource, wanted: Redrive, on_progress: OnProgress) -> None:
        self._journal = journal
        self._source = source
        self._wanted = wanted
        self._on_progress = on_progress
        self._result = RedriveResult()

    def run(self) -> RedriveResult:
        before = list(self._journal.entries())
        for one in before:
            if not one.is_done():
                self._result.sent += len(one.letters)
        self._journal.name_drafts(before)
        for files in _several(self._files().items()):
            self._put(files)
        return self._result

    def _files(self) -> dict[Path, Lines]:
        """What goes back, by the file that it was in."""
        files: dict[Path, Lines] = {}
        counts = self._journal.counts()
        for one in letters_in_folder(self._journal.folder, counts):
            if not one.redriven and self._wanted.selection.matches(one):
                line = self._line(one)
                file = local_path(one.letter.file)
                if line is not None and file is not None:
                    name = letter_identity(one.letter)
                    files.setdefault(file, []).append((f"{name}-{counts.sent[name]}", one, line))
                    counts.sent[name] += 1  # also for the same letter of a query that started from scratch
        return files

    def _line(self, one: StoredDeadLetter) -> bytes | None:
        """The line to be written; None when the letter stays."""
        fixed = apply_fix(self._wanted.fix, one.letter)
        if fixed is None:
            self._result.left += 1
            return None
        problem = fixed if isinstance(fixed, str) else self._refusal(one, fixed.value)
        if problem is not None or isinstance(fixed, str):
            self._result.fail(one.position, problem or "")
            return None
        return fixed.value

    def _refusal(self, one: StoredDeadLetter, line: bytes | None) -> str | None:
        file = local_path(one.letter.file)
        if file is None:
            return f"its file is not on this machine: {one.letter.file}"
        if line is None:
            return "there is no value to write"
        if b"\n" in line or b"\r" in line:
            return "it has more than one line, and each line of a file is a record"
        if not file.parent.is_dir():
            return f"there is no folder {file.parent} any more"
        name = _name(file, one.letter.attempts + 1, "0" * 16)
        if not self._source.would_read(file.with_name(name), file):
            return f"a file named {name} would not be read: the source reads {self._source.only or self._source.path}"
        return None

    def _put(self, files: list[tuple[Path, Lines]]) -> None:
        """Drafts, then the journal, then their names."""
        now = round(time.time() * 1000)
        entries = [self._draft(file, lines, now) for file, lines in files]
        self._journal.add(entries)
        self._journal.name_drafts(entries)
        self._result.sent += sum(len(lines) for _, lines in files)
        self._on_progress(self._result)

    def _draft(self, file: Path, lines: Lines, now: int) -> JournalEntry:
        letters = tuple(letter_identity(one.letter) for _, one, _ in lines)
        names = "\n".join([str(self._journal.folder.absolute()), *(name for name, _, _ in lines)])
        digest = blake2b(names.encode(), digest_size=8).hexdigest()
        final = file.with_name(_name(file, lines[0][1].letter.attempts + 1, digest))
        draft = final.with_name(f".{final.name}.tmp")
        header = [self._source.header.encode()] if self._source.header is not None else []
        content = b"".join(line + b"\n" for line in (*header, *(line for _, _, line in lines)))
        with draft.open("wb") as written:
            written.write(gzip.compress(content, mtime=0) if final.suffix == ".gz" else content)
            written.flush()
            os.fsync(written.fileno())
        sync_folder(draft.parent)
        return JournalEntry(draft, final, letters, now, self._wanted.fix.name)


def _name(file: Path, attempt: int, digest: str) -> str:
    """A name that Spark reads as it did that of the file; only gzip is written as such."""
    packed = file.suffix in (".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")
    return redriven_file_name(file.stem if packed else file.name, attempt, digest)


def _several(files: Iterable[tuple[Path, Lines]]) -> Iterator[list[tuple[Path, Lines]]]:
    batch: list[tuple[Path, Lines]] = []
    for one in files:
        batch.append(one)
        if len(batch) >= _MAX_BATCH_FILES:
            yield batch
            batch = []
    if batch:
        yield batch
