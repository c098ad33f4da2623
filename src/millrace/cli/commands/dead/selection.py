"""Which dead letters are meant, and how they are printed.

- `DeadLetterOptions` and `PositionOptions` are options that the commands share.
- `DeadLetterSelection` finds the letters of a pipeline, by its name or its file, or those of a topic.
- `letter_text` and `letter_line` print a letter for people and for programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.app import RECORDS_PANEL, OptionGroup
from millrace.cli.options import KafkaOptions, StateRoot
from millrace.cli.output import print_line
from millrace.errors import FileUnusable, InvalidOption, NoCluster, Problem, UnknownName
from millrace.limited_files import read_start
from millrace.settings import STATE

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dead_letters.store import StoredDeadLetter

_PIPELINE_SUFFIXES = {".py", ".yaml", ".yml"}
_MAX_VALUE_CHARS = 1000

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A pipeline's name or file, or a topic (posts, posts.dead).", show_default=False
    ),
]


@dataclass(frozen=True)
class PositionOptions(OptionGroup):
    """Which record of the source."""

    partition: Annotated[int | None, RECORDS_PANEL.option("Only records of this source partition.", "N", min=0)] = None
    offset: Annotated[
        int | None, RECORDS_PANEL.option("Only the record that had this offset; needs --partition.", "N", min=0)
    ] = None

    def require_partition(self) -> None:
        """Raise InvalidOption if there is an offset without a partition."""
        if self.offset is not None and self.partition is None:
            raise InvalidOption(
                "an offset needs a partition", hint="offsets count within a partition: add --partition P"
            )

    def fits(self, stored: StoredDeadLetter) -> bool:
        """Return whether a letter's record was at this position."""
        letter = stored.letter
        return self.partition in (None, letter.partition) and self.offset in (None, letter.offset)


@dataclass(frozen=True)
class DeadLetterOptions(KafkaOptions):
    """Where dead letters are looked for."""

    state: StateRoot = None

    def cluster_or_reason(self) -> tuple[Cluster | None, NoCluster | None]:
        """Return the cluster, or why there is none: letters in files can be read without."""
        try:
            return self.cluster(), None
        except NoCluster as error:
            return None, error

    def select(self, target: str) -> DeadLetterSelection:
        """Return the letters of a pipeline or topic."""
        return DeadLetterSelection.named(target, STATE.value(self.state), *self.cluster_or_reason())


def load_name(path: Path) -> str:
    """Return the name of the pipeline that a file defines."""
    from millrace.pipeline.loading import load
    from millrace.pipeline.loading.yaml_document import LARGEST, Fields, Scalar, read_document

    if path.suffix == ".py":
        return load(str(path)).name
    problems: list[Problem] = []
    try:
        root = read_document(read_start(path, LARGEST + 1), str(path), problems)
    except OSError as error:
        raise FileUnusable(f"cannot read {path}", why=error.strerror or str(error)) from None
    if problems:
        raise FileUnusable(f"{path} is not YAML", why=problems[0].message, place=problems[0].place)
    pairs = root.pairs if isinstance(root, Fields) else ()
    name = {key.text: value for key, value in pairs}.get("name")
    if not isinstance(name, Scalar) or not name.text:
        raise FileUnusable(f"{path} gives no name to its pipeline", hint="start it with name: …")
    return name.text


