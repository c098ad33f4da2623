"""What a redrive would send: how many letters for each reason, and the first few as the fix makes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.cli.letters import preview, safe
from millrace.cli.output import out, say, show_json, show_table
from millrace.clients.outcome import Outcome
from millrace.units import so_many

if TYPE_CHECKING:
    from millrace.cli.targets import Target
    from millrace.clients.cluster import Cluster
    from millrace.clients.dead import Found
    from millrace.clients.fixes import Fix
    from millrace.clients.redrive import Redrive
    from millrace.clients.selection import Selection

_FEW = 3
_TOLD = 20
_KINDS = 20


@dataclass
class Preview:
    """What would be sent."""

    kinds: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    """Letters of each dead topic."""
    folders: Counter[Path] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)
    """Topics that the records came from."""
    outcome: Outcome = field(default_factory=Outcome)
    few: list[tuple[Found, Any]] = field(default_factory=list)
    """The first letters, and what the fix makes of them."""

    @property
    def letters(self) -> int:
        """How many."""
        return sum(self.kinds.values())

    @classmethod
    def of(cls, aim: Target, selection: Selection, fix: Fix, *, whole: bool) -> Preview:
        """A look at the open letters; the fix is tried on the first few, or on all."""
        from millrace.clients.fixes import mended
        from millrace.clients.reasons import kind

        made = cls()
        for one in aim.letters():
            if not selection.fits(one):
                continue
            if whole or made.letters < _FEW:
                made.tried(one, mended(fix, one.letter))
            made.kinds[kind(one.letter.reason)] += 1
            if one.partition is None:
                made.folders[Path(one.home).parent] += 1
            else:
                made.topics[one.home] += 1
                made.sources.add(one.letter.topic or "")
        return made

    def tried(self, one: Found, fixed: Any) -> None:
        """Count what the fix made of a letter."""
        if len(self.few) < _FEW:
            self.few.append((one, fixed))
        if fixed is None:
            self.outcome.left += 1
        elif isinstance(fixed, str):
            self.outcome.fail(one.letter.place, fixed)
        else:
            self.outcome.sent += 1


def tell_failures(whole: Outcome) -> None:
    """Say which letters stay, and why; the first of them when there are many."""
    for one in whole.failures[:_TOLD]:
        say(f"{one.place} stays: {safe(one.why)}")
    if whole.failed > _TOLD:
        say(f"and {whole.failed - _TOLD:,} more")


def show_preview(found: Preview, wanted: Redrive, cluster: Cluster | None, *, as_json: bool = False) -> None:
    """Show it to people, or to programs."""
    if as_json:
        reasons = [{"reason": reason, "letters": count} for reason, count in found.kinds.most_common()]
        show_json({"letters": found.letters, "reasons": reasons, "would": asdict(found.outcome)})
        return
    if found.letters:
        rows = [(count, safe(reason)[:160]) for reason, count in found.kinds.most_common(_KINDS)]
        show_table(("letters", "reason"), rows)
    for one, fixed in found.few:
        out().print("\n".join(_mended(one, fixed, wanted.fix)), markup=False, soft_wrap=True)
    tell_failures(found.outcome)
    say(f"{so_many(found.letters, 'letter')}, {_stay(found.outcome, found.letters)}{_where(found, wanted)}")
    if cluster and not wanted.to:
        _tell_readers(cluster, found.sources)


def _mended(one: Found, fixed: Any, fix: Fix) -> list[str]:
    lines = [one.letter.place, f"  reason:   {safe(one.letter.reason)}", f"  value:    {preview(one.letter.value)}"]
    if fix.name is None:
        return lines
    if fixed is None:
        return [*lines, "  the fix leaves it"]
    return [*lines, f"  the fix:  {safe(fixed)}" if isinstance(fixed, str) else f"  mended:   {preview(fixed.value)}"]


def _stay(would: Outcome, letters: int) -> str:
    """How many of them would not go, where the fix was tried on all."""
    if would.sent == letters or would.sent + would.left + would.failed < letters:
        return ""
    left = [f"{would.left:,} left by the fix"] if would.left else []
    failed = [f"{would.failed:,} stay"] if would.failed else []
    return f"{', '.join([*left, *failed])}, {would.sent:,} "


def _where(found: Preview, wanted: Redrive) -> str:
    into = [wanted.to] if wanted.to else sorted(found.sources)
    parts = [f"to {', '.join(into)}"] if found.topics else []
    parts += ["back to their folders as new files"] if found.folders else []
    return " and ".join(parts) or "nothing to send"


def _tell_readers(cluster: Cluster, sources: set[str]) -> None:
    """Who else reads a topic gets its records again."""
    from millrace.clients.groups import list_groups

    groups = [one.name for one in list_groups(cluster) if sources & set(one.topics)]
    others = sorted(name for name in groups if not name.startswith("millrace.dead."))
    if others:
        names, readers = ", ".join(sorted(sources)), ", ".join(others)
        say(f"all who read {names} get these records again: {readers} (--to sends them elsewhere)")
