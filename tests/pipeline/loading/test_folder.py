"""Which files of a folder are pipelines, without running any of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import FileUnusable, InputError
from millrace.pipeline.loading import load
from millrace.pipeline.loading.folder import pipelines_in

PIPELINE = "name: p\nsources: {a: {rate: }}\nsinks: [{from: a, console: }]\n"


def contents(folder: Path, files: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8", "surrogateescape")
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
        ("docker-compose.yaml", "name: shop\nservices: {web: {image: nginx}}", "no pipeline"),
        ("items.yaml", "- name: a\n- sinks: b", "no pipeline"),
        ("broken.yaml", "jobs: [x", "no pipeline"),
        ("large.yaml", "openapi: 3.1.0\n" + "# x\n" * 300_000, "no pipeline"),
        ("latin.py", "# coding: latin-1\ndef f(): return '\udcfc'", "no pipeline: it does not call"),
        ("empty.py", "", "no pipeline"),
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
        ("flow.yaml", "{name: p, sources: {a: {rate: }}, sinks: []}"),
        ("unnamed.yaml", "sinks: []"),
        ("included.yaml", "name: p\ninclude: shared.yaml"),
        ("one.py", "import millrace as mr\np = mr.Pipeline('p')"),
        ("inside.py", "if True:\n    p = Pipeline(name='p')"),
        ("computed.py", "for n in 'ab': mr.Pipeline(n)\nmr.Pipeline('c')"),
        ("mark.yaml", "\ufeffname: p\nsources: {a: {rate: }}"),
    ],
)
def test_what_may_be_a_pipeline_is_one(tmp_path: Path, name: str, text: str) -> None:
    assert contents(tmp_path, {name: text}) == ([name], {})
    assert pipelines_in(str(tmp_path)).unreadable == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("latin.yaml", "# M\udcfcller\nname: p"),
        ("latin.py", "# M\udcfcller"),
        ("empty.yaml", "# only a comment\n"),
        ("named.yaml", "name: [x"),
        ("mistake.yaml", "name: p\nsources: {a: {rate: }\n"),
        ("large.yaml", PIPELINE + "# x\n" * 300_000),
        ("mistake.py", "import millrace as mr\np = mr.Pipeline('p'"),
        ("link.yaml", None),
        ("link.py", None),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path, name: str, text: str | None) -> None:
    if text is None:
        (tmp_path / name).symlink_to("nowhere")
    assert contents(tmp_path, {} if text is None else {name: text}) == ([name], {})
    assert pipelines_in(str(tmp_path)).unreadable == (str(tmp_path / name),)
    with pytest.raises(InputError):
        load(str(tmp_path / name))


def test_files_of_functions_are_those_of_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "udfs").mkdir()
    (tmp_path / "udfs" / "latin.py").write_bytes(b"# \xfc")
    files = {"p.yaml": f"functions: [udfs/a.py, ./udfs/a.py, udfs/latin.py]\n{PIPELINE}", "udfs/a.py": "", "c.py": ""}
    found, left_out = contents(tmp_path, files)
    assert (found, set(left_out)) == (["p.yaml"], {"c.py", "udfs/a.py", "udfs/latin.py"})
    assert {left_out["udfs/a.py"], left_out["udfs/latin.py"]} == {f"functions of {tmp_path / 'p.yaml'}"}
    shown = [str(each) for each in pipelines_in(str(tmp_path)).left_out]
    assert ["left out" in line for line in shown] == [True, False, False]


def test_pipelines_of_one_file_are_chosen_by_name(tmp_path: Path) -> None:
    text = "import millrace as mr\na = mr.Pipeline('a')\nb = mr.Pipeline(name='b', trigger='5s')"
    assert contents(tmp_path, {"p.py": text}) == (["p.py::a", "p.py::b"], {})


def test_a_folder_without_pipelines(tmp_path: Path) -> None:
    with pytest.raises(FileUnusable):
        pipelines_in(str(tmp_path))


def test_an_empty_text_is_not_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents(tmp_path, {"p.yaml": PIPELINE})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileUnusable):
        pipelines_in("")
