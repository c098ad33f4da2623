"""What came becomes what is expected, where that can be written without changing anything else; else it is told.

One value of a YAML file is written anew where it stands; the file is read again, and nothing else may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import orjson
import yaml

from millrace.atomic_files import write_whole
from millrace.errors import Problem, SourceLocation
from millrace.pipeline.loading.yaml_document import Scalar, read_document
from millrace.testing import row_files
from millrace.testing.compare import BITS, expected_rows, row_key
from millrace.testing.input_rows import FORMS
from millrace.testing.runner import CaseFinding, Result
from millrace.testing.spec import ExpectedRows, SpecFile
from millrace.testing.spec_file import placed

_Path = tuple[str | int, ...]


class EditRefused(Exception):
    """A value that cannot be written without changing something else."""


@dataclass(frozen=True)
class SpecEdit:
    """The keys that lead to a value, and what it shall be."""

    path: _Path
    value: Any


def rewritten_text(text: str, change: SpecEdit) -> str:
    """The file's text with another value in one place: as few of its lines as can be are new."""
    before = _read(text)
    for new in _attempts(text, before, change):
        if _is_only(before, _read(new), change):
            return new
    if _has_anchors(text):
        raise EditRefused(
            "it cannot be rewritten alone; an anchor (&, *, <<) may share it with other parts of the file"
        )
    raise EditRefused("what came would not be read back as it is")


def _has_anchors(text: str) -> bool:
    return any(getattr(event, "anchor", None) for event in yaml.parse(text, Loader=yaml.SafeLoader))


def _attempts(text: str, before: Any, change: SpecEdit) -> Iterator[str]:
    try:
        place = _found(yaml.compose(text, Loader=yaml.SafeLoader), change.path)
    except yaml.YAMLError:
        return
    if place is None:
        return
    if isinstance(change.value, list):
        old = reduce(getitem, change.path, before)
        yield from _by_rows(text, place.node, old, change.value)
    yield _whole(text, place, change.value)


@dataclass(frozen=True)
class _Found:
    """A value in the file, its key, and whether braces or brackets are around it."""

    key: Any
    node: Any
    flow: bool


def _found(root: Any, path: _Path) -> _Found | None:
    key, node, flow = None, root, False
    for part in path:
        flow = flow or bool(node.flow_style)
        if isinstance(part, int):
            node = node.value[part]
        else:
            pairs = [(name, one) for name, one in node.value if name.value == part]
            if not pairs:  # it comes from elsewhere, by <<
                return None
            key, node = pairs[0]
    return _Found(key, node, flow)


def _by_rows(text: str, node: Any, old: Any, rows: Sequence[Any]) -> Iterator[str]:
    """Of a list with a row in a line or more: the rows that came stay as they are, and so do comments."""
    if not isinstance(node, yaml.SequenceNode) or node.flow_style or not rows:
        return
    new = [_key(row) for row in rows]
    gone = [one for one, was in zip(node.value, old, strict=True) if not _taken(_key(was), new)]
    written = [row for row in rows if _taken(_key(row), new)]
    lines = text.splitlines(keepends=True)
    spans = [range(one.start_mark.line, _last_line(text, one) + 1) for one in gone]
    at = spans[0].start if spans else _last_line(text, node) + 1
    dash = " " * node.start_mark.column + "- "
    added = [f"{dash}{_flow(row)}{_newline(text)}" for row in written]
    out = [(number, line) for number, line in enumerate(lines) if not any(number in span for span in spans)]
    before = [line for number, line in out if number < at]
    if before and not before[-1].endswith("\n"):
        before[-1] += _newline(text)
    yield "".join([*before, *added, *(line for number, line in out if number >= at)])


def _taken(key: bytes, left: list[bytes]) -> bool:
    """Whether a row is among those that are left; it is no more, then."""
    if key not in left:
        return False
    left.remove(key)
    return True


def _whole(text: str, found: _Found, value: Any) -> str:
    """The file with the value replaced from its first character to its last."""
    start, end = found.node.start_mark.index, _end(found.node)
    if not isinstance(value, list):
        return f"{text[:start]}{value}{text[end:]}"
    if found.flow or found.key is None or not value:
        written = f"[{', '.join(map(_flow, value))}]"
        block = found.key is not None and not found.flow and text[found.key.end_mark.index] == ":"
        return (
            f"{text[: found.key.end_mark.index]}: {written}{text[end:]}"
            if block
            else f"{text[:start]}{written}{text[end:]}"
        )
    dash = f"{_newline(text)}{' ' * (found.key.start_mark.column + 2)}- "
    return f"{text[: found.key.end_mark.index]}:{''.join(dash + _flow(row) for row in value)}{text[end:]}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _last_line(text: str, node: Any) -> int:
    return text[: _end(node)].rstrip().count("\n")


