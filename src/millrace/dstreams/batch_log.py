"""A write-ahead log of what each batch of a stream reads, beside Spark's checkpoint.

- Store small files beside the checkpoint, on the local disk or in any file system that Hadoop knows.
- Record the input of a batch before it runs, so that a repeated batch reads the same records.
- Remove inputs that no checkpoint needs any more.
- Refuse a checkpoint folder that belongs to another program.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from millrace.atomic_files import write_whole
from millrace.clients.hadoop import HadoopStore
from millrace.errors import CheckpointIncompatible, FileUnusable, StateMismatch
from millrace.object_stores import Store, remove_folder

BatchInput = dict[str, Any]
"""What a batch reads, as JSON."""
_FOLDER = "millrace"
_OWNER = "owner.json"
_SUFFIX = ".json"
_NEWEST_REMOVED = "forgotten"


class LocalDisk(Store):
    """Files on a disk of this machine; their URLs are plain paths."""

    def read(self, url: str) -> bytes:
        return Path(url).read_bytes()

    def write(self, url: str, content: bytes, *, new: bool = False) -> None:
        if new:
            raise NotImplementedError("a file that must be new")
        write_whole(Path(url), content)

    def names(self, url: str) -> list[str]:
        return [path.name for path in Path(url).iterdir()] if Path(url).is_dir() else []

    def is_folder(self, url: str) -> bool | None:
        return Path(url).is_dir() if Path(url).exists() else None

    def remove(self, url: str) -> bool:
        is_folder = self.is_folder(url)
        if is_folder:
            remove_folder(Path(url))
        else:
            Path(url).unlink(missing_ok=True)
        return is_folder is not None


@dataclass(frozen=True)
class CheckpointFolder:
    """Small files by name; each of them is whole or does not exist."""

    store: Store
    url: str

    @classmethod
    def at(cls, place: str, jvm: Any = None, configuration: Any = None) -> CheckpointFolder:
        """Return the folder of a checkpoint as Spark names it: a path, or a URL."""
        parts = urlsplit(place)
        if parts.scheme in ("", "file"):
            return cls(LocalDisk(), unquote(parts.path) if parts.scheme else place)
        return cls(HadoopStore(jvm, configuration), place.rstrip("/"))

    def subfolder(self, name: str) -> CheckpointFolder:
        return CheckpointFolder(self.store, f"{self.url}/{name}")

    def names(self) -> list[str]:
        """Return the names in the folder; none when it does not exist."""
        return self.store.names(self.url)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None when it does not exist."""
        try:
            return self.store.read(f"{self.url}/{name}")
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Create or replace a file; it is durable when this returns."""
        try:
            self.store.write(f"{self.url}/{name}", content)
        except OSError as error:
            hint = "the checkpoint's folder must be writable"
            raise FileUnusable(f"{self.url}/{name} cannot be written", why=error.strerror, hint=hint) from None

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        self.store.remove(f"{self.url}/{name}")


class DStreamBatchLog:
    """The inputs of one stream by batch time (in milliseconds); in memory only when there is no checkpoint."""

    def __init__(self, checkpoint: CheckpointFolder | None, stream: str) -> None:
        self._folder = checkpoint.subfolder(_FOLDER).subfolder(stream) if checkpoint else None
        self._inputs: dict[int, BatchInput] = {}
        self._newest_removed = -1
        if self._folder:
            for name in self._folder.names():
                if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit():
                    self._inputs[int(name.removesuffix(_SUFFIX))] = json.loads(self._folder.read(name) or b"{}")
            self._newest_removed = int(self._folder.read(_NEWEST_REMOVED) or -1)

    def input_at(self, time: int) -> BatchInput | None:
        """Return the input of a batch; None when it is not decided yet."""
        if time <= self._newest_removed and time not in self._inputs:
            why = "newer checkpoints do not need it, and this checkpoint is older"
            hint = "start from the newest checkpoint, or from scratch with another folder"
            raise CheckpointIncompatible(f"the input of the batch of {time} was removed", why=why, hint=hint)
        return self._inputs.get(time)

    def newest(self) -> tuple[int, BatchInput] | None:
        """Return the newest input with its batch time."""
        return max(self._inputs.items(), key=lambda item: item[0], default=None)

    def newest_before(self, time: int) -> BatchInput | None:
        """Return the newest input of an earlier batch."""
        earlier = [batch for batch in self._inputs if batch < time]
        return self._inputs[max(earlier)] if earlier else None

    def write(self, time: int, batch_input: BatchInput) -> None:
        """Record the input of a batch; it is durable when this returns."""
        if self._folder:
            self._folder.write(f"{time}{_SUFFIX}", json.dumps(batch_input).encode())
        self._inputs[time] = batch_input

    def remove_before(self, time: int) -> None:
        """Remove older inputs, but never the newest: the next batch starts where it ends."""
        old = sorted(batch for batch in self._inputs if batch < time)[: len(self._inputs) - 1]
        if old and self._folder:
            self._folder.write(_NEWEST_REMOVED, str(old[-1]).encode())
        for batch in old:
            if self._folder:
                self._folder.remove(f"{batch}{_SUFFIX}")
            del self._inputs[batch]
            self._newest_removed = batch


def claim_checkpoint(checkpoint: CheckpointFolder, program: str, streams: list[str]) -> None:
    """Raise StateMismatch if the folder belongs to another program; the first program to write there owns it.

    Spark would run the functions in the checkpoint, whatever this program defines.
    """
    folder = checkpoint.subfolder(_FOLDER)
    content = folder.read(_OWNER)
    if content is None:
        folder.write(_OWNER, json.dumps({"program": program, "streams": streams}).encode())
        return
    owner = json.loads(content)
    if owner["program"] != program:
        raise StateMismatch(
            f"the checkpoint belongs to {owner['program']}, not to {program}",
            why=f"{owner['program']} reads {'; '.join(owner['streams'])}",
            hint="give each program its own checkpoint folder; a renamed program starts from scratch with a new one",
        )


def remove_other_streams(checkpoint: CheckpointFolder, streams: list[str]) -> None:
    """Remove the inputs of streams of earlier starts from scratch in the same folder."""
    folder = checkpoint.subfolder(_FOLDER)
    for name in folder.names():
        if name != _OWNER and name not in streams and not name.startswith("."):
            folder.remove(name)


def oldest_checkpoint(checkpoint: CheckpointFolder) -> int | None:
    """Return the time of the oldest of Spark's checkpoints that still exists."""
    times = [name.removeprefix("checkpoint-").removesuffix(".bk") for name in checkpoint.names()]
    return min((int(time) for time in times if time.isdigit()), default=None)
