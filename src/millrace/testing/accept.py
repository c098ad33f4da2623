"""What came becomes what is expected, where that can be written without changing anything else; else it is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from millrace.drafts import write_whole
from millrace.errors import Place, Problem
from millrace.testing import files
from millrace.testing.cases import Expected, Sheet
from millrace.testing.comparing import expected_rows, row_key
from millrace.testing.given import FORMS
from millrace.testing.rewriting import Change, Refused, rewritten
from millrace.testing.running import Finding, Result


@dataclass
class Accepted:
    """The files that were changed, and what could not be."""

    changed: list[Path] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)

    def refuse(self, place: Place, why: str, hint: str) -> None:
        """Leave an expectation as it is."""
        self.refused.append(Problem("test.invalid", f"this cannot be accepted: {why}", place, hint))


@dataclass(frozen=True)
class _Seen:
    """All that came of one expectation: of each pipeline that its test was run on."""

    sheet: Sheet
    expected: Expected
    findings: list[Finding]

    @property
    def failed(self) -> bool:
        return any(one.told is not None for one in self.findings)

    @property
    def values(self) -> list[Any]:
        """What should be expected, by each of the pipelines."""
        return [_columns(self.sheet, one) for one in self.findings]


def accept(results: Iterable[Result], sheets: Sequence[Sheet]) -> Accepted:
    """Write what came in the place of what was expected and did not; `sheets` are all tests that were read."""
    accepted = Accepted()
    seen = _by_expectation(results)
    for sheet in {one.file.resolve(): one for one in reversed(sheets)}.values():
        own = [one for one in seen if _is(one.sheet, sheet) and one.failed and not _named(one.expected.value)]
        _accept_written(sheet, [one for one in own if _agreed(one, accepted)], accepted)
    for file in dict.fromkeys(_file(one.sheet, one.expected) for one in seen if one.failed):
        if file is not None:
            _accept_file(file, seen, sheets, accepted)
    return accepted


def _by_expectation(results: Iterable[Result]) -> list[_Seen]:
    found: dict[tuple[Path, tuple[str | int, ...]], _Seen] = {}
    for result in results:
        for one in result.findings:
            if one.expected is not None:
                new = _Seen(result.sheet, one.expected, [])
                found.setdefault((result.sheet.file.resolve(), one.expected.path), new).findings.append(one)
    return list(found.values())


def _is(one: Sheet, other: Sheet) -> bool:
    """Whether two tests stand in the same file, perhaps by another name."""
    return one.file.resolve() == other.file.resolve()


def _agreed(seen: _Seen, accepted: Accepted) -> bool:
    if _same(seen.values):
        return True
    hint = "make the pipelines agree first: a test that is run on both can expect one thing only"
    accepted.refuse(seen.expected.place, "the pipelines of this test gave different rows", hint)
    return False


def _accept_written(sheet: Sheet, seen: Sequence[_Seen], accepted: Accepted) -> None:
    """Expectations that stand in the file of tests itself."""
    before = text = sheet.file.read_bytes().decode("utf-8-sig") if seen else ""
    for one in seen:
        try:
            text = rewritten(text, Change(one.expected.path, one.values[0]))
        except Refused as refused:
            accepted.refuse(one.expected.place, str(refused), "write it by hand; this is what came, in the table above")
    if text != before:
        _write(sheet.file, text)
        accepted.changed.append(sheet.file)


def _accept_file(file: Path, seen: Sequence[_Seen], sheets: Sequence[Sheet], accepted: Accepted) -> None:
    """Expectations that stand in a file of rows."""
    own = [one for one in seen if _file(one.sheet, one.expected) == file]
    place = next(one.expected.place for one in own if one.failed)
    run = {(one.sheet.file, one.expected.path) for one in own}
    if why := next(_also_used(file, sheets, run), None):
        accepted.refuse(place, f"{file.name} {why}", "give each its own file")
    elif file.suffix == ".csv" or _named(own[0].expected.value) == "csv":
        accepted.refuse(place, f"{file.name} is CSV, which knows no types", "write it by hand, or expect {json: FILE}")
    elif not _same([value for one in own for value in one.values]):
        accepted.refuse(place, f"several tests expect {file.name}, and not the same came", "give each its own file")
    else:
        _write(file, _as_json(own[0].values[0], array=files.is_array(file.read_bytes())))
        accepted.changed.append(file)


def _write(file: Path, content: str | bytes) -> None:
    """Into the file itself where its name is a link, which stays one; who may read it stays as well."""
    own = file.resolve()
    mode = own.stat().st_mode
    write_whole(own, content, private=True)  # until it is as it was
    own.chmod(mode)


def _also_used(file: Path, sheets: Sequence[Sheet], run: set[tuple[Path, tuple[str | int, ...]]]) -> Iterator[str]:
    """For what else a file of rows is there: to change it for one would change it for the other."""
    for sheet in sheets:
        for case in sheet.cases:
            for step in (*case.steps, case.whole):
                for rows in step.given.values():
                    if _named(rows) and (sheet.file.parent / str(rows[_named(rows)])).resolve() == file:
                        yield f"is also what {case.name!r} is given"
                for one in (*step.rows.values(), *step.dead.values()):
                    if _file(sheet, one) == file and (sheet.file, one.path) not in run:
                        yield f"is also what {case.name!r} expects, which was not run to its end"
    read = {sheet.file.resolve() for sheet in sheets}
    for other in sorted({one for sheet in sheets for one in sheet.file.resolve().parent.glob("*.test.y*ml")} - read):
        if file.name in other.read_text("utf-8", "replace"):
            yield f"is also in {other.name}, which was not run"


def _named(rows: Any) -> str:
    """The form of a file of rows, where rows are one."""
    only = next(iter(rows)) if isinstance(rows, dict) and len(rows) == 1 else ""
    return only if only in FORMS else ""


def _file(sheet: Sheet, expected: Expected) -> Path | None:
    """The file that an expectation stands in, if it is not the tests' own."""
    form = _named(expected.value)
    return (sheet.file.parent / str(expected.value[form])).resolve() if form else None


def _columns(sheet: Sheet, finding: Finding) -> Any:
    """What came, of the columns that were named; of all when none was."""
    expected = finding.expected.value if finding.expected else None
    if not isinstance(finding.came, list):
        return finding.came
    rows = expected_rows(expected, sheet.file.parent) if isinstance(expected, list | dict) else []
    names = list(dict.fromkeys(name for row in rows for name in row))
    known = [name for name in names if all(name in row for row in finding.came)]
    return [{name: row[name] for name in known} for row in finding.came] if known else finding.came


def _same(values: Sequence[Any]) -> bool:
    """Whether what came is the same everywhere, in any order."""
    told = [sorted(map(row_key, one)) if isinstance(one, list) else one for one in values]
    return all(one == told[0] for one in told)


def _as_json(rows: Sequence[Any], *, array: bool) -> bytes:
    lines = [orjson.dumps(row) for row in rows]
    return b"[\n  " + b",\n  ".join(lines) + b"\n]\n" if array and lines else b"".join(one + b"\n" for one in lines)
