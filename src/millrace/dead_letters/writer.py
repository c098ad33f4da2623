"""Dead letters on their way out of a Spark task: to a topic beside the source's, or to a folder.

A `DeadLetterTarget` is made on the driver and travels to the workers. There each task opens a `DeadLetterWriter`,
gives it letters, and closes it before the task ends. When `close` has returned the letters are safe; when it raises,
the task must fail, and the next attempt gives the same letters again: each is still there once.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from millrace.atomic_files import AtomicFile
from millrace.clients.kafka.cluster import Cluster
from millrace.dead_letters import letter as forms
from millrace.dead_letters.file_journal import FileSource
from millrace.dead_letters.kafka_writer import KafkaDeadLetterWriter
from millrace.dead_letters.letter import DeadLetter
from millrace.dead_letters.offset_ledger import DecoderId
from millrace.dead_letters.store import create_dead_letter_topics
from millrace.errors import FileUnusable, InvalidDefinition, SourceLocation
from millrace.object_stores import StorePath

_MOST_LETTERS = 5_000
_MOST_BYTES = 8_000_000


@dataclass(frozen=True)
class WriterTask:
    """A Spark task, as it tells itself apart."""

    query: str
    """Spark's id of the query, which lives as long as its checkpoint; a name would be the same for a new checkpoint."""
    batch_id: int | None
    partition_id: int
    attempt: int = 0


class DeadLetterWriter(ABC):
    """Where one task puts its letters."""

    @abstractmethod
    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Take letters; those of one partition of a topic in the order of their offsets."""

    @abstractmethod
    def close(self) -> None:
        """Return when every letter is safe; raise when one cannot be."""

    @abstractmethod
    def abandon(self) -> None:
        """Let go after a failure: what is not safe yet comes again with the next attempt."""


class DeadLetterTarget(ABC):
    """Where the letters of a source go; can be pickled."""

    @abstractmethod
    def open(self, task: WriterTask) -> DeadLetterWriter:
        """Begin, in the worker."""


@dataclass(frozen=True)
class KafkaDeadLetterTarget(DeadLetterTarget):
    """Letters into `<topic>.dead`, each exactly once."""

    cluster: Cluster = field(repr=False)
    pipeline: str
    source: str
    topics: Mapping[str, str] = field(default_factory=dict)
    """The dead topic of a topic, where it is not `<topic>.dead`."""
    decoder_version: str | None = None
    """Names how records are judged: tasks with the same lineage find the same records bad, whichever query they are of,
    and their letters count once. It must change with the schema, the format and the columns that are decoded, and with
    the state of the run. None: each query is one of its own, and each writes its letters."""
    create: bool = False
    """Whether a worker makes a dead topic that is missing, as that of a topic which a pattern has just found."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "cluster", replace(self.cluster))  # without open connections, which cannot travel

    @property
    def group(self) -> str:
        """The consumer group in which it is written down what is safe."""
        return f"millrace.dead.{self.pipeline}.{self.source}"

    def dead_topic(self, topic: str) -> str:
        """Where the letters of a topic go."""
        return self.topics.get(topic, forms.dead_topic(topic))

    def prepare(self, topics: Iterable[str]) -> list[str]:
        """Make the dead topics of topics that have none, on the driver; their names."""
        return create_dead_letter_topics(replace(self.cluster), {topic: self.dead_topic(topic) for topic in topics})

    def open(self, task: WriterTask) -> DeadLetterWriter:
        """Begin; nothing is opened before there is a letter."""
        reader = DecoderId(task.query, self.decoder_version or task.query, task.batch_id)
        return _KafkaDeadLetterWriter(self, KafkaDeadLetterWriter(self.cluster, self.group, reader, create=self.create))


