"""`millrace dead redrive`: dead letters through their pipeline again, mended or not, each once.

What a redrive would send: how many letters for each reason, and the first few as the fix makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.commands.dead.selection import (
    DeadLetterSelection,
    Named,
    OfOffset,
    OfPartition,
    StateFolder,
    bytes_preview,
    safe_text,
    the_cluster,
)
from millrace.cli.options import DataFolder, KafkaAddress, KafkaConfig, Yes, confirm
from millrace.cli.output import out, progress_line, say, show_json, show_table
from millrace.dead_letters.redrive_result import RedriveResult
from millrace.errors import InvalidOption
from millrace.settings import STATE
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dead_letters.fixes import Fix
    from millrace.dead_letters.redrive import Redrive
    from millrace.dead_letters.redrive_filter import RedriveFilter
    from millrace.dead_letters.store import StoredDeadLetter

_FEW = 3
_TOLD = 20
_KINDS = 20


@dataclass
class RedrivePreview:
    """What would be sent."""

    kinds: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    """Letters of each dead topic."""
    folders: Counter[Path] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)
    """Topics that the records came from."""
    outcome: RedriveResult = field(default_factory=RedriveResult)
    few: list[tuple[StoredDeadLetter, Any]] = field(default_factory=list)
    """The first letters, and what the fix makes of them."""

    @property
    def letters(self) -> int:
        """How many."""
        return sum(self.kinds.values())

    @classmethod
    def of(cls, aim: DeadLetterSelection, selection: RedriveFilter, fix: Fix, *, whole: bool) -> RedrivePreview:
        """A look at the open letters; the fix is tried on the first few, or on all."""
        from millrace.dead_letters.fixes import apply_fix
        from millrace.dead_letters.redrive_filter import reason_kind

        made = cls()
        for one in aim.letters():
            if not selection.matches(one):
                continue
            if whole or made.letters < _FEW:
                made.tried(one, apply_fix(fix, one.letter))
            made.kinds[reason_kind(one.letter.reason)] += 1
            if one.partition is None:
                made.folders[Path(one.location).parent] += 1
            else:
                made.topics[one.location] += 1
                made.sources.add(one.letter.topic or "")
        return made

    def tried(self, one: StoredDeadLetter, fixed: Any) -> None:
        """Count what the fix made of a letter."""
        if len(self.few) < _FEW:
            self.few.append((one, fixed))
        if fixed is None:
            self.outcome.left += 1
        elif isinstance(fixed, str):
            self.outcome.fail(one.letter.origin, fixed)
        else:
            self.outcome.sent += 1


def tell_failures(whole: RedriveResult) -> None:
    """Say which letters stay, and why; the first of them when there are many."""
    for one in whole.failures[:_TOLD]:
        say(f"{one.place} stays: {safe_text(one.why)}")
    if whole.failed > _TOLD:
        say(f"and {whole.failed - _TOLD:,} more")


def show_preview(found: RedrivePreview, wanted: Redrive, cluster: Cluster | None, *, as_json: bool = False) -> None:
    """Show it to people, or to programs."""
    if as_json:
        reasons = [{"reason": reason, "letters": count} for reason, count in found.kinds.most_common()]
        show_json({"letters": found.letters, "reasons": reasons, "would": asdict(found.outcome)})
        return
    if found.letters:
        rows = [(count, safe_text(reason)[:160]) for reason, count in found.kinds.most_common(_KINDS)]
        show_table(("letters", "reason"), rows)
    for one, fixed in found.few:
        out().print("\n".join(_mended(one, fixed, wanted.fix)), markup=False, soft_wrap=True)
    tell_failures(found.outcome)
    say(f"{format_count(found.letters, 'letter')}, {_stay(found.outcome, found.letters)}{_where(found, wanted)}")
    if cluster and not wanted.to:
        _tell_readers(cluster, found.sources)


def _mended(one: StoredDeadLetter, fixed: Any, fix: Fix) -> list[str]:
    lines = [
        one.letter.origin,
        f"  reason:   {safe_text(one.letter.reason)}",
        f"  value:    {bytes_preview(one.letter.value)}",
    ]
    if fix.name is None:
        return lines
    if fixed is None:
        return [*lines, "  the fix leaves it"]
    return [
        *lines,
        f"  the fix:  {safe_text(fixed)}" if isinstance(fixed, str) else f"  mended:   {bytes_preview(fixed.value)}",
    ]


def _stay(would: RedriveResult, letters: int) -> str:
    """How many of them would not go, where the fix was tried on all."""
    if would.sent == letters or would.sent + would.left + would.failed < letters:
        return ""
    left = [f"{would.left:,} left by the fix"] if would.left else []
    failed = [f"{would.failed:,} stay"] if would.failed else []
    return f"{', '.join([*left, *failed])}, {would.sent:,} "


def _where(found: RedrivePreview, wanted: Redrive) -> str:
    into = [wanted.to] if wanted.to else sorted(found.sources)
    parts = [f"to {', '.join(into)}"] if found.topics else []
    parts += ["back to their folders as new files"] if found.folders else []
    return " and ".join(parts) or "nothing to send"


def _tell_readers(cluster: Cluster, sources: set[str]) -> None:
    """Who else reads a topic gets its records again."""
    from millrace.clients.kafka.consumer_groups import list_groups

    groups = [one.name for one in list_groups(cluster) if sources & set(one.topics)]
    others = sorted(name for name in groups if not name.startswith("millrace.dead."))
    if others:
        names, readers = ", ".join(sorted(sources)), ", ".join(others)
        say(f"all who read {names} get these records again: {readers} (--to sends them elsewhere)")


def redrive(
    target: Named,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Only letters whose reason has this in it.")
    ] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="NAME", help="Only letters of this source.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only letters that were buried since then.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only letters that were buried before.")
    ] = None,
    partition: OfPartition = None,
    offset: OfOffset = None,
    letter: Annotated[
        str | None,
        typer.Option("--letter", metavar="PLACE", help="Only this one, as dead show tells its place: posts.dead[0]@7."),
    ] = None,
    fix: Annotated[
        str | None, typer.Option("--fix", metavar="FILE.py:FUNCTION", help="A function that mends each letter.")
    ] = None,
    fix_sql: Annotated[
        str | None, typer.Option("--fix-sql", metavar="EXPRESSION", help="A SQL expression for the new value.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Into this topic, not into that of the record.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent, mended as it would be; change nothing.")
    ] = False,
    yes: Yes = False,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as JSON.")] = False,
    kafka: KafkaAddress = None,
    kafka_config: KafkaConfig = None,
    data: DataFolder = None,
    state: StateFolder = None,
) -> None:
    """Send dead letters through their pipeline again, and mark them: each goes once."""
    from millrace.dead_letters.redrive import Redrive
    from millrace.dead_letters.redrive_filter import RedriveFilter

    if offset is not None and partition is None:
        raise InvalidOption("an offset needs a partition", hint="offsets count within a partition: add --partition P")
    mend = _fix(fix, fix_sql)
    aim = DeadLetterSelection.named(target, STATE.value(state), *the_cluster(kafka, kafka_config, data))
    selection = RedriveFilter(
        pipeline=aim.pipeline,
        source=source,
        containing=reason,
        since=max(filter(None, (_milliseconds(since), aim.since)), default=None),
        until=_milliseconds(until),
        partition=partition,
        offset=offset,
        letter=letter,
        include_replays=aim.pipeline is None or letter is not None,
    )
    wanted = Redrive(selection, mend, to)
    found = RedrivePreview.of(aim, selection, mend, whole=dry_run)
    if dry_run:
        if letter is not None and not found.letters:
            _tell_none(aim, selection)
        show_preview(found, wanted, aim.cluster, as_json=as_json)
        raise typer.Exit(1 if found.outcome.failed else 0)
    if not found.letters:
        _tell_none(aim, selection)
    elif not yes:
        show_preview(found, wanted, aim.cluster)
    if not found.letters or confirm(f"send {format_count(found.letters, 'letter')} again?", yes):
        _finish(_run(aim, wanted, found), as_json=as_json)


def _tell_none(aim: DeadLetterSelection, selection: RedriveFilter) -> None:
    """Say why there is nothing to do; raises when a letter was named that is none."""
    if selection.letter is not None:
        if not any(selection.matches(one) for one in aim.letters(redriven=True)):
            hint = "write it as millrace dead show tells it, such as posts.dead[0]@7; --all shows those sent again too"
            raise InvalidOption(f"--letter: there is no dead letter {selection.letter!r}", hint=hint)
        say(f"{selection.letter} was sent again before")
    elif aim.read and "@" in aim.name:
        say(f"{aim.read:,} open letters of a replay: send those again by their topic, as millrace dead list has it")
    else:
        say("no dead letters to send again")


def _fix(function: str | None, expression: str | None) -> Fix:
    from millrace.dead_letters.fixes import NO_FIX, python_fix, sql_fix

    if function is not None and expression is not None:
        raise InvalidOption("--fix and --fix-sql are two fixes", hint="give one of them")
    if function is not None:
        return python_fix(function)
    return NO_FIX if expression is None else sql_fix(expression)


def _milliseconds(text: str | None) -> int | None:
    from millrace.units import parse_time

    return None if text is None else round(parse_time(text).timestamp() * 1000)


def _run(aim: DeadLetterSelection, wanted: Redrive, found: RedrivePreview) -> RedriveResult:
    from millrace.dead_letters.file_redrive import redrive_files
    from millrace.dead_letters.redrive import redrive_topic as of_topic

    whole = RedriveResult()
    with progress_line() as renew:

        def tell(so_far: RedriveResult) -> None:
            renew(f"{whole.sent + so_far.sent:,} of {found.letters:,} letters sent again")

        for topic in found.topics:
            if aim.cluster:
                whole.add(of_topic(aim.cluster, topic, wanted, tell))
        for folder in {**found.folders, **dict.fromkeys([] if wanted.to else _interrupted(aim.folders))}:
            whole.add(redrive_files(folder, wanted, tell))
    return whole


def _interrupted(folders: Iterable[Path]) -> list[Path]:
    """Folders in which a redrive was killed that has files to be named, whichever letters are asked for now."""
    from millrace.dead_letters.file_journal import Journal

    return [one for one in folders if not all(entry.is_done() for entry in Journal(one).entries())]


def _finish(whole: RedriveResult, *, as_json: bool) -> None:
    tell_failures(whole)
    if as_json:
        show_json(asdict(whole))
    else:
        say(_summary(whole))
    if whole.failed:
        raise typer.Exit(1)


def _summary(whole: RedriveResult) -> str:
    parts = [f"{whole.sent:,} sent again"]
    parts += [f"{whole.already:,} only marked: their records had been sent"] if whole.already else []
    parts += [f"{whole.left:,} left by the fix"] if whole.left else []
    parts += [f"{whole.failed:,} failed and stay"] if whole.failed else []
    return ", ".join(parts)
