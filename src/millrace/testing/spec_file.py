"""Read a `*.test.yaml` file; all its mistakes are reported at once, with their lines.

    tests:
      a tag is counted in its window:
        given: {posts: [{text: "#rain", at: 2026-05-04T12:00:00Z}]}
        expect: {hashtags: [{tag: rain}]}

Instead of `given`, a test may have `steps`, a list of such: each is one batch.

- `read_spec_file` returns the tests of a file.
- `sound_pipeline` loads and checks a pipeline for a test.
- `placed` converts YAML to values that know their lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.connectors.base.registry import CONNECTORS, connector_names
from millrace.errors import InvalidDefinition, InvalidTest, Problem, SourceLocation, did_you_mean
from millrace.pipeline.checks import check, in_order
from millrace.pipeline.loading import read_file
from millrace.pipeline.loading.yaml_document import Fields, FieldsByName, Items, Node, Scalar, read_document_file
from millrace.pipeline.loading.yaml_values import node_value
from millrace.pipeline.model import PipelineDef
from millrace.testing.compare import ANY_LETTERS, is_count
from millrace.testing.spec import ExpectedRows, LocatedValue, SpecCase, SpecFile, SpecStep

ENDINGS = (".test.yaml", ".test.yml")
_TOP_KEYS = ("pipeline", "environment", "tests")
_EXPECTATION_KEYS = ("expect", "late", "dead")
_STEP_KEYS = ("given", "watermark", *_EXPECTATION_KEYS)
_CASE_KEYS = (*_STEP_KEYS, "steps", "key")

_LONG_INTEGER = re.compile(r"-?[1-9][0-9]{18,99}")

_Path = tuple[str | int, ...]


def read_spec_file(file: Path) -> SpecFile:
    """Return the tests of a file; raise InvalidTest with all its mistakes."""
    problems: list[Problem] = []
    root = read_document_file(file, problems)
    if root is None and not problems:
        problems.append(Problem("test.invalid", "the file is empty", SourceLocation(str(file)), "it needs tests:"))
    spec_file = None if root is None else _SpecReader(file, problems).spec_file(root)
    if spec_file is None or problems:
        raise InvalidTest.listing(str(file), problems)
    return spec_file


class _SpecReader:
    """Reads tests from a YAML document, and collects its problems."""

    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self._file, self._problems = file, problems

    def spec_file(self, root: Node) -> SpecFile | None:
        top = self._fields(root, "a file of tests", _TOP_KEYS)
        tests = self._part(top, "tests")
        if not tests:
            self._wrong(root.place, "the file has no tests", "add tests:")
        cases = tuple(self._case(name, key, node) for name, (key, node) in tests.items())
        environment = self._part(top, "environment")
        for name, (key, node) in environment.items():
            if not isinstance(node, Scalar):
                self._wrong(key.place, f"the variable {name!r} must be text", "write NAME: value")
        variables = {name: node.text for name, (_, node) in environment.items() if isinstance(node, Scalar)}
        return SpecFile(self._file, self._pipelines(top, root.place), cases, variables)

    def _pipelines(self, top: FieldsByName, place: SourceLocation) -> tuple[str, ...]:
        if "pipeline" in top:
            return tuple(str(self._file.parent / path) for path in _texts(node_value(top["pipeline"][1])))
        stem = str(self._file).removesuffix(next(ending for ending in ENDINGS if self._file.name.endswith(ending)))
        pipelines = tuple(stem + kind for kind in (".yaml", ".yml", ".py") if Path(stem + kind).is_file())
        if not pipelines:
            self._wrong(place, "no pipeline of this name is in the file's folder", "add pipeline: FILE")
        return pipelines

    def _case(self, name: str, key: Scalar, node: Node) -> SpecCase:
        parts = self._fields(node, f"test {name!r}", _CASE_KEYS)
        if not isinstance(node, Fields):
            return SpecCase(name, (), SpecStep(), {}, key.place)
        case = self._read_case(name, key.place, parts)
        if not any(step.rows or step.late or step.dead for step in (*case.steps, case.whole)):
            hint = "add expect:, late: or dead: with a table or source in it; that nothing comes is []"
            self._wrong(key.place, f"test {name!r} expects nothing", hint)
        for table in case.key:
            if not any(table in step.rows for step in (*case.steps, case.whole)):
                self._wrong(parts["key"][0].place, f"key names {table!r}, of which nothing is expected", "leave it out")
        return case

    def _read_case(self, name: str, own: SourceLocation, parts: FieldsByName) -> SpecCase:
        path: _Path = ("tests", name)
        if "steps" not in parts:
            if "given" not in parts:
                self._wrong(own, f"test {name!r} gives nothing", "add given: or steps:")
            return SpecCase(name, (self._step(parts, path, own),), SpecStep(), self._keys(parts), own)
        if beside_steps := [key for key in ("given", "watermark") if key in parts]:
            place = parts[beside_steps[0]][0].place
            self._wrong(place, f"{beside_steps[0]} belongs to a step where there are steps", "move it into one")
        listed = parts["steps"][1]
        nodes = listed.nodes if isinstance(listed, Items) else ()
        if not nodes:
            self._wrong(listed.place, "steps is a list with a step in it", "write - given: …")
        steps = tuple(
            self._step(self._fields(step, "a step", _STEP_KEYS), (*path, "steps", number), step.place)
            for number, step in enumerate(nodes)
        )
        whole = self._step({name: parts[name] for name in _EXPECTATION_KEYS if name in parts}, path, own)
        return SpecCase(name, steps, whole, self._keys(parts), own)

    def _step(self, parts: FieldsByName, path: _Path, place: SourceLocation) -> SpecStep:
        given = self._part(parts, "given")
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

    def _expected(self, parts: FieldsByName, part: str, path: _Path) -> Mapping[str, ExpectedRows]:
        expectations = {}
        for name, (_, node) in self._part(parts, part).items():
            value = placed(node)
            expectations[name] = ExpectedRows(value, node.place, (*path, part, name))
            if part == "late" and not is_count(value):
                self._wrong(node.place, f"late rows of {name!r} are a number", "write how many rows came too late")
            if part == "dead" and not (is_count(value) or isinstance(value, list | dict) or value == ANY_LETTERS):
                hint = f"write how many there are, a row for each, or {ANY_LETTERS}"
                self._wrong(node.place, f"dead letters of {name!r} are a number, a list, or {ANY_LETTERS}", hint)
        return expectations

    def _keys(self, parts: FieldsByName) -> dict[str, tuple[str, ...]]:
        return {name: _texts(node_value(node)) for name, (_, node) in self._part(parts, "key").items()}

    def _part(self, parts: FieldsByName, name: str) -> FieldsByName:
        return self._fields(parts[name][1], name) if name in parts else {}

    def _fields(self, node: Node, what: str, known: tuple[str, ...] = ()) -> FieldsByName:
        if not isinstance(node, Fields):
            self._wrong(node.place, f"{what} must be a mapping", "write name: value")
            return {}
        for key, _ in node.pairs if known else ():
            if key.text not in known:
                self._wrong(key.place, f"{what} has no {key.text!r}", did_you_mean(key.text, known))
        return node.by_name

    def _wrong(self, place: SourceLocation, message: str, hint: str) -> None:
        self._problems.append(Problem("test.invalid", message, place, hint))


def placed(node: Node) -> Any:
    """Return a value whose columns know their lines; a whole number may have any length."""
    if isinstance(node, Items):
        return [placed(item) for item in node.nodes]
    if isinstance(node, Fields):
        return LocatedValue((key.text, placed(field), key.place) for key, field in node.pairs)
    return int(node.text) if node.plain and _LONG_INTEGER.fullmatch(node.text) else node_value(node)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value if isinstance(value, list) else [value]))


def sound_pipeline(file: str) -> PipelineDef:
    """Load and check a pipeline; raise InvalidDefinition with all its errors."""
    pipeline, problems = read_file(file, connector_names())
    problems = in_order([*problems, *(check(pipeline, CONNECTORS) if pipeline else ())])
    errors = [problem for problem in problems if problem.severity == "error"]
    if pipeline is None or errors:
        raise InvalidDefinition.listing(file, errors)
    return pipeline
