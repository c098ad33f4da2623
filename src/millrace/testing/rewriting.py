"""One value of a YAML file is written anew where it stands; the file is read again, and nothing else may differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import getitem
from typing import Any

import yaml

from millrace.errors import Place, Problem
from millrace.pipeline.document import Scalar, read_document
from millrace.testing.canonical import BITS
from millrace.testing.comparing import row_key
from millrace.testing.written import placed

_Path = tuple[str | int, ...]


class Refused(Exception):
    """A value that cannot be written without changing something else."""


@dataclass(frozen=True)
class Change:
    """The keys that lead to a value, and what it shall be."""

    path: _Path
    value: Any


def rewritten(text: str, change: Change) -> str:
    """The file's text with another value in one place: as few of its lines as can be are new."""
    before = _read(text)
    for new in _attempts(text, before, change):
        if _is_only(before, _read(new), change):
            return new
    if _has_anchors(text):
        raise Refused("it cannot be rewritten alone; an anchor (&, *, <<) may share it with other parts of the file")
    raise Refused("what came would not be read back as it is")


def _has_anchors(text: str) -> bool:
    return any(getattr(event, "anchor", None) for event in yaml.parse(text, Loader=yaml.SafeLoader))


def _attempts(text: str, before: Any, change: Change) -> Iterator[str]:
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
    is_text = isinstance(placed(Scalar(text, Place(""), plain=True)), str)
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


def _is_only(before: Any, after: Any, change: Change, path: _Path = ()) -> bool:
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
    return row_key(_plain(row))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int) and value.bit_length() > BITS else value
