"""`millrace test --accept`: write actual rows in the place of expected ones.

- `accept` changes the files of tests and the files of rows, and returns what it refused to change.
- `rewritten_text` replaces one value of a YAML file: the file is read again, and nothing else may differ. Lines that
  need no change keep their comments and their formatting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    """A value that cannot be replaced without changing something else."""


@dataclass(frozen=True)
class SpecEdit:
    """The keys that lead to a value, and its new value."""

    path: _Path
    value: Any


def rewritten_text(text: str, edit: SpecEdit) -> str:
    """Return the file's text with one value replaced, with as few changed lines as possible."""
    before = _read(text)
    for after in _candidates(text, before, edit):
        if _differs_only_by(edit, before, _read(after)):
            return after
    if any(getattr(event, "anchor", None) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
        raise EditRefused(
            "it cannot be rewritten alone; an anchor (&, *, <<) may share it with other parts of the file"
        )
    raise EditRefused("what came would not be read back as it is")


def _candidates(text: str, before: Any, edit: SpecEdit) -> Iterator[str]:
    try:
        target = _find(yaml.compose(text, Loader=yaml.SafeLoader), edit.path)
    except yaml.YAMLError:
        return
    if target is None:
        return
    is_block = isinstance(target.node, yaml.SequenceNode) and not target.node.flow_style
    if isinstance(edit.value, list) and edit.value and is_block:
        yield _with_rows_replaced(text, target.node, reduce(getitem, edit.path, before), edit.value)
    yield _with_value_replaced(text, target, edit.value)


@dataclass(frozen=True)
class _Target:
    """A value in the file, its key, and whether it is inside braces or brackets."""

    key: Any
    node: Any
    flow: bool


def _find(root: Any, path: _Path) -> _Target | None:
    key, node, flow = None, root, False
    for part in path:
        flow = flow or bool(node.flow_style)
        if isinstance(part, int):
            node = node.value[part]
        else:
            pairs = [(name, value) for name, value in node.value if name.value == part]
            if not pairs:  # it was merged by <<
                return None
            key, node = pairs[0]
    return _Target(key, node, flow)


def _with_rows_replaced(text: str, node: Any, old_rows: Any, rows: Sequence[Any]) -> str:
    """Replace the rows of a block sequence that differ; equal rows and comments keep their lines."""
    unmatched = [_key(row) for row in rows]
    removed = [item for item, row in zip(node.value, old_rows, strict=True) if not _take(_key(row), unmatched)]
    added = [row for row in rows if _take(_key(row), unmatched)]
    newline = _newline(text)
    spans = [range(item.start_mark.line, _last_line(text, item) + 1) for item in removed]
    at = spans[0].start if spans else _last_line(text, node) + 1
    dash = " " * node.start_mark.column + "- "
    lines = text.splitlines(keepends=True)
    kept = [number for number in range(len(lines)) if not any(number in span for span in spans)]
    before = [lines[number] for number in kept if number < at]
    if before and not before[-1].endswith("\n"):
        before[-1] += newline
    new = [f"{dash}{_flow(row)}{newline}" for row in added]
    return "".join([*before, *new, *(lines[number] for number in kept if number >= at)])


def _take(key: bytes, keys: list[bytes]) -> bool:
    """Remove a key from a list; return whether it was in it."""
    with suppress(ValueError):
        keys.remove(key)
        return True
    return False


def _with_value_replaced(text: str, target: _Target, value: Any) -> str:
    """Replace the value from its first character to its last."""
    start, end = target.node.start_mark.index, _end(target.node)
    if not isinstance(value, list):
        return f"{text[:start]}{value}{text[end:]}"
    after_key = None if target.key is None or target.flow else target.key.end_mark.index
    if value and after_key is not None:
        dash = f"{_newline(text)}{' ' * (target.key.start_mark.column + 2)}- "
        return f"{text[:after_key]}:{''.join(dash + _flow(row) for row in value)}{text[end:]}"
    written = f"[{', '.join(map(_flow, value))}]"
    if after_key is not None and text[after_key] == ":":
        return f"{text[:after_key]}: {written}{text[end:]}"
    return f"{text[:start]}{written}{text[end:]}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _last_line(text: str, node: Any) -> int:
    return text[: _end(node)].rstrip().count("\n")


def _end(node: Any) -> int:
    """Return the index after a value; comments and lines after a block are not part of it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


class _RowDumper(yaml.SafeDumper):
    """Writes rows for a reader of YAML 1.2: PyYAML itself would leave the text `1e5` without quotes."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _RowDumper, text: str) -> Any:
    is_text = isinstance(placed(Scalar(text, SourceLocation(""), plain=True)), str)
    style = '"' if not text.isprintable() else None if is_text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_RowDumper.add_representer(str, _represent_text)


def _flow(row: Any) -> str:
    """Return a row in one line."""
    dump = partial(yaml.dump, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1_000_000)
    return str(dump(row, Dumper=_RowDumper)).removesuffix("\n").removesuffix("\n...")


def _read(text: str) -> Any:
    """Return the content of a file, or None if it cannot be read."""
    problems: list[Problem] = []
    root = read_document(text.encode(), "", problems)
    return None if root is None or problems else placed(root)


def _differs_only_by(edit: SpecEdit, before: Any, after: Any, path: _Path = ()) -> bool:
    """Return whether two documents differ in one value only, and the second has the new one."""
    if path == edit.path:
        return bool(_in_any_order(after) == _in_any_order(edit.value))
    if path != edit.path[: len(path)]:
        return bool(before == after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        same_keys = list(before) == list(after)
        return same_keys and all(_differs_only_by(edit, before[name], after[name], (*path, name)) for name in before)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return all(_differs_only_by(edit, *pair, (*path, number)) for number, pair in pairs)
    return bool(before == after)


def _in_any_order(value: Any) -> Any:
    return sorted(map(_key, value)) if isinstance(value, list) else value


def _key(row: Any) -> bytes:
    """Return bytes that are equal for equal rows; 20 equals 20.0."""
    return row_key(_normalized(row))


def _normalized(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _normalized(column) for name, column in value.items()}
    if isinstance(value, list):
        return [_normalized(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) and value.bit_length() > BITS else value


@dataclass
class AcceptResult:
    """The files that were changed, and the expectations that could not be."""

    changed: list[Path] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)

    def refuse(self, place: SourceLocation, why: str, hint: str) -> None:
        """Report an expectation that stays as it is."""
        self.refused.append(Problem("test.invalid", f"this cannot be accepted: {why}", place, hint))


@dataclass(frozen=True)
class _Expectation:
    """An expectation, and its findings for each pipeline that its test was run on."""

    spec_file: SpecFile
    expected: ExpectedRows
    findings: list[CaseFinding]

    @property
    def failed(self) -> bool:
        return any(finding.difference is not None for finding in self.findings)

    @property
    def values(self) -> list[Any]:
        """Return the actual value of each pipeline."""
        return [_actual(self.spec_file, finding) for finding in self.findings]

    @property
    def rows_file(self) -> Path | None:
        """Return the file of rows that has the expected rows; None if they are in the file of tests."""
        return _rows_file(self.spec_file, self.expected.value)


def accept(results: Iterable[Result], spec_files: Sequence[SpecFile]) -> AcceptResult:
    """Write actual values in the place of those that were expected; `spec_files` are all files that were read."""
    accepted = AcceptResult()
    expectations = _by_expectation(results)
    failed = [expectation for expectation in expectations if expectation.failed]
    for path, spec_file in {spec_file.file.resolve(): spec_file for spec_file in reversed(spec_files)}.items():
        inline = [each for each in failed if each.spec_file.file.resolve() == path and not each.rows_file]
        agreed = [expectation for expectation in inline if _pipelines_agree(expectation, accepted)]
        _accept_in_spec_file(spec_file, agreed, accepted)
    for file in dict.fromkeys(expectation.rows_file for expectation in failed if expectation.rows_file):
        _accept_in_rows_file(file, expectations, spec_files, accepted)
    return accepted


def _by_expectation(results: Iterable[Result]) -> list[_Expectation]:
    expectations: dict[tuple[Path, _Path], _Expectation] = {}
    for result in results:
        for finding in result.findings:
            if finding.expected is not None:
                key = result.spec_file.file.resolve(), finding.expected.path
                new = _Expectation(result.spec_file, finding.expected, [])
                expectations.setdefault(key, new).findings.append(finding)
    return list(expectations.values())


def _pipelines_agree(expectation: _Expectation, accepted: AcceptResult) -> bool:
    if _all_equal(expectation.values):
        return True
    hint = "make the pipelines agree first: a test that is run on both can expect one thing only"
    accepted.refuse(expectation.expected.place, "the pipelines of this test gave different rows", hint)
    return False


def _accept_in_spec_file(spec_file: SpecFile, expectations: Sequence[_Expectation], accepted: AcceptResult) -> None:
    before = text = spec_file.file.read_bytes().decode("utf-8-sig") if expectations else ""
    for expectation in expectations:
        expected = expectation.expected
        try:
            text = rewritten_text(text, SpecEdit(expected.path, expectation.values[0]))
        except EditRefused as refused:
            accepted.refuse(expected.place, str(refused), "write it by hand; this is what came, in the table above")
    if text != before:
        _write(spec_file.file, text)
        accepted.changed.append(spec_file.file)


def _accept_in_rows_file(
    file: Path, expectations: Sequence[_Expectation], spec_files: Sequence[SpecFile], accepted: AcceptResult
) -> None:
    own = [expectation for expectation in expectations if expectation.rows_file == file]
    place = next(expectation.expected.place for expectation in own if expectation.failed)
    run = {(expectation.spec_file.file, expectation.expected.path) for expectation in own}
    if why := next(_other_uses(file, spec_files, run), None):
        accepted.refuse(place, f"{file.name} {why}", "give each its own file")
    elif file.suffix == ".csv" or _form(own[0].expected.value) == "csv":
        accepted.refuse(place, f"{file.name} is CSV, which has no types", "write it by hand, or expect {json: FILE}")
    elif not _all_equal([value for expectation in own for value in expectation.values]):
        accepted.refuse(place, f"several tests expect {file.name}, and not the same came", "give each its own file")
    else:
        _write(file, _as_json(own[0].values[0], array=row_files.is_array(file.read_bytes())))
        accepted.changed.append(file)


def _write(file: Path, content: str | bytes) -> None:
    """Write a file, through a link, with its permissions kept."""
    target = file.resolve()
    mode = target.stat().st_mode
    write_whole(target, content, private=True)  # until chmod
    target.chmod(mode)


def _other_uses(file: Path, spec_files: Sequence[SpecFile], run: set[tuple[Path, _Path]]) -> Iterator[str]:
    """Yield the other uses of a file of rows, which a change would affect."""
    for spec_file in spec_files:
        for case in spec_file.cases:
            for step in (*case.steps, case.whole):
                if any(_rows_file(spec_file, rows) == file for rows in step.given.values()):
                    yield f"is also what {case.name!r} is given"
                for expected in (*step.rows.values(), *step.dead.values()):
                    if _rows_file(spec_file, expected.value) == file and (spec_file.file, expected.path) not in run:
                        yield f"is also what {case.name!r} expects, which was not run to its end"
    read = {spec_file.file.resolve() for spec_file in spec_files}
    folders = {path.parent for path in read}
    for other in sorted({path for folder in folders for path in folder.glob("*.test.y*ml")} - read):
        if file.name in other.read_text("utf-8", "replace"):
            yield f"is also in {other.name}, which was not run"


def _form(rows: Any) -> str:
    """Return the form of a file of rows, as "json"; empty if rows are no file."""
    only = next(iter(rows)) if isinstance(rows, dict) and len(rows) == 1 else ""
    return only if only in FORMS else ""


def _rows_file(spec_file: SpecFile, rows: Any) -> Path | None:
    form = _form(rows)
    return (spec_file.file.parent / str(rows[form])).resolve() if form else None


def _actual(spec_file: SpecFile, finding: CaseFinding) -> Any:
    """Return the actual rows with the columns that the test names; with all if it names none."""
    expected = finding.expected.value if finding.expected else None
    if not isinstance(finding.actual, list):
        return finding.actual
    rows = expected_rows(expected, spec_file.file.parent) if isinstance(expected, list | dict) else []
    names = list(dict.fromkeys(name for row in rows for name in row))
    common = [name for name in names if all(name in row for row in finding.actual)]
    return [{name: row[name] for name in common} for row in finding.actual] if common else finding.actual


def _all_equal(values: Sequence[Any]) -> bool:
    """Return whether values are equal; rows may be in any order."""
    keys = [sorted(map(row_key, value)) if isinstance(value, list) else value for value in values]
    return all(key == keys[0] for key in keys)


def _as_json(rows: Sequence[Any], *, array: bool) -> bytes:
    lines = [orjson.dumps(row) for row in rows]
    return b"[\n  " + b",\n  ".join(lines) + b"\n]\n" if array and lines else b"".join(line + b"\n" for line in lines)
