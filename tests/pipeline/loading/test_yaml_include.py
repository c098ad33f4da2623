"""Sources that several pipelines share are read where they stand, and only those that a pipeline takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.errors import Problem
from millrace.pipeline.checks import check, in_order
from millrace.pipeline.loading.yaml import read_yaml
from millrace.pipeline.model import PipelineDef

from ..conftest import CONNECTORS, NAMES

SHARED = """\
sources:
  posts: {kafka: posts, schema: "id string, text string"}
  likes:
    kafka: likes
    schema: "post string"
"""
PIPELINE = """\
name: texts
include: shared/sources.yaml
tables:
  texts: SELECT text FROM posts
sinks:
  - {from: texts, console: }
"""

Write = Callable[..., tuple[PipelineDef | None, list[Problem]]]


@pytest.fixture
def project(tmp_path: Path) -> Write:
    """Files by name, of which `p.yaml` is the pipeline: what can be read of it, and all that is wrong with it."""

    def read(files: dict[str, str], **environment: str) -> tuple[PipelineDef | None, list[Problem]]:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        pipeline, problems = read_yaml(tmp_path / "p.yaml", NAMES, environment)
        return pipeline, [*problems, *(check(pipeline, CONNECTORS) if pipeline else [])]

    return read


def places(problems: list[Problem], folder: Path) -> list[str]:
    return [f"{each.condition} {str(each.place).removeprefix(f'{folder}/')}" for each in problems]


def test_a_shared_source_is_that_of_the_pipeline(project: Write, tmp_path: Path) -> None:
    pipeline, problems = project({"p.yaml": PIPELINE, "shared/sources.yaml": SHARED})
    assert pipeline
    assert problems == []
    own, _ = project({"p.yaml": PIPELINE.replace("include: shared/sources.yaml", SHARED.partition("  likes")[0])})
    assert pipeline == own
    assert str(pipeline.sources[0].place) == f"{tmp_path}/shared/sources.yaml:2"


def test_only_what_is_taken_is_read(project: Write) -> None:
    shared = SHARED.replace("kafka: likes", "kafka: ${LIKES}")
    pipeline, problems = project({"p.yaml": PIPELINE, "shared/sources.yaml": shared})
    assert pipeline
    assert [source.name for source in pipeline.sources] == ["posts"]
    assert problems == []
    _, problems = project({"p.yaml": PIPELINE.replace("FROM posts", "FROM likes")})
    assert [problem.condition for problem in problems] == ["env.missing"]


def test_files_include_others_each_once(project: Write, tmp_path: Path) -> None:
    pipeline, problems = project(
        {
            "p.yaml": PIPELINE.replace("shared/sources.yaml", "[shared/a.yaml, shared/b.yaml]"),
            "shared/a.yaml": "include: ../common/posts.yaml\nsources: {likes: {kafka: likes}}",
            "shared/b.yaml": "x-note: none\ninclude: [../common/posts.yaml]",
            "common/posts.yaml": SHARED.partition("  likes")[0],
        }
    )
    assert pipeline
    assert problems == []
    assert str(pipeline.sources[0].place) == f"{tmp_path}/common/posts.yaml:2"


def test_a_mistake_has_the_line_of_the_included_file(project: Write, tmp_path: Path) -> None:
    shared = SHARED.replace('schema: "id string, text string"', "watermark: at, odd: 1")
    _, problems = project({"p.yaml": PIPELINE, "shared/sources.yaml": shared})
    assert places(problems, tmp_path) == ["value.type shared/sources.yaml:2", "option.unknown shared/sources.yaml:2"]


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        ({}, "include.unusable p.yaml:2"),
        ({"shared/sources.yaml/x": ""}, "include.unusable p.yaml:2"),
        ({"shared/sources.yaml": ""}, "file.empty shared/sources.yaml"),
        ({"shared/sources.yaml": "- 1"}, "value.type shared/sources.yaml:1"),
        ({"shared/sources.yaml": "a: }\n"}, "file.syntax shared/sources.yaml:1"),
        ({"shared/sources.yaml": "sources: []"}, "value.type shared/sources.yaml:1"),
        ({"shared/sources.yaml": SHARED + "sinks: []\n"}, "include.key shared/sources.yaml:6"),
        ({"shared/sources.yaml": SHARED + "include: ../p.yaml\n"}, "include.cycle shared/sources.yaml:6"),
        ({"shared/sources.yaml": SHARED + "include: sources.yaml\n"}, "include.cycle shared/sources.yaml:6"),
        ({"shared/sources.yaml": SHARED + "include: other.py\n"}, "include.unusable shared/sources.yaml:6"),
        (
            {"shared/sources.yaml": SHARED + "include: b.yaml\n", "shared/b.yaml": "sources: {POSTS: {rate: }}"},
            "name.duplicate shared/sources.yaml:2",
        ),
        ({"p.yaml": PIPELINE.replace("shared/sources.yaml", "{a: b}")}, "value.type p.yaml:2"),
        ({"p.yaml": PIPELINE.replace("shared/sources.yaml", '"a\\0b.yaml"')}, "include.unusable p.yaml:2"),
        ({"p.yaml": PIPELINE.replace("shared/sources.yaml", f"{'x' * 300}.yaml")}, "include.unusable p.yaml:2"),
    ],
)
def test_what_cannot_be_included(project: Write, tmp_path: Path, files: dict[str, str], wrong: str) -> None:
    _, problems = project({"p.yaml": PIPELINE, **files})
    assert wrong in places(problems, tmp_path)
    assert next(each for each in problems if each.condition == wrong.split()[0]).hint


def test_a_source_of_the_same_name_is_an_error(project: Write, tmp_path: Path) -> None:
    own = PIPELINE.replace("tables:", "sources:\n  Posts: {rate: }\ntables:")
    _, problems = project({"p.yaml": own, "shared/sources.yaml": SHARED})
    assert places(problems, tmp_path) == ["name.duplicate shared/sources.yaml:2"]
    assert problems[0].why == f"a source of this name is in {tmp_path}/p.yaml:4"
    table = PIPELINE.replace("  texts: SELECT", "  likes: SELECT 1 AS post FROM posts\n  texts: SELECT")
    _, problems = project({"p.yaml": table.replace("from: texts", "from: likes")})
    assert "name.duplicate p.yaml:4" in places(problems, tmp_path)


def test_the_name_that_was_meant_is_found_in_included_files(project: Write) -> None:
    _, problems = project({"p.yaml": PIPELINE.replace("FROM posts", "FROM post"), "shared/sources.yaml": SHARED})
    assert [(each.condition, each.hint) for each in problems] == [("name.unknown", "did you mean 'posts'?")]


@pytest.mark.parametrize(
    ("files", "conditions"),
    [
        ({"p.yaml": PIPELINE}, ["include.unusable"]),
        ({"p.yaml": PIPELINE, "shared/sources.yaml": "a: }\n"}, ["file.syntax"]),
        (
            {
                "p.yaml": PIPELINE.replace("tables:", "functions: udf.py\ntables:").replace(
                    "text FROM", "f(text) AS t FROM"
                ),
                "shared/sources.yaml": SHARED,
                "udf.py": "def f(:\n",
            },
            ["function.file"],
        ),
    ],
)
def test_what_a_broken_file_would_have_is_not_reported_as_well(
    project: Write, files: dict[str, str], conditions: list[str]
) -> None:
    _, problems = project(files)
    assert len(problems) > len(conditions)
    assert [each.condition for each in in_order(problems)] == conditions
