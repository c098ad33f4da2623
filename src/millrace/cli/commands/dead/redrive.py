"""`millrace dead redrive`: send dead letters through their pipeline again, fixed or as they are, each once.

- `RedrivePreview` counts what would be sent, by reason, and applies the fix to the first letters.
- `redrive` asks for confirmation, sends the letters and prints the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millrace.cli.app import OUTPUT_PANEL, RECORDS_PANEL, HelpPanel
from millrace.cli.commands.dead.selection import (
    DeadLetterOptions,
    DeadLetterSelection,
    PositionOptions,
    Target,
    bytes_preview,
    safe_text,
)
from millrace.cli.options import Yes, confirm
from millrace.cli.output import print_line, print_result, progress_line, show_json, show_table
from millrace.dead_letters.redrive_result import RedriveResult
from millrace.errors import InvalidOption
from millrace.units import format_count

if TYPE_CHECKING:
    from millrace.clients.kafka.cluster import Cluster
    from millrace.dead_letters.fixes import Fix
    from millrace.dead_letters.redrive import Redrive
    from millrace.dead_letters.redrive_filter import RedriveFilter
    from millrace.dead_letters.store import StoredDeadLetter

_SAMPLE_LETTERS = 3
_FAILURES_PRINTED = 20
_REASONS_PRINTED = 20
_REDRIVE_PANEL = HelpPanel("Redrive")


@dataclass
class RedrivePreview:
    """What would be sent."""

    reasons: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    """Letters in each dead letter topic."""
    folders: Counter[Path] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)
    """Topics that the records came from."""
    result: RedriveResult = field(default_factory=RedriveResult)
    sample: list[tuple[StoredDeadLetter, Any]] = field(default_factory=list)
    """The first letters, and what the fix returns for them."""

    @property
    def letters(self) -> int:
        """The number of letters."""
        return sum(self.reasons.values())

    @classmethod
    def of(cls, selection: DeadLetterSelection, filter_: RedriveFilter, fix: Fix, *, whole: bool) -> RedrivePreview:
        """Read the open letters; apply the fix to the first few, or to all."""
        from millrace.dead_letters.fixes import apply_fix
        from millrace.dead_letters.redrive_filter import reason_kind

        preview = cls()
        for stored in selection.letters():
            if not filter_.matches(stored):
                continue
            if whole or preview.letters < _SAMPLE_LETTERS:
                preview._count(stored, apply_fix(fix, stored.letter))
            preview.reasons[reason_kind(stored.letter.reason)] += 1
            if stored.partition is None:
                preview.folders[Path(stored.location).parent] += 1
            else:
                preview.topics[stored.location] += 1
                preview.sources.add(stored.letter.topic or "")
        return preview

    def _count(self, stored: StoredDeadLetter, fixed: Any) -> None:
        if len(self.sample) < _SAMPLE_LETTERS:
            self.sample.append((stored, fixed))
        if fixed is None:
            self.result.left += 1
        elif isinstance(fixed, str):
            self.result.fail(stored.letter.origin, fixed)
        else:
            self.result.sent += 1


def _print_failures(result: RedriveResult) -> None:
    for failure in result.failures[:_FAILURES_PRINTED]:
        print_line(f"{failure.place} is kept: {safe_text(failure.why)}")
    if result.failed > _FAILURES_PRINTED:
        print_line(f"and {result.failed - _FAILURES_PRINTED:,} more")


def _show_preview(preview: RedrivePreview, request: Redrive, cluster: Cluster | None, *, as_json: bool = False) -> None:
    if as_json:
        reasons = [{"reason": reason, "letters": count} for reason, count in preview.reasons.most_common()]
        show_json({"letters": preview.letters, "reasons": reasons, "would": asdict(preview.result)})
        return
    if preview.letters:
        rows = [(count, safe_text(reason)[:160]) for reason, count in preview.reasons.most_common(_REASONS_PRINTED)]
        show_table(("letters", "reason"), rows)
    for stored, fixed in preview.sample:
        print_result("\n".join(_sample_lines(stored, fixed, request.fix)))
    _print_failures(preview.result)
    kept = _kept(preview.result, preview.letters)
    print_line(f"{format_count(preview.letters, 'letter')}, {kept}{_destination(preview, request)}")
    if cluster and not request.to:
        _print_readers(cluster, preview.sources)


def _sample_lines(stored: StoredDeadLetter, fixed: Any, fix: Fix) -> list[str]:
    lines = [
        stored.letter.origin,
        f"  reason:   {safe_text(stored.letter.reason)}",
        f"  value:    {bytes_preview(stored.letter.value)}",
    ]
    if fix.name is None:
        return lines
    if fixed is None:
        return [*lines, "  the fix skips it"]
    is_error = isinstance(fixed, str)
    return [*lines, f"  the fix:  {safe_text(fixed)}" if is_error else f"  fixed:    {bytes_preview(fixed.value)}"]


def _kept(result: RedriveResult, letters: int) -> str:
    """Return how many letters would not be sent, if the fix was applied to all."""
    if result.sent == letters or result.sent + result.left + result.failed < letters:
        return ""
    skipped = [f"{result.left:,} skipped by the fix"] if result.left else []
    failed = [f"{result.failed:,} kept"] if result.failed else []
    return f"{', '.join([*skipped, *failed])}, {result.sent:,} "


def _destination(preview: RedrivePreview, request: Redrive) -> str:
    topics = [request.to] if request.to else sorted(preview.sources)
    parts = [f"to {', '.join(topics)}"] if preview.topics else []
    parts += ["back to their folders as new files"] if preview.folders else []
    return " and ".join(parts) or "nothing to send"


def _print_readers(cluster: Cluster, sources: set[str]) -> None:
    """Print the other consumer groups of the topics: they get the records again."""
    from millrace.clients.kafka.consumer_groups import list_groups

    groups = [group.name for group in list_groups(cluster) if sources & set(group.topics)]
    others = sorted(name for name in groups if not name.startswith("millrace.dead."))
    if others:
        names, readers = ", ".join(sorted(sources)), ", ".join(others)
        print_line(f"all readers of {names} get these records again: {readers} (--to sends them elsewhere)")


def redrive(
    target: Target,
    *,
    reason: str | None = RECORDS_PANEL.option("Only letters whose reason contains this.", "TEXT"),
    source: str | None = RECORDS_PANEL.option("Only letters of this source.", "NAME"),
    since: str | None = RECORDS_PANEL.option("Only letters stored since then.", "TIME"),
    until: str | None = RECORDS_PANEL.option("Only letters stored before then.", "TIME"),
    position: PositionOptions,
    letter: str | None = RECORDS_PANEL.option(
        "Only this letter, as millrace dead show prints it: posts.dead[0]@7.", "LETTER"
    ),
    fix: str | None = _REDRIVE_PANEL.option("A function that fixes each letter.", "FILE.py:FUNCTION"),
    fix_sql: str | None = _REDRIVE_PANEL.option("A SQL expression for the new value.", "EXPRESSION"),
    to: str | None = _REDRIVE_PANEL.option("Send to this topic instead of the record's own.", "TOPIC"),
    dry_run: bool = _REDRIVE_PANEL.flag("Show what would be sent, after the fix; change nothing."),
    yes: Yes = False,
    as_json: bool = OUTPUT_PANEL.flag("Print the result as JSON.", names="--json"),
    where: DeadLetterOptions,
) -> None:
    """Send dead letters through their pipeline again, and mark them, so that each is sent once."""
    from millrace.dead_letters.redrive import Redrive
    from millrace.dead_letters.redrive_filter import RedriveFilter

    position.require_partition()
    chosen_fix = _fix(fix, fix_sql)
    selection = where.select(target)
    filter_ = RedriveFilter(
        pipeline=selection.pipeline,
        source=source,
        containing=reason,
        since=max(filter(None, (_milliseconds(since), selection.since)), default=None),
        until=_milliseconds(until),
        partition=position.partition,
        offset=position.offset,
        letter=letter,
        include_replays=selection.pipeline is None or letter is not None,
    )
    request = Redrive(filter_, chosen_fix, to)
    preview = RedrivePreview.of(selection, filter_, chosen_fix, whole=dry_run)
    if dry_run:
        if letter is not None and not preview.letters:
            _print_none(selection, filter_)
        _show_preview(preview, request, selection.cluster, as_json=as_json)
        raise typer.Exit(1 if preview.result.failed else 0)
    if not preview.letters:
        _print_none(selection, filter_)
    elif not yes:
        _show_preview(preview, request, selection.cluster)
    if not preview.letters or confirm(f"send {format_count(preview.letters, 'letter')} again?", yes):
        _finish(_send(selection, request, preview), as_json=as_json)


def _print_none(selection: DeadLetterSelection, filter_: RedriveFilter) -> None:
    """Print why there is nothing to do; raise InvalidOption if a letter was named that does not exist."""
    if filter_.letter is not None:
        if not any(filter_.matches(letter) for letter in selection.letters(redriven=True)):
            hint = "write it as millrace dead show prints it, such as posts.dead[0]@7; --all shows those sent again too"
            raise InvalidOption(f"--letter: there is no dead letter {filter_.letter!r}", hint=hint)
        print_line(f"{filter_.letter} was sent again before")
    elif selection.read and "@" in selection.name:
        print_line(
            f"{selection.read:,} open letters of a replay: to send them again, name their topic (millrace dead list)"
        )
    else:
        print_line("no dead letters to send again")


def _fix(function: str | None, expression: str | None) -> Fix:
    from millrace.dead_letters.fixes import NO_FIX, python_fix, sql_fix

    if function is not None and expression is not None:
        raise InvalidOption("--fix and --fix-sql exclude each other", hint="give one of them")
    if function is not None:
        return python_fix(function)
    return NO_FIX if expression is None else sql_fix(expression)


def _milliseconds(text: str | None) -> int | None:
    from millrace.units import parse_time

    return None if text is None else round(parse_time(text).timestamp() * 1000)


def _send(selection: DeadLetterSelection, request: Redrive, preview: RedrivePreview) -> RedriveResult:
    from millrace.dead_letters.file_redrive import redrive_files
    from millrace.dead_letters.redrive import redrive_topic

    result = RedriveResult()
    with progress_line() as update:

        def on_progress(so_far: RedriveResult) -> None:
            update(f"{result.sent + so_far.sent:,} of {preview.letters:,} letters sent again")

        for topic in preview.topics:
            if selection.cluster:
                result.add(redrive_topic(selection.cluster, topic, request, on_progress))
        for folder in {**preview.folders, **dict.fromkeys([] if request.to else _interrupted(selection.folders))}:
            result.add(redrive_files(folder, request, on_progress))
    return result


def _interrupted(folders: Iterable[Path]) -> list[Path]:
    """Return the folders in which a redrive was killed before it renamed its files, whichever letters it sent."""
    from millrace.dead_letters.file_journal import Journal

    return [folder for folder in folders if not all(entry.is_done() for entry in Journal(folder).entries())]


def _finish(result: RedriveResult, *, as_json: bool) -> None:
    _print_failures(result)
    if as_json:
        show_json(asdict(result))
    else:
        parts = [f"{result.sent:,} sent again"]
        parts += [f"{result.already:,} only marked: their records had been sent"] if result.already else []
        parts += [f"{result.left:,} skipped by the fix"] if result.left else []
        parts += [f"{result.failed:,} failed and are kept"] if result.failed else []
        print_line(", ".join(parts))
    if result.failed:
        raise typer.Exit(1)
