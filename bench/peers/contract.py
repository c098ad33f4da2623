"""What a job and a peer are to the runner: the records and what is right, and how a program is started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


class MissingError(Exception):
    """A peer cannot be had here; says why."""


@dataclass(frozen=True)
class Place:
    """What a program needs to know of one run; it gets it as environment variables."""

    job: str
    bootstrap: str
    source: str
    target: str
    folder: Path
    campaigns: Path
    options: Mapping[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """The same for every peer."""
        return {
            "JOB": self.job,
            "BOOTSTRAP": self.bootstrap,
            "SOURCE": self.source,
            "TARGET": self.target,
            "FOLDER": str(self.folder),
            "CAMPAIGNS": str(self.campaigns),
            **self.options,
        }


class Peer(ABC):
    """A way to do the jobs. Its program reads SOURCE from the start, writes TARGET, and runs until it is ended."""

    name: str
    jobs: frozenset[str]
    """The jobs that it can do."""
    share = 1.0
    """The part of the records that it gets, where all would take it minutes."""

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Fetch what it needs; raises MissingError when that cannot be had."""

    @abstractmethod
    def command(self, place: Place) -> list[str | Path]:
        """What to start for a job."""

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """More of the environment than every program gets."""
        return {}

    def version(self) -> str:
        """What was measured."""
        return ""


class Answer(ABC):
    """What a program has written so far, against what is right."""

    @abstractmethod
    def take(self, value: bytes) -> None:
        """One record of the output topic, in its order."""

    @abstractmethod
    def right(self) -> bool:
        """Whether everything that was asked for so far is there, and nothing wrong."""

    @abstractmethod
    def ask(self) -> None:
        """The second half of the records counts from now on."""

    @abstractmethod
    def problem(self) -> str:
        """What is not right, for people."""


class Job(ABC):
    """Records in two halves: the first is there at the start, the second appears when the first is done."""

    name: str
    letter: str
    about: str
    partitions = 2
    """Of the input."""
    outputs = 1
    """Partitions of the output."""

    @abstractmethod
    def first(self) -> Iterable[tuple[int, bytes]]:
        """Partition and bytes of each record of the first half."""

    @abstractmethod
    def second(self) -> Iterable[tuple[int, bytes]]:
        """The same of the second."""

    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """How many records the halves count for."""

    @abstractmethod
    def answer(self) -> Answer:
        """Nothing written yet."""
