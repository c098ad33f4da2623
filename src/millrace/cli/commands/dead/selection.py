"""Whose dead letters are meant: those of a pipeline, by its name or its file, or those of a topic.

A dead letter in the terminal: as lines for people, and as one line of JSON for programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.options import chosen_cluster, setting_option
from millrace.cli.output import say
from millrace.errors import FileUnusable, NoCluster, Problem, UnknownName
from millrace.limited_files import read_start
from millrace.settings import STATE

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dead_letters.store import StoredDeadLetter

_FILES = {".py", ".yaml", ".yml"}

Named = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="A pipeline's name or file, or a topic (posts, posts.dead).", show_default=False
    ),
]
StateFolder = Annotated[str | None, setting_option(STATE, "DIR")]
OfPartition = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only records of this partition of the source.")
]
OfOffset = Annotated[
    int | None, typer.Option("--offset", min=0, help="Only the record that had this offset; needs --partition.")
]


def the_cluster(kafka: str | None, config: str | None, data: str | None) -> tuple[Cluster | None, NoCluster | None]:
    """The cluster to work on, or why there is none: the letters of files can be read without."""
    try:
        return chosen_cluster(kafka, config, data), None
    except NoCluster as error:
        return None, error


def load_name(path: Path) -> str:
    """The name of the pipeline that a file defines."""
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
    fields = {key.text: value for key, value in root.pairs} if isinstance(root, Fields) else {}
    name = fields.get("name")
    if not isinstance(name, Scalar) or not name.text:
        raise FileUnusable(f"{path} gives no name to its pipeline", hint="begin it with name: …")
    return name.text


@dataclass
class DeadLetterSelection:
    """Dead letters that were asked for."""

    name: str
    topics: list[str]
    folders: list[Path]
    cluster: Cluster | None
    pipeline: str | None = None
    """Only letters of this pipeline; the topics may have those of others."""
    known: bool = True
    """Whether something of that name is there, even if it has no letters."""
    read: int = 0
    since: int | None = None
    """When the replay ended that made this generation of the pipeline, in milliseconds since 1970; its own letters are
    older."""

    @classmethod
    def named(cls, text: str, state: Path, cluster: Cluster | None, missing: NoCluster | None) -> DeadLetterSelection:
        """What a user has named; a topic goes before a pipeline of the same name."""
        from millrace.dead_letters.letter import DEAD_TOPIC_SUFFIX
        from millrace.dead_letters.store import dead_folders, dead_topics

        file = Path(text)
        topics = dead_topics(cluster) if cluster else []
        topic = text.removesuffix(DEAD_TOPIC_SUFFIX) + DEAD_TOPIC_SUFFIX
        is_file = file.suffix in _FILES
        if topic in topics and not is_file:
            if (state / "pipelines" / text).is_dir():
                say(f"{text} is taken for the topic; for the pipeline of that name give its file")
            return cls(text, [topic], [], cluster)
        name = _current(load_name(file), state) if is_file else text
        folders = dead_folders(state, name)
        if missing and not folders:
            raise missing
        known = is_file or (state / "pipelines" / name).is_dir() or (cluster is not None and _has_topic(cluster, name))
        return cls(name, topics, folders, cluster, name, known, since=_replayed(name, state))

    def letters(self, *, redriven: bool = False) -> Iterator[StoredDeadLetter]:
        """The open letters, or all, counted in `read`; raises at the end when nothing has that name."""
        from millrace.dead_letters.store import letters_in_folder, letters_in_topics, redrive_markers_in_topics

        strange = 0

        def one_more() -> None:
            nonlocal strange
            strange += 1

        if self.cluster:
            marks = redrive_markers_in_topics(self.cluster, self.topics)
            yield from self._counted(letters_in_topics(self.cluster, self.topics, one_more, marks=marks), redriven)
        for folder in self.folders:
            yield from self._counted(letters_in_folder(folder), redriven)
        if strange and self.pipeline is None:
            say(f"{strange:,} records of {self.topics[0]} are left out: they are no dead letters of Millrace")
        if not self.read and not self.known:
            raise UnknownName.among("pipeline or topic with dead letters", self.name, self.topics)

    def _counted(self, found: Iterator[StoredDeadLetter], redriven: bool) -> Iterator[StoredDeadLetter]:
        for one in found:
            if self.pipeline not in (None, one.letter.pipeline):
                continue
            self.known = True
            if redriven or not one.redriven:
                self.read += 1
                yield one


def _current(name: str, state: Path) -> str:
    """The name under which a run of the pipeline goes on: that of the generation that counts."""
    from millrace.engine.replay.generations import load, name_of

    now = name_of(name, load(state / "pipelines" / name).current)
    if now != name:
        say(f"{now} is meant, the current generation; letters of others: millrace dead show {name}")
    return now


def _replayed(name: str, state: Path) -> int | None:
    """When the replay ended that made a generation."""
    from millrace.engine.replay.generations import load

    base, _, number = name.partition("@")
    found = load(state / "pipelines" / base).get(int(number)) if number.isdecimal() else None
    return None if found is None or found.done is None else int(found.done * 1000)


def _has_topic(cluster: Cluster, name: str) -> bool:
    return name in cluster.connect().topics


_LONGEST = 1000


def letter_line(one: StoredDeadLetter) -> bytes:
    """A letter as a line of JSON, with where it lies and what became of it."""
    from millrace.dead_letters.letter import to_json_line

    home = {"topic": one.location, "partition": one.partition, "offset": one.offset}
    lies = {"file": one.location, "line": one.offset} if one.partition is None else home
    more = {"attempts": one.letter.attempts, "redriven": one.redriven}
    return to_json_line(one.letter, dead=lies, buried=one.stored_at, **more)


def letter_text(one: StoredDeadLetter) -> list[str]:
    """A letter as lines for people."""
    letter = one.letter
    made = "" if letter.timestamp is None else f" of {letter_time(letter.timestamp)}"
    return [
        f"{letter.origin}{made}",
        f"  reason:   {safe_text(letter.reason)}",
        f"  pipeline: {letter.pipeline}, source {letter.source}",
        f"  letter:   {one.position} of {letter_time(one.stored_at)}{', sent again' if one.redriven else ''}",
        *([f"  attempts: {letter.attempts}"] if letter.attempts > 1 else []),
        *([] if letter.key is None else [f"  key:      {bytes_preview(letter.key)}"]),
        *(f"  header:   {safe_text(name)}: {bytes_preview(content)}" for name, content in letter.headers),
        f"  value:    {bytes_preview(letter.value)}",
    ]


def bytes_preview(content: bytes | None) -> str:
    """Bytes as text when they are text, else as hex; the first of them when there are many."""
    from millrace.clients.kafka.record import text_or_none

    if content is None:
        return "(null)"
    words = text_or_none(content)
    if words is None:
        first = content[: _LONGEST // 10]
        return f"{first.hex(' ')}{' …' * (len(first) < len(content))} ({len(content):,} bytes, not UTF-8)"
    if len(words) > _LONGEST:
        return f"{safe_text(words[:_LONGEST])}… ({len(content):,} bytes)"
    return safe_text(words)


def safe_text(words: str) -> str:
    """Text that cannot steer the terminal it is shown on."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in words)


def letter_time(milliseconds: int | None) -> str | None:
    """A time, unless it is none that a calendar has."""
    if milliseconds is None:
        return None
    try:
        return (
            datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
