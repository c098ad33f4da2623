"""How a Spark task writes dead letters: the contract, and dead letters as files in a folder.

- `DeadLetterTarget`: where the dead letters of a source go; made on the driver and pickled to the workers. The target
  in Kafka is `kafka_writer.KafkaDeadLetterTarget`.
- `DeadLetterWriter`: what one task writes with. After `close` has returned, the letters are stored. If it raises, the
  task must fail; the next attempt writes the same letters again, and each is stored once.
- `FolderDeadLetterTarget`: JSON lines in a folder, one file for each batch and partition.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from millrace.atomic_files import AtomicFile
from millrace.dead_letters.file_journal import FileSource
from millrace.dead_letters.letter import DeadLetter, to_json_line
from millrace.errors import FileUnusable, InvalidDefinition, SourceLocation
from millrace.object_stores import StorePath


@dataclass(frozen=True)
class WriterTask:
    """The Spark task that writes."""

    query: str
    """Spark's id of the query, which is as old as its checkpoint; a new checkpoint of the same name has another id."""
    batch_id: int | None
    partition_id: int
    attempt: int = 0


class DeadLetterWriter(ABC):
    """Writes the dead letters of one task."""

    @abstractmethod
    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Take letters; those of one partition of a topic in the order of their offsets."""

    @abstractmethod
    def close(self) -> None:
        """Return when every letter is stored; raise if one cannot be."""

    @abstractmethod
    def abandon(self) -> None:
        """Discard what is not stored yet, after a failure: the next attempt writes it again."""


class DeadLetterTarget(ABC):
    """Where the dead letters of a source go; can be pickled."""

    pipeline: str
    source: str

    @abstractmethod
    def open(self, task: WriterTask) -> DeadLetterWriter:
        """Return the writer of a task, in the worker. Nothing is opened before there is a letter."""

    def with_origin(self, letter: DeadLetter) -> DeadLetter:
        """Return a letter that names its pipeline and source."""
        return letter if letter.pipeline else replace(letter, pipeline=self.pipeline, source=self.source)


@dataclass(frozen=True)
class FolderDeadLetterTarget(DeadLetterTarget):
    """Dead letters as JSON lines in a folder that every worker can write to.

    Each batch and partition has a file of its own; a batch that is repeated replaces its files by the same ones.
    """

    folder: Path
    pipeline: str
    source: str
    files: FileSource | None = None
    """How the source reads its files; stored beside the letters, for `millrace dead redrive`."""

    def __post_init__(self) -> None:
        if isinstance(self.folder, StorePath):
            raise no_folder_on_object_store(self.source)

    def open(self, task: WriterTask) -> DeadLetterWriter:
        batch = uuid.uuid4().hex if task.batch_id is None else str(task.batch_id)
        return _FolderDeadLetterWriter(self, f"{task.query}-{batch}-{task.partition_id}.jsonl")

    def forget(self, query: str, batch: int) -> None:
        """Remove the files of a query from a batch on: these batches are repeated, perhaps with other partitions."""
        for file in self.folder.glob(f"{query}-*-*.jsonl"):
            number = file.name.removeprefix(f"{query}-").split("-")[0]
            if number.isdecimal() and int(number) >= batch:
                file.unlink(missing_ok=True)


class _FolderDeadLetterWriter(DeadLetterWriter):
    """Writes one file, which gets its name when all letters are in it and on disk."""

    def __init__(self, target: FolderDeadLetterTarget, name: str) -> None:
        self._target = target
        self._path = target.folder / name
        self._draft: AtomicFile | None = None

    def write(self, letters: Sequence[DeadLetter]) -> None:
        lines = b"".join(to_json_line(self._target.with_origin(letter)) for letter in letters)
        with self._translated_errors():
            if lines and self._draft is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._draft = AtomicFile(self._path)
            if self._draft is not None:
                self._draft.file.write(lines)

    def close(self) -> None:
        if self._draft is not None:
            with self._translated_errors():
                if self._target.files:
                    self._target.files.save(self._path.parent)
                self._draft.finish()
            self._draft = None

    def abandon(self) -> None:
        if self._draft is not None:
            with suppress(OSError):  # a draft is never read
                self._draft.abandon()
            self._draft = None

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileUnusable(
                f"dead letters cannot be written to {self._path.parent}",
                why=error.strerror or str(error),
                hint="free some space or grant access; the batch is repeated, and nothing is lost",
            ) from error


def no_folder_on_object_store(source: str, place: SourceLocation | None = None) -> InvalidDefinition:
    """Return the error for dead letters in files where the state is on an object store."""
    return InvalidDefinition(
        f"the dead letters of {source!r} cannot be stored beside a state on an object store",
        place=place,
        why="they are written by Python in the executors, which do not reach it",
        hint="say on_bad: fail or drop, or choose a folder that all machines see as --state",
    )
