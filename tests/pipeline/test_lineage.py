"""Which pipeline feeds which, and what does not fit between two of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from millrace.connectors.base.registry import CONNECTORS, connector_names
from millrace.errors import Problem, SourceLocation
from millrace.pipeline.lineage import Endpoint, endpoints, links, mismatches, shared_names, texts
from millrace.pipeline.loading.yaml import load_yaml

Ends = Callable[..., list[Endpoint]]

WRITER = """
name: {name}
sources:
  posts: {{kafka: posts, schema: "id string, n int, at timestamp, tags array<string>"}}
tables:
  long: {sql}
sinks:
  - {{from: long, kafka: long, {options}}}
"""
READER = """
name: reader
sources:
  long: {{kafka: long, {options}}}
sinks:
  - {{from: long, console: }}
"""


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    """The endpoints of a pipeline's text."""

    def read(text: str) -> list[Endpoint]:
        file = tmp_path / "p.yaml"
        file.write_text(text)
        return endpoints(load_yaml(file, connector_names()), CONNECTORS)

    return read


def writer(options: str = "", sql: str = "SELECT id, n, at FROM posts", name: str = "writer") -> str:
    return WRITER.format(options=options, sql=sql, name=name)


def reader(schema: str = "", options: str = "") -> str:
    return READER.format(options=options + (f"schema: '{schema}'" if schema else ""))


def found(*parts: list[Endpoint]) -> list[Problem]:
    return list(mismatches(links(end for part in parts for end in part)))


def test_what_one_writes_and_another_reads(ends: Ends) -> None:
    every = [*ends(writer()), *ends(reader("id string"))]
    assert [str(link) for link in links(every)] == ["writer (long) -> topic long -> reader (long)"]
    assert found(every) == []
    assert links(ends(writer())) == [], "what a pipeline writes for itself is no link"


def test_pipelines_of_one_name_share_a_state_folder(ends: Ends) -> None:
    every = [*ends(writer()), *ends(writer()), *ends(reader("id string"))]
    assert texts(links(every)) == ["writer (long) -> topic long -> reader (long)"]
    places = [SourceLocation(file, 1) for file in ("a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml")]
    found = list(shared_names(zip(("one", "two", "one", "", ""), places, strict=True)))
    assert [(each.condition, each.severity, each.place) for each in found] == [("name.shared", "warning", places[2])]
    assert "a.yaml" in found[0].message


def test_folders_are_linked_too(ends: Ends) -> None:
    written = writer().replace("kafka: long", "files: out, format: json")
    read = reader("id string").replace("kafka: long", "files: out")
    assert len(links([*ends(written), *ends(read)])) == 1
    assert found(ends(written), ends(read)) == []


def test_endpoints_pass_through_json(ends: Ends) -> None:
    for end in [*ends(writer()), *ends(reader(options="format: raw"))]:
        assert Endpoint.of(json.loads(json.dumps(asdict(end)))) == end


@pytest.mark.parametrize(
    ("written", "read", "condition"),
    [
        (writer(), reader("id string, title string"), "lineage.column"),
        (writer("value: [id, n]"), reader("id string, at timestamp"), "lineage.column"),
        (writer(sql="SELECT *, 1 AS x FROM posts"), reader("title string"), "lineage.column"),
        (writer("partition: n"), reader("id string, n int"), "lineage.column"),
        (writer(), reader("id string", "format: csv, "), "lineage.format"),
        (writer().replace("from: long", "from: posts"), reader("id string, at bigint"), "lineage.type"),
        (writer().replace("from: long", "from: posts"), reader("tags double"), "lineage.type"),
    ],
)
def test_what_does_not_fit(ends: Ends, written: str, read: str, condition: str) -> None:
    (problem,) = found(ends(written), ends(read))
    assert (problem.condition, problem.severity) == (condition, "warning")
    assert problem.place is not None
    assert problem.place.line == 4
    assert "writer (" in (problem.why or "")
    assert problem.hint


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (writer(), reader("ID string", "include: [timestamp], ")),
        (writer(), reader(options="format: text")),
        (writer(), reader(options="format: raw")),
        (writer(sql="SELECT n + 1 FROM posts"), reader("title string")),
        (writer().replace("from: long", "from: posts"), reader("id bigint, n double, at string, tags string")),
        (writer("format: csv"), reader("a string, b int", "format: csv, ")),
    ],
)
def test_what_may_fit(ends: Ends, written: str, read: str) -> None:
    assert found(ends(written), ends(read)) == []


def test_another_writer_may_give_what_one_does_not(ends: Ends) -> None:
    other = ends(writer(sql="SELECT id, at AS title FROM posts", name="other"))
    read = ends(reader("id string, title string"))
    assert [problem.condition for problem in found(ends(writer()), read)] == ["lineage.column"]
    assert found(ends(writer()), other, read) == []