class _KafkaDeadLetterWriter(DeadLetterWriter):
    """Letters are gathered and written by the partition, a transaction at a time."""

    def __init__(self, burial: KafkaDeadLetterTarget, undertaker: KafkaDeadLetterWriter) -> None:
        self._burial = burial
        self._undertaker = undertaker
        self._waiting: dict[tuple[str, int], list[DeadLetter]] = {}
        self._count = self._bytes = 0

    def write(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            if letter.topic is None or letter.partition is None or letter.offset is None:
                raise ValueError(f"a letter that is not from a topic: {letter.origin}")
            owned = letter if letter.pipeline else _owned(letter, self._burial.pipeline, self._burial.source)
            self._waiting.setdefault((letter.topic, letter.partition), []).append(owned)
            self._count += 1
            self._bytes += len(letter.value or b"")
            if self._count >= _MOST_LETTERS or self._bytes >= _MOST_BYTES:
                self.close()

    def close(self) -> None:
        for (topic, partition), letters in self._waiting.items():
            self._undertaker.write(self._burial.dead_topic(topic), topic, partition, letters)
        self._waiting.clear()
        self._count = self._bytes = 0

    def abandon(self) -> None:
        self._waiting.clear()


@dataclass(frozen=True)
class FolderDeadLetterTarget(DeadLetterTarget):
    """Letters into a folder that every worker can reach, as JSON lines, each batch and partition in a file of its own.

    A batch that is run again replaces its files by the same ones.
    """

    folder: Path
    pipeline: str
    source: str
    files: FileSource | None = None
    """How the source reads its files, for those who put lines back; kept beside the letters."""

    def __post_init__(self) -> None:
        if isinstance(self.folder, StorePath):
            raise no_folder_on_object_store(self.source)

    def open(self, task: WriterTask) -> DeadLetterWriter:
        """Begin; nothing is written before there is a letter."""
        batch = uuid.uuid4().hex if task.batch_id is None else str(task.batch_id)
        return _FolderDeadLetterWriter(self, f"{task.query}-{batch}-{task.partition_id}.jsonl")

    def forget(self, query: str, batch: int) -> None:
        """Remove the letters of a query's batches from this one on: they will be run again, perhaps cut otherwise."""
        for file in self.folder.glob(f"{query}-*-*.jsonl"):
            number = file.name.removeprefix(f"{query}-").split("-")[0]
            if number.isdecimal() and int(number) >= batch:
                file.unlink(missing_ok=True)


class _FolderDeadLetterWriter(DeadLetterWriter):
    """A file under another name until all letters are in it and on disk."""

    def __init__(self, burial: FolderDeadLetterTarget, name: str) -> None:
        self._burial = burial
        self._final = burial.folder / name
        self._draft: AtomicFile | None = None

    def write(self, letters: Sequence[DeadLetter]) -> None:
        pipeline, source = self._burial.pipeline, self._burial.source
        owned = (letter if letter.pipeline else _owned(letter, pipeline, source) for letter in letters)
        lines = b"".join(map(forms.to_json_line, owned))
        try:
            if lines and self._draft is None:
                self._final.parent.mkdir(parents=True, exist_ok=True)
                self._draft = AtomicFile(self._final)
            if self._draft is not None:
                self._draft.file.write(lines)
        except OSError as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        if self._draft is None:
            return
        try:
            if self._burial.files:
                self._burial.files.save(self._final.parent)
            self._draft.finish()
        except OSError as error:
            raise self._unusable(error) from error
        self._draft = None

    def abandon(self) -> None:
        if self._draft is not None:
            with suppress(OSError):  # what is left of it is never read
                self._draft.abandon()
            self._draft = None

    def _unusable(self, error: OSError) -> FileUnusable:
        return FileUnusable(
            f"dead letters cannot be written to {self._final.parent}",
            why=error.strerror or str(error),
            hint="make room or give rights there; the batch is run again, and nothing is lost",
        )


def _owned(letter: DeadLetter, pipeline: str, source: str) -> DeadLetter:
    return replace(letter, pipeline=pipeline, source=source)


def no_folder_on_object_store(source: str, place: SourceLocation | None = None) -> InvalidDefinition:
    """Why letters cannot be files where the state is on a store."""
    return InvalidDefinition(
        f"the dead letters of {source!r} have no place beside a state on a store",
        place=place,
        why="they are written by Python in the executors, which do not reach it",
        hint="say on_bad: fail or drop, or choose a folder that all machines see as --state",
    )
