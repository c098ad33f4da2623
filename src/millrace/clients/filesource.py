"""How a source reads its files, kept beside their dead letters: what lines must look like that are put back there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import orjson

from millrace.drafts import write_whole

NAME = "source.json"


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
        told = orjson.dumps(asdict(self))
        place = folder / NAME
        if not place.exists() or place.read_bytes() != told:
            write_whole(place, told)

    @classmethod
    def of(cls, folder: Path) -> FileSource | None:
        """That of a folder of dead letters; None where no files are read (a socket)."""
        try:
            return cls(**orjson.loads((folder / NAME).read_bytes()))
        except FileNotFoundError:
            return None

    def takes(self, file: Path, beside: Path) -> bool:
        """Whether a new file would be read as the one beside it was."""
        if self.only and not _matches(file.name, self.only):
            return False
        # A folder is read whole; a pattern that goes as deep as the files do chooses among their names.
        pattern = PurePosixPath(unquote(urlsplit(self.path).path) if "://" in self.path else self.path)
        named = beside.name if len(pattern.parts) == 1 else str(PurePosixPath(*beside.parts[-len(pattern.parts) :]))
        of_files = _matches(named, str(pattern)) or _matches(str(beside), str(pattern))
        return not of_files or _matches(file.name, pattern.name)


def local(file: str | None) -> Path | None:
    """The path of a file on this machine; None when it is elsewhere."""
    if not file:
        return None
    found = urlsplit(file)
    if found.scheme == "file":
        return Path(unquote(found.path))
    return None if "://" in file else Path(file).absolute()


def _matches(name: str, pattern: str) -> bool:
    """As Hadoop's patterns do: braces hold choices, the rest is as in a shell."""
    before, brace, rest = pattern.partition("{")
    choices, end, after = rest.partition("}")
    if brace and end and "{" not in choices:
        return any(_matches(name, before + one + after) for one in choices.split(","))
    return fnmatchcase(name, pattern)
