"""A YAML file as a tree in which everything knows its line; what it means is read elsewhere.

The tree is made from the parser's events by a loop, not by recursion, and within bounds: a file of brackets or of
aliases to aliases is refused, whatever it would unfold to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from millrace.errors import FileUnusable, Problem, SourceLocation
from millrace.limited_files import DEFINITION_BYTES, read_start

LARGEST = DEFINITION_BYTES
DEEPEST = 30
MOST = 50_000
"""Bytes of a file, levels inside each other, and values (an alias counts as all that it stands for)."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT = "tag:yaml.org,2002:str"
_ESCAPE = re.compile(r"\\(x..|u....|U........|.)")


@dataclass(frozen=True)
class Scalar:
    """A text as it is written; `plain` when no quotes or tag say that it is one."""

    text: str
    place: SourceLocation
    plain: bool = False
    begins: SourceLocation | None = None
    """Where its first line stands, which in a block is the line after the `|`."""
    marks: tuple[int, ...] | None = None
    """As `Table.sql_marks`."""


@dataclass(frozen=True)
class Items:
    """A list."""

    nodes: tuple[Node, ...]
    place: SourceLocation


@dataclass(frozen=True)
class Fields:
    """A mapping, in its order, without duplicates."""

    pairs: tuple[tuple[Scalar, Node], ...]
    place: SourceLocation

    @property
    def by_name(self) -> FieldsByName:
        """The keys and values, by the text of the key."""
        return {key.text: (key, value) for key, value in self.pairs}


Node = Scalar | Items | Fields
FieldsByName = dict[str, tuple[Scalar, Node]]


class UnreadableDocument(Exception):
    """A file that cannot be read any further."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read_document_file(path: Path, problems: list[Problem]) -> Node | None:
    """The tree of a file, as `read_document` makes it; raises FileUnusable when the file cannot be read."""
    try:
        data = read_start(path, LARGEST + 1)  # one more says that it is too large
    except OSError as error:
        raise FileUnusable(f"cannot read {path}", why=error.strerror) from None
    return read_document(data, str(path), problems)


def read_document(data: bytes, file: str, problems: list[Problem]) -> Node | None:
    """The tree of a file's bytes, or None when there is none; what is wrong with it goes to `problems`."""
    try:
        composer = _Composer(file, _decoded(data, file), problems)
        try:
            return composer.compose()
        except yaml.MarkedYAMLError as error:
            problems.append(_syntax(error, file, composer.lines))
    except UnreadableDocument as refused:
        problems.append(refused.problem)
    except yaml.YAMLError as error:
        problems.append(Problem("file.syntax", f"the file is not YAML: {error}".splitlines()[0], SourceLocation(file)))
    return None


def _decoded(data: bytes, file: str) -> str:
    if len(data) > LARGEST:
        message = f"the file has more than {LARGEST:,} bytes"
        raise UnreadableDocument(Problem("file.too-large", message, SourceLocation(file)))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = SourceLocation(file, data.count(b"\n", 0, error.start) + 1)
        raise UnreadableDocument(Problem("file.not-utf8", "the file is not UTF-8", place, "save it as UTF-8")) from None


def _syntax(error: yaml.MarkedYAMLError, file: str, lines: list[str]) -> Problem:
    mark = error.problem_mark or error.context_mark
    message = f"the file is not YAML: {error.problem or error.context or 'it cannot be parsed'}"
    written = "".join(lines[mark.line : mark.line + 1]) if mark else ""
    if "${" in written:
        hint = 'inside { } put it in quotes: "${NAME}"'
    elif "\t" in written[: len(written) - len(written.lstrip())]:
        hint = "indent with spaces: YAML allows no tabs there"
    else:
        hint = "look at the indentation, and put text with : or # or { in quotes"
    return Problem("file.syntax", message, SourceLocation(file, mark.line + 1 if mark else None), hint)


@dataclass
class _Open:
    """A list or a mapping whose end has not come yet."""

    start: yaml.CollectionStartEvent
    nodes: list[Node] = field(default_factory=list)
    count: int = 1


