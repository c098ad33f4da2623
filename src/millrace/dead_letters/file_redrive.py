"""Redrive dead letters of file sources: write them to new files beside those they came from, each exactly once.

- The letters of a file go to one new file, whose name the source must match (`FileSource`).
- The file is written as a draft, added to the journal, and then renamed: a crash leaves nothing that counts twice.
"""

from __future__ import annotations

import gzip
import os
import time
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from millrace.atomic_files import sync_folder
from millrace.clients.kafka.record import limited_batches
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
        hint = "millrace dead export writes them to a file"
        raise NotRedrivable(f"the letters in {folder} cannot be put back", why="their source reads no files", hint=hint)
    journal = Journal(folder)
    try:
        with journal.locked():
            return _FileRedrive(journal, source, wanted, on_progress).run()
    except OSError as error:
        raise FileUnusable(f"dead letters of {folder} cannot be put back: {error}") from error


@dataclass
class _FileRedrive:
    """The only one at work in its folder."""

    journal: Journal
    source: FileSource
    wanted: Redrive
    on_progress: OnProgress
    result: RedriveResult = field(default_factory=RedriveResult)

    def run(self) -> RedriveResult:
        before = list(self.journal.entries())
        self.result.sent += sum(len(entry.letters) for entry in before if not entry.is_done())
        self.journal.name_drafts(before)
        for files in limited_batches(self._files().items(), _MAX_BATCH_FILES):
            self._put(files)
        return self.result

    def _files(self) -> dict[Path, Lines]:
        """What goes back, by the file that it was in."""
        files: dict[Path, Lines] = {}
        counts = self.journal.counts()
        for stored in letters_in_folder(self.journal.folder, counts):
            if not stored.redriven and self.wanted.selection.matches(stored):
                line = self._line(stored)
                file = local_path(stored.letter.file)
                if line is not None and file is not None:
                    name = letter_identity(stored.letter)
                    files.setdefault(file, []).append((f"{name}-{counts.sent[name]}", stored, line))
                    counts.sent[name] += 1  # also for the same letter of a query that started from scratch
        return files

    def _line(self, stored: StoredDeadLetter) -> bytes | None:
        """The line to be written; None when the letter stays."""
        fixed = apply_fix(self.wanted.fix, stored.letter)
        if fixed is None:
            self.result.left += 1
            return None
        problem = fixed if isinstance(fixed, str) else self._refusal(stored, fixed.value)
        if problem is not None or isinstance(fixed, str):
            self.result.fail(stored.position, problem or "")
            return None
        return fixed.value

    def _refusal(self, stored: StoredDeadLetter, line: bytes | None) -> str | None:
        file = local_path(stored.letter.file)
        if file is None:
            return f"its file is not on this machine: {stored.letter.file}"
        if line is None:
            return "there is no value to write"
        if b"\n" in line or b"\r" in line:
            return "it has more than one line, and each line of a file is a record"
        if not file.parent.is_dir():
            return f"there is no folder {file.parent} any more"
        name = _name(file, stored.letter.attempts + 1, "0" * 16)
        if not self.source.would_read(file.with_name(name), file):
            return f"a file named {name} would not be read: the source reads {self.source.only or self.source.path}"
        return None

    def _put(self, files: list[tuple[Path, Lines]]) -> None:
        """Drafts, then the journal, then their names."""
        now = round(time.time() * 1000)
        entries = [self._draft(file, lines, now) for file, lines in files]
        self.journal.add(entries)
        self.journal.name_drafts(entries)
        self.result.sent += sum(len(lines) for _, lines in files)
        self.on_progress(self.result)

    def _draft(self, file: Path, lines: Lines, now: int) -> JournalEntry:
        letters = tuple(letter_identity(stored.letter) for _, stored, _ in lines)
        names = "\n".join([str(self.journal.folder.absolute()), *(name for name, _, _ in lines)])
        digest = blake2b(names.encode(), digest_size=8).hexdigest()
        final = file.with_name(_name(file, lines[0][1].letter.attempts + 1, digest))
        draft = final.with_name(f".{final.name}.tmp")
        header = [self.source.header.encode()] if self.source.header is not None else []
        content = b"".join(line + b"\n" for line in (*header, *(line for _, _, line in lines)))
        with draft.open("wb") as written:
            written.write(gzip.compress(content, mtime=0) if final.suffix == ".gz" else content)
            written.flush()
            os.fsync(written.fileno())
        sync_folder(draft.parent)
        return JournalEntry(draft, final, letters, now, self.wanted.fix.name)


def _name(file: Path, attempt: int, digest: str) -> str:
    """A name that Spark reads as it did that of the file; only gzip is written as such."""
    packed = file.suffix in (".bz2", ".zst", ".lz4", ".snappy", ".deflate", ".xz")
    return redriven_file_name(file.stem if packed else file.name, attempt, digest)
