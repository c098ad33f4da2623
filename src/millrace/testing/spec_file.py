"""A `*.test.yaml` file becomes tests; every mistake in it is told at once, with its line.

    tests:
      a tag is counted in its window:
        given: {posts: [{text: "#rain", at: 2026-05-04T12:00:00Z}]}
        expect: {hashtags: [{tag: rain}]}

Instead of `given`, a test may have `steps`, a list of such: each is one batch.

Pipelines for tests: read as any command reads them, and sound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.connectors.base.registry import CONNECTORS, connector_names
from millrace.errors import FileUnusable, InvalidDefinition, InvalidTest, Problem, SourceLocation, did_you_mean
from millrace.limited_files import read_start
from millrace.pipeline.checks import check
from millrace.pipeline.loading import read_file
from millrace.pipeline.loading.yaml_document import LARGEST, Fields, Items, Node, Scalar, read_document
from millrace.pipeline.loading.yaml_values import node_value
from millrace.pipeline.model import PipelineDef
from millrace.testing.compare import ANY_LETTERS, is_count
from millrace.testing.spec import ExpectedRows, LocatedValue, SpecCase, SpecFile, SpecStep

ENDINGS = (".test.yaml", ".test.yml")
_TOP = ("pipeline", "environment", "tests")
_EXPECTED = ("expect", "late", "dead")
_STEP = ("given", "watermark", *_EXPECTED)
_CASE = (*_STEP, "steps", "key")

_LONG = re.compile(r"-?[1-9][0-9]{18,99}")

_Pairs = dict[str, tuple[Scalar, Node]]
_Path = tuple[str | int, ...]


def read_sheet(file: Path) -> SpecFile:
    """The tests of a file."""
    try:
        data = read_start(file, LARGEST + 1)
    except OSError as error:
        raise FileUnusable(f"cannot read {file}", why=error.strerror) from None
    problems: list[Problem] = []
    root = read_document(data, str(file), problems)
    if root is None and not problems:
        problems.append(Problem("test.invalid", "the file is empty", SourceLocation(str(file)), "it needs tests:"))
    sheet = None if root is None else _Form(file, problems).sheet(root)
    if sheet is None or problems:
        raise InvalidTest.listing(str(file), problems)
    return sheet


def pipelines_beside(file: Path) -> list[str]:
    """The pipelines that a file of tests is about when it does not say: those of its own name."""
    ending = next(one for one in ENDINGS if file.name.endswith(one))
    stem = file.with_name(file.name.removesuffix(ending))
    return [str(one) for one in (Path(f"{stem}{kind}") for kind in (".yaml", ".yml", ".py")) if one.is_file()]


class _Form:
    """A document read as tests."""

    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self._file, self._problems = file, problems

    def sheet(self, root: Node) -> SpecFile | None:
        top = self._fields(root, "a file of tests", _TOP)
        tests = self._fields(top["tests"][1], "tests") if "tests" in top else {}
        if not tests:
            self._wrong(root.place, "the file has no tests", "add tests:")
        cases = tuple(self._case(name, key, node) for name, (key, node) in tests.items())
        environment = self._fields(top["environment"][1], "environment") if "environment" in top else {}
        for name, (key, node) in environment.items():
            if not isinstance(node, Scalar):
                self._wrong(key.place, f"the variable {name!r} must be text", "write NAME: value")
        variables = {name: node.text for name, (_, node) in environment.items() if isinstance(node, Scalar)}
        return SpecFile(self._file, self._pipelines(top, root.place), cases, variables)

    def _pipelines(self, top: _Pairs, place: SourceLocation) -> tuple[str, ...]:
        if "pipeline" not in top:
            found = pipelines_beside(self._file)
            if not found:
                self._wrong(place, "no pipeline of this name stands beside the file", "add pipeline: FILE")
            return tuple(found)
        named = node_value(top["pipeline"][1])
        listed = named if isinstance(named, list) else [named]
        return tuple(str(self._file.parent / str(one)) for one in listed)

    def _case(self, name: str, key: Scalar, node: Node) -> SpecCase:
        parts = self._fields(node, f"test {name!r}", _CASE)
        if not isinstance(node, Fields):
            return SpecCase(name, (), SpecStep(), {}, key.place)
        case = self._read_case(name, key.place, parts)
        expected = [one for step in (*case.steps, case.whole) for one in (step.rows, step.late, step.dead)]
        if not any(expected):
            hint = "add expect:, late: or dead: with a table or source in it; that nothing comes is []"
            self._wrong(key.place, f"test {name!r} expects nothing", hint)
        for table in case.key:
            if not any(table in step.rows for step in (*case.steps, case.whole)):
                self._wrong(parts["key"][0].place, f"key names {table!r}, of which nothing is expected", "leave it out")
        return case

    def _read_case(self, name: str, own: SourceLocation, parts: _Pairs) -> SpecCase:
        path: _Path = ("tests", name)
        if "steps" not in parts:
            if "given" not in parts:
                self._wrong(own, f"test {name!r} gives nothing", "add given: or steps:")
            return SpecCase(name, (self._step(parts, path, own),), SpecStep(), self._keys(parts), own)
        if beside_steps := [one for one in ("given", "watermark") if one in parts]:
            place = parts[beside_steps[0]][0].place
            self._wrong(place, f"{beside_steps[0]} belongs to a step where there are steps", "move it into one")
        listed = parts["steps"][1]
        nodes = listed.nodes if isinstance(listed, Items) else ()
        if not nodes:
            self._wrong(listed.place, "steps is a list with a step in it", "write - given: …")
        steps = tuple(
            self._step(self._fields(one, "a step", _STEP), (*path, "steps", at), one.place)
            for at, one in enumerate(nodes)
        )
        whole = self._step({name: parts[name] for name in _EXPECTED if name in parts}, path, own)
        return SpecCase(name, steps, whole, self._keys(parts), own)

    def _step(self, parts: _Pairs, path: _Path, place: SourceLocation) -> SpecStep:
        given = self._fields(parts["given"][1], "given") if "given" in parts else {}
        if "watermark" in parts and given:
            self._wrong(parts["watermark"][0].place, "a step has rows or moves the watermark", "make it two steps")
        return SpecStep(
            LocatedValue((name, placed(node), key.place) for name, (key, node) in given.items()),
            node_value(parts["watermark"][1]) if "watermark" in parts else None,
            self._expected(parts, "expect", path),
            self._expected(parts, "late", path),
            self._expected(parts, "dead", path),
            place,
        )

    def _expected(self, parts: _Pairs, part: str, path: _Path) -> Mapping[str, ExpectedRows]:
        if part not in parts:
            return {}
        named = self._fields(parts[part][1], part)
        found = {name: ExpectedRows(placed(node), node.place, (*path, part, name)) for name, (_, node) in named.items()}
        for name, one in found.items():
            if part == "late" and not is_count(one.value):
                self._wrong(one.place, f"late rows of {name!r} are a number", "write how many rows came too late")
            if part == "dead" and not (
                is_count(one.value) or isinstance(one.value, list | dict) or one.value == ANY_LETTERS
            ):
                hint = f"write how many there are, a row for each, or {ANY_LETTERS}"
                self._wrong(one.place, f"dead letters of {name!r} are a number, a list, or {ANY_LETTERS}", hint)
        return found

    def _keys(self, parts: _Pairs) -> dict[str, tuple[str, ...]]:
        named = self._fields(parts["key"][1], "key") if "key" in parts else {}
        return {name: _texts(node_value(node)) for name, (_, node) in named.items()}

    def _fields(self, node: Node, what: str, known: tuple[str, ...] = ()) -> _Pairs:
        if not isinstance(node, Fields):
            self._wrong(node.place, f"{what} must be a mapping", "write name: value")
            return {}
        for key, _ in node.pairs if known else ():
            if key.text not in known:
                self._wrong(key.place, f"{what} has no {key.text!r}", did_you_mean(key.text, known))
        return {key.text: (key, value) for key, value in node.pairs}

    def _wrong(self, place: SourceLocation, message: str, hint: str) -> None:
        self._problems.append(Problem("test.invalid", message, place, hint))


def placed(node: Node) -> Any:
    """A value as it is written, whose columns know their lines; a whole number is one however long it is."""
    if isinstance(node, Items):
        return [placed(one) for one in node.nodes]
    if isinstance(node, Fields):
        return LocatedValue((key.text, placed(one), key.place) for key, one in node.pairs)
    return int(node.text) if node.plain and _LONG.fullmatch(node.text) else node_value(node)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value if isinstance(value, list) else [value]))


def sound_pipeline(file: str) -> PipelineDef:
    """The pipeline of a file, after `check`: its errors are raised all at once."""
    pipeline, problems = read_file(file, connector_names())
    found = [*problems, *(check(pipeline, CONNECTORS) if pipeline else ())]
    errors = [problem for problem in found if problem.severity == "error"]
    if pipeline is None or errors:
        raise InvalidDefinition.listing(file, errors)
    return pipeline