class _Composer:
    """Events to a tree."""

    def __init__(self, file: str, text: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.text = text
        self.lines = text.splitlines()
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.documents = 0

    def compose(self) -> Node | None:
        for event in yaml.parse(self.text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentStartEvent):
                self._document(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._keep(self._scalar(event), 1, event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._open(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                closed = self.stack.pop()
                self._keep(self._closed(closed), closed.count, closed.start)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
        return self.root

    def _document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self._refused(event, "file.syntax", "the file holds more than one YAML document", "leave --- out")

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        if len(self.stack) >= DEEPEST:
            raise self._refused(event, "file.too-nested", f"the file has more than {DEEPEST} levels")
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._tagged(event)
        if event.anchor:
            self.anchors.pop(event.anchor, None)
        self.stack.append(_Open(event))

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchored = self.anchors.get(event.anchor or "")
        if anchored is None:
            inside = any(collection.start.anchor == event.anchor for collection in self.stack)
            message = f"*{event.anchor} stands inside itself" if inside else f"there is no &{event.anchor} before this"
            raise self._refused(event, "file.syntax", message)
        self._keep(*anchored, event)

    def _keep(self, node: Node, count: int, event: yaml.NodeEvent) -> None:
        if event.anchor:
            self.anchors[event.anchor] = (node, count)
        if not self.stack:
            self.root = node
            return
        self.stack[-1].nodes.append(node)
        self.stack[-1].count += count
        if self.stack[-1].count > MOST:
            raise self._refused(event, "file.too-large", f"the file has more than {MOST:,} values")

    def _closed(self, closed: _Open) -> Node:
        place = self._place(closed.start)
        if not isinstance(closed.start, yaml.MappingStartEvent):
            return Items(tuple(closed.nodes), place)
        own: FieldsByName = {}
        merged: FieldsByName = {}
        for key, value in zip(closed.nodes[::2], closed.nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                self.problems.append(Problem("file.syntax", "a key must be a word", key.place, "quote { and ["))
            elif key.text == "<<" and key.plain:
                merged = {**self._merged(value), **merged}
            elif key.text in own:
                message = f"{key.text!r} is there twice: it stands in line {own[key.text][0].place.line} already"
                self.problems.append(Problem("key.duplicate", message, key.place, "keep one of them"))
            else:
                own[key.text] = (key, value)
        return Fields(tuple({**merged, **own}.values()), place)

    def _merged(self, value: Node) -> FieldsByName:
        parts = value.nodes if isinstance(value, Items) else (value,)
        fields = [part for part in reversed(parts) if isinstance(part, Fields)]
        if len(fields) < len(parts):
            self.problems.append(Problem("value.type", "<< takes a mapping, as <<: *name", value.place))
        return {name: pair for part in fields for name, pair in part.by_name.items()}

    def _scalar(self, event: yaml.ScalarEvent) -> Scalar:
        if event.tag not in (None, "!", _TEXT):
            self._tagged(event)
        place = self._place(event)
        plain = not event.style and event.tag is None
        block = event.style in ("|", ">")
        begins = SourceLocation(self.file, place.line + 1) if block and place.line else place
        return Scalar(event.value, place, plain, begins, None if event.style == "|" else self._marks(event))

    def _marks(self, event: yaml.ScalarEvent) -> tuple[int, ...]:
        """How many visible characters of a text stand before each of the file's lines that it runs over."""
        start, end = _mark(event.start_mark), _mark(event.end_mark)
        if event.style == ">":
            lines = self.lines[start.line + 1 : end.line + 1]
        else:
            lines = self.lines[start.line : end.line + 1]
            lines[:1] = [lines[0][start.column + bool(event.style) :]] if lines else []
        return tuple(accumulate((_visible(line, event.style) for line in lines[:-1]), initial=0))

    def _tagged(self, event: Any) -> None:
        message = f"the tag {event.tag} means nothing here"
        self.problems.append(Problem("value.type", message, self._place(event), "leave it out"))

    def _place(self, event: yaml.Event) -> SourceLocation:
        return SourceLocation(self.file, _mark(event.start_mark).line + 1)

    def _refused(self, event: yaml.Event, condition: str, message: str, hint: str | None = None) -> UnreadableDocument:
        return UnreadableDocument(Problem(condition, message, self._place(event), hint))


def _mark(mark: Any) -> Any:
    """A position of an event, which the parser always gives although its types do not say so."""
    return mark


def _visible(line: str, style: str | None) -> int:
    if style == "'":
        line = line.replace("''", "'")
    elif style == '"':
        line = _ESCAPE.sub(lambda escape: "" if escape[1] in "nrtb0 \t" else "x", line).rstrip("\\")
    return len("".join(line.split()))
