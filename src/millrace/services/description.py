"""What a service of ours keeps of itself in its folder: one file, which also tells others its processes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from millrace.drafts import write_whole
from millrace.errors import MillraceError
from millrace.services.process import Identity


@dataclass(frozen=True, kw_only=True)
class Description(ABC):
    """A service as it lies on disk; its processes are known by numbers."""

    file: ClassVar[str]
    what: ClassVar[str]
    """What the folder of one holds, in a word."""
    mismatch: ClassVar[type[MillraceError]]
    """The error of a folder that holds something else."""

    password: str
    secure: bool = False

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients reach it."""

    @abstractmethod
    def processes(self) -> dict[int, Identity]:
        """Those that are noted, whether they still run or not."""

    @abstractmethod
    def with_process(self, number: int, process: Identity | None) -> Self:
        """The same with another process."""

    @classmethod
    @abstractmethod
    def parsed(cls, found: dict[str, Any]) -> Self:
        """One from the content of its file; raises what Python does when that is something else."""

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The service that lies in a folder, or None when the folder is new."""
        path = folder / cls.file
        if not path.exists():
            cls._require_empty(folder)
            return None
        try:
            return cls.parsed(json.loads(path.read_text("utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise cls.mismatch(f"{path} cannot be read", why=why, hint="choose another --data folder") from None

    @classmethod
    def running(cls, folder: Path) -> Self | None:
        """The service that runs in a folder, or None when none does."""
        found = cls.load(folder) if (folder / cls.file).exists() else None
        return found if found and found.alive() else None

    def save(self, folder: Path) -> None:
        """Write it; it holds a password."""
        write_whole(folder / self.file, json.dumps(asdict(self), indent=2), private=True)

    def alive(self) -> dict[int, Identity]:
        """The processes that run now."""
        return {number: one for number, one in self.processes().items() if one.process()}

    def stop(self, folder: Path) -> list[int]:
        """Stop what runs, whoever started it; gives the numbers of those that did."""
        found, left = self.alive(), self
        with ThreadPoolExecutor(max(1, len(found))) as pool:
            list(pool.map(Identity.stop, found.values()))
        for number in found:
            left = left.with_process(number, None)
        left.save(folder)
        return list(found)

    @classmethod
    def _require_empty(cls, folder: Path) -> None:
        """A draft of the file is what a start leaves that was killed before it had begun."""
        found = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        left = sorted(name for name in found if name != "lock" and not name.startswith(f".{cls.file}."))
        if left:
            raise cls.mismatch(
                f"{folder} is not empty and holds no {cls.what} of Millrace",
                why=f"it has {', '.join(left[:4])}" + (", …" if len(left) > 4 else ""),
                hint="choose another --data folder, or an empty one",
            )


def identity(found: dict[str, Any] | None) -> Identity | None:
    """A process from the content of a file."""
    return Identity(**found) if found else None