@dataclass
class DeadLetterSelection:
    """The dead letters of a pipeline or topic."""

    name: str
    topics: list[str]
    folders: list[Path]
    cluster: Cluster | None
    pipeline: str | None = None
    """Only letters of this pipeline; the topics may have letters of others."""
    known: bool = True
    """Whether something of that name exists, even if it has no letters."""
    read: int = 0
    since: int | None = None
    """When the replay that created this generation ended, in milliseconds since 1970; its own letters are older."""

    @classmethod
    def named(cls, text: str, state: Path, cluster: Cluster | None, missing: NoCluster | None) -> DeadLetterSelection:
        """Return the selection for a name; a topic takes precedence over a pipeline of the same name."""
        from millrace.dead_letters.letter import DEAD_TOPIC_SUFFIX
        from millrace.dead_letters.store import dead_folders, dead_topics

        file = Path(text)
        topics = dead_topics(cluster) if cluster else []
        topic = text.removesuffix(DEAD_TOPIC_SUFFIX) + DEAD_TOPIC_SUFFIX
        is_file = file.suffix in _PIPELINE_SUFFIXES
        if topic in topics and not is_file:
            if (state / "pipelines" / text).is_dir():
                print_line(f"{text} is a topic and a pipeline: the topic is used; to use the pipeline, give its file")
            return cls(text, [topic], [], cluster)
        name = _current(load_name(file), state) if is_file else text
        folders = dead_folders(state, name)
        if missing and not folders:
            raise missing
        known = (
            is_file
            or (state / "pipelines" / name).is_dir()
            or (cluster is not None and name in cluster.connect().topics)
        )
        return cls(name, topics, folders, cluster, name, known, since=_replayed(name, state))

    def letters(self, *, redriven: bool = False) -> Iterator[StoredDeadLetter]:
        """Yield the open letters, or all, counted in `read`; raise UnknownName at the end if nothing has that name."""
        from millrace.dead_letters.store import letters_in_folder, letters_in_topics, redrive_markers_in_topics

        foreign = 0

        def count_foreign() -> None:
            nonlocal foreign
            foreign += 1

        if self.cluster:
            markers = redrive_markers_in_topics(self.cluster, self.topics)
            yield from self._counted(
                letters_in_topics(self.cluster, self.topics, count_foreign, markers=markers), redriven
            )
        for folder in self.folders:
            yield from self._counted(letters_in_folder(folder), redriven)
        if foreign and self.pipeline is None:
            print_line(f"{foreign:,} records of {self.topics[0]} are left out: they are no dead letters of Millrace")
        if not self.read and not self.known:
            raise UnknownName.among("pipeline or topic with dead letters", self.name, self.topics)

    def _counted(self, letters: Iterator[StoredDeadLetter], redriven: bool) -> Iterator[StoredDeadLetter]:
        for stored in letters:
            if self.pipeline not in (None, stored.letter.pipeline):
                continue
            self.known = True
            if redriven or not stored.redriven:
                self.read += 1
                yield stored


def _current(name: str, state: Path) -> str:
    """Return the name of the pipeline's current generation, which a run resumes."""
    from millrace.engine.replay.generations import load, name_of

    current = name_of(name, load(state / "pipelines" / name).current)
    if current != name:
        print_line(f"{current} is used, the current generation; letters of others: millrace dead show {name}")
    return current


def _replayed(name: str, state: Path) -> int | None:
    """Return when the replay that created a generation ended."""
    from millrace.engine.replay.generations import load

    base, _, number = name.partition("@")
    generation = load(state / "pipelines" / base).get(int(number)) if number.isdecimal() else None
    return None if generation is None or generation.done is None else int(generation.done * 1000)


def letter_line(stored: StoredDeadLetter) -> bytes:
    """Return a letter as a line of JSON, with where it is stored and whether it was sent again."""
    from millrace.dead_letters.letter import to_json_line

    in_topic = {"topic": stored.location, "partition": stored.partition, "offset": stored.offset}
    location = {"file": stored.location, "line": stored.offset} if stored.partition is None else in_topic
    more = {"attempts": stored.letter.attempts, "redriven": stored.redriven}
    return to_json_line(stored.letter, dead=location, buried=stored.stored_at, **more)


def letter_text(stored: StoredDeadLetter) -> list[str]:
    """Return a letter as lines for people."""
    letter = stored.letter
    time = "" if letter.timestamp is None else f" of {letter_time(letter.timestamp)}"
    return [
        f"{letter.origin}{time}",
        f"  reason:   {safe_text(letter.reason)}",
        f"  pipeline: {letter.pipeline}, source {letter.source}",
        f"  letter:   {stored.position} of {letter_time(stored.stored_at)}{', sent again' if stored.redriven else ''}",
        *([f"  attempts: {letter.attempts}"] if letter.attempts > 1 else []),
        *([] if letter.key is None else [f"  key:      {bytes_preview(letter.key)}"]),
        *(f"  header:   {safe_text(name)}: {bytes_preview(content)}" for name, content in letter.headers),
        f"  value:    {bytes_preview(letter.value)}",
    ]


def bytes_preview(content: bytes | None) -> str:
    """Return the first bytes as text, or as hex if they are not UTF-8."""
    from millrace.clients.kafka.record import text_or_none

    if content is None:
        return "(null)"
    text = text_or_none(content)
    if text is None:
        first = content[: _MAX_VALUE_CHARS // 10]
        return f"{first.hex(' ')}{' …' * (len(first) < len(content))} ({len(content):,} bytes, not UTF-8)"
    if len(text) > _MAX_VALUE_CHARS:
        return f"{safe_text(text[:_MAX_VALUE_CHARS])}… ({len(content):,} bytes)"
    return safe_text(text)


def safe_text(text: str) -> str:
    """Return text that cannot control the terminal it is shown on."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def letter_time(milliseconds: int | None) -> str | None:
    """Return a timestamp as text."""
    if milliseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