def _end(node: Any) -> int:
    """Where the last character of a value stands: of a block, comments and lines after it are not part."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


class _Row(yaml.SafeDumper):
    """Rows as they are read here, by YAML 1.2: PyYAML itself would leave the text `1e5` without quotes."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _text(dumper: _Row, text: str) -> Any:
    is_text = isinstance(placed(Scalar(text, SourceLocation(""), plain=True)), str)
    style = '"' if not text.isprintable() else None if is_text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Row.add_representer(str, _text)


def _flow(row: Any) -> str:
    """A row in one line."""
    form = partial(yaml.dump, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1_000_000)
    return str(form(row, Dumper=_Row)).removesuffix("\n").removesuffix("\n...")


def _read(text: str) -> Any:
    """What a file says, or None where it cannot be read."""
    problems: list[Problem] = []
    root = read_document(text.encode(), "", problems)
    return None if root is None or problems else placed(root)


def _is_only(before: Any, after: Any, change: SpecEdit, path: _Path = ()) -> bool:
    """Whether two documents differ in one value, and that is what it shall be."""
    if path == change.path:
        return bool(_told(after) == _told(change.value))
    if path != change.path[: len(path)]:
        return bool(before == after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        same = list(before) == list(after)
        return same and all(_is_only(before[name], after[name], change, (*path, name)) for name in before)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return all(_is_only(*both, change, (*path, at)) for at, both in enumerate(zip(before, after, strict=True)))
    return bool(before == after)


def _told(value: Any) -> Any:
    """Rows in any order."""
    return sorted(map(_key, value)) if isinstance(value, list) else value


def _key(row: Any) -> bytes:
    """A row by what it says: 20 is 20.0."""
    return row_key(_normalized(row))


def _normalized(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _normalized(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_normalized(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) and value.bit_length() > BITS else value


@dataclass
class AcceptResult:
    """The files that were changed, and what could not be."""

    changed: list[Path] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)

    def refuse(self, place: SourceLocation, why: str, hint: str) -> None:
        """Leave an expectation as it is."""
        self.refused.append(Problem("test.invalid", f"this cannot be accepted: {why}", place, hint))


@dataclass(frozen=True)
class _Seen:
    """All that came of one expectation: of each pipeline that its test was run on."""

    sheet: SpecFile
    expected: ExpectedRows
    findings: list[CaseFinding]

    @property
    def failed(self) -> bool:
        return any(one.told is not None for one in self.findings)

    @property
    def values(self) -> list[Any]:
        """What should be expected, by each of the pipelines."""
        return [_columns(self.sheet, one) for one in self.findings]


def accept(results: Iterable[Result], sheets: Sequence[SpecFile]) -> AcceptResult:
    """Write what came in the place of what was expected and did not; `sheets` are all tests that were read."""
    accepted = AcceptResult()
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


def _is(one: SpecFile, other: SpecFile) -> bool:
    """Whether two tests stand in the same file, perhaps by another name."""
    return one.file.resolve() == other.file.resolve()


def _agreed(seen: _Seen, accepted: AcceptResult) -> bool:
    if _same(seen.values):
        return True
    hint = "make the pipelines agree first: a test that is run on both can expect one thing only"
    accepted.refuse(seen.expected.place, "the pipelines of this test gave different rows", hint)
    return False


def _accept_written(sheet: SpecFile, seen: Sequence[_Seen], accepted: AcceptResult) -> None:
    """Expectations that stand in the file of tests itself."""
    before = text = sheet.file.read_bytes().decode("utf-8-sig") if seen else ""
    for one in seen:
        try:
            text = rewritten_text(text, SpecEdit(one.expected.path, one.values[0]))
        except EditRefused as refused:
            accepted.refuse(one.expected.place, str(refused), "write it by hand; this is what came, in the table above")
    if text != before:
        _write(sheet.file, text)
        accepted.changed.append(sheet.file)


def _accept_file(file: Path, seen: Sequence[_Seen], sheets: Sequence[SpecFile], accepted: AcceptResult) -> None:
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
        _write(file, _as_json(own[0].values[0], array=row_files.is_array(file.read_bytes())))
        accepted.changed.append(file)


def _write(file: Path, content: str | bytes) -> None:
    """Into the file itself where its name is a link, which stays one; who may read it stays as well."""
    own = file.resolve()
    mode = own.stat().st_mode
    write_whole(own, content, private=True)  # until it is as it was
    own.chmod(mode)


def _also_used(file: Path, sheets: Sequence[SpecFile], run: set[tuple[Path, tuple[str | int, ...]]]) -> Iterator[str]:
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


def _file(sheet: SpecFile, expected: ExpectedRows) -> Path | None:
    """The file that an expectation stands in, if it is not the tests' own."""
    form = _named(expected.value)
    return (sheet.file.parent / str(expected.value[form])).resolve() if form else None


def _columns(sheet: SpecFile, finding: CaseFinding) -> Any:
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
