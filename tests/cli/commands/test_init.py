"""`millrace init`: every project is sound, its tests pass, and nothing is overwritten."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from conftest import RunPipeline
from millrace.cli.commands.init import Template
from millrace.testing.spark import use_session

Run = Callable[..., Any]


QUICK = {("posts", "yaml"), ("logs", "yaml"), ("sensors", "python"), ("blank", "python")}


def projects() -> Iterator[Any]:
    """Every template in both forms; half of them in `make chaos`."""
    for template, form in product(Template, ("yaml", "python")):
        yield pytest.param(template, form, marks=() if (template, form) in QUICK else pytest.mark.chaos)


@pytest.mark.parametrize(("template", "form"), list(projects()))
def test_a_project_is_sound_and_its_tests_pass(
    offline_run: Run, spark: SparkSession, tmp_path: Path, template: Template, form: str
) -> None:
    use_session(spark)
    offline_run("init", "my project", "--template", template, f"--{form}")
    folder = tmp_path / "my project"
    assert len((folder / "Makefile").read_text().splitlines()) == 3
    file = "pipeline.py" if form == "python" else "pipeline.yaml"
    workflow = yaml.safe_load((folder / ".github/workflows/test.yaml").read_text())
    assert {"run": f"millrace check {file}"} in workflow["jobs"]["test"]["steps"]
    assert "no problems" in offline_run("check", f"my project/{file}").out
    assert "failed" not in offline_run("test", "my project").out


def test_the_first_run_shows_the_sample_data(offline_run: Run, run_pipeline: RunPipeline, tmp_path: Path) -> None:
    offline_run("init", "tags")
    file = tmp_path / "tags" / "pipeline.yaml"
    # The Spark of the tests was not started in the project's folder.
    file.write_text(file.read_text("utf-8").replace("files: data", f"files: {file.parent}/data"), "utf-8")
    run_pipeline(file)
    assert "coffee" in "".join(run_pipeline.printed)


def test_nothing_is_overwritten(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    told = offline_run("init", ".", code=2).err
    assert "README.md" in told
    assert [one.name for one in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize(("folder", "name"), [("null", "pipeline"), ("Ünï cöde", "Uni-code"), ("x" * 120, "x" * 100)])
def test_a_pipeline_has_the_name_of_its_folder_as_far_as_it_can(
    offline_run: Run, tmp_path: Path, folder: str, name: str
) -> None:
    told = offline_run("init", folder, "--template", "blank").err
    assert f"cd {shlex.quote(folder)}" in told
    assert (tmp_path / folder / "pipeline.yaml").read_text().startswith(f"name: {name}\n")
    assert "no problems" in offline_run("check", f"{folder}/pipeline.yaml").out


def test_what_is_no_folder_is_an_error_of_the_user(offline_run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/within"):
        told = offline_run("init", folder, code=2).err
        assert "file.unusable" in told
        assert "file is a file" in told
