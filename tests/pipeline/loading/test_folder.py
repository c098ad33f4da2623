"""Which files of a folder are pipelines, without running any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import FileUnusable
from millrace.pipeline.loading.folder import pipelines_in

PIPELINE = "name: p\nsources: {a: {rate: }}\nsinks: [{from: a, console: }]\n"


def contents(folder: Path, files: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    found = pipelines_in(str(folder))
    left_out = {str(Path(each.file).relative_to(folder)): each.why for each in found.left_out}
    return [str(Path(each).relative_to(folder)) for each in found.pipelines], left_out


def test_pipelines_of_all_folders_in_order(tmp_path: Path) -> None:
    files = dict.fromkeys(("b.yaml", "a.yml", "z/c.yaml", ".hidden/d.yaml", "node_modules/e.yaml", "f.txt"), PIPELINE)
    assert contents(tmp_path, files) == (["a.yml", "b.yaml", "z/c.yaml"], {})


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("p.test.yaml", "tests: {}", "tests"),
        ("other.yaml", "tests: {}", "tests"),
        ("shared.yaml", "x-a: &a 1\nsources: {}", "sources that pipelines include"),
        ("more.yaml", "include: shared.yaml", "sources that pipelines include"),
        ("ci.yaml", "name: build\non: push\njobs: {}", "no pipeline"),
        ("dbt.yaml", "version: 2\nsources: []", "no pipeline"),
        ("empty.yaml", "", "no pipeline"),
        ("nested.yaml", "a:\n  sinks: []", "no pipeline"),
        ("udf.py", "def double(x): return 2 * x", "no pipeline: it does not call Pipeline outside functions"),
        ("make.py", "def make(n): return mr.Pipeline(n)", "no pipeline: it does not call Pipeline outside functions"),
        ("old.py", "print 'no'", "no pipeline: it is no Python"),
        ("binary.py", "\x00", "no pipeline: it is no Python"),
    ],
)
def test_what_is_left_out(tmp_path: Path, name: str, text: str, why: str) -> None:
    found, left_out = contents(tmp_path, {"p.yaml": PIPELINE, name: text})
    assert found == ["p.yaml"]
    assert left_out[name].startswith(why)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistake.yaml", "name: p\nsources: {a: {rate: }\n"),
        ("flow.yaml", "{name: p, sources: {a: {rate: }}, sinks: []}"),
        ("unnamed.yaml", "sinks: []"),
        ("included.yaml", "name: p\ninclude: shared.yaml"),
        ("one.py", "import millrace as mr\np = mr.Pipeline('p')"),
        ("inside.py", "if True:\n    p = Pipeline(name='p')"),
        ("computed.py", "for n in 'ab': mr.Pipeline(n)\nmr.Pipeline('c')"),
        ("mistake.py", "import millrace as mr\np = mr.Pipeline('p'"),
    ],
)
def test_what_may_be_a_pipeline_is_one(tmp_path: Path, name: str, text: str) -> None:
    assert contents(tmp_path, {name: text}) == ([name], {})


def test_pipelines_of_one_file_are_chosen_by_name(tmp_path: Path) -> None:
    text = "import millrace as mr\na = mr.Pipeline('a')\nb = mr.Pipeline(name='b', trigger='5s')"
    assert contents(tmp_path, {"p.py": text}) == (["p.py::a", "p.py::b"], {})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("name: M\xfcller".encode("latin-1"))
    _, left_out = contents(tmp_path, {"p.yaml": PIPELINE})
    assert left_out["latin.yaml"].startswith("it cannot be read")


def test_a_folder_without_pipelines(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        pipelines_in(str(tmp_path))
