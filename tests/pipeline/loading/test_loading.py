"""A file becomes a model, or one clear message with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import FileUnusable, InputError, InvalidDefinition
from millrace.pipeline.loading import load, read_file

MINIMAL = "import millrace as mr\n{name} = mr.Pipeline('{name}')\n"


def test_a_python_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("TOPIC = 'posts'\n")
    file = tmp_path / "p.py"
    file.write_text(
        MINIMAL.format(name="one") + "from beside import TOPIC\none.source('a', mr.kafka(TOPIC))\n"
        "if __name__ == '__main__':\n    raise SystemExit(3)\n"
    )
    model = load(str(file))
    assert (model.name, model.sources[0].connection.argument) == ("one", "posts")
    assert str(model.sources[0].place) == f"{file}:4"


def test_a_yaml_file(tmp_path: Path) -> None:
    for name in ("p.yaml", "p.yml"):
        (tmp_path / name).write_text("name: one\nsources: {a: {schema: x, kafka: posts}}\n")
        model = load(str(tmp_path / name), ["kafka"])
        assert (model.name, model.sources[0].connection.connector) == ("one", "kafka")
        assert load(f"{tmp_path / name}::one", ["kafka"]).name == "one"
        with pytest.raises(InvalidDefinition):
            load(f"{tmp_path / name}::two", ["kafka"])


def test_one_of_several(tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(MINIMAL.format(name="one") + MINIMAL.format(name="two"))
    assert load(f"{file}::two").name == "two"
    for path in (f"{file}", f"{file}::three"):
        with pytest.raises(InvalidDefinition):
            load(path)


def test_a_folder_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("name: p\n")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FileUnusable, match="is a folder") as raised:
        read_file(str(tmp_path))
    assert raised.value.hint == f"name one of its files: {tmp_path / 'p.yaml'}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import millrace\n", None),
        ("x = 1\nx = = 2\n", 2),
        ("x = 1\n\nx = 1 / 0\n", 3),
        ("def f():\n    raise ValueError('no')\n\nf()\n", 2),
        ("import sys\nsys.exit(3)\n", 2),
        ("import nothing_of_this_name\n", 1),
        (MINIMAL.format(name="a") + "a.source('x', 3)\n", 3),
        (MINIMAL.format(name="a") + "a.sink('x', mr.console(), trigger='soon')\n", 3),
        (MINIMAL.format(name="a") + "mr.kakfa('x')\n", 3),
    ],
)
def test_a_mistake_in_python_is_told_with_its_line(tmp_path: Path, text: str, line: int | None) -> None:
    file = tmp_path / "p.py"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        load(str(file))
    assert raised.value.place is not None
    assert (raised.value.place.file, raised.value.place.line) == (str(file), line)
    model, problems = read_file(str(file))
    assert model is None
    assert [one.place for one in problems] == [raised.value.place]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("")
    for path in (tmp_path / "nothing.py", tmp_path / "nothing.yaml", tmp_path / "p.toml", tmp_path):
        with pytest.raises(FileUnusable):
            load(str(path))
        with pytest.raises(FileUnusable):
            read_file(str(path))


def test_modules_beside_a_file_are_its_own(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name
        (folder / "parts").mkdir(parents=True)
        (folder / "helpers.py").write_text(f"TOPIC = '{name}'\n")
        (folder / "parts" / "__init__.py").write_text(f"KEY = '{name}'\n")
        use = f"import helpers, parts\n{name}.source('a', mr.kafka(helpers.TOPIC + parts.KEY))\n"
        (folder / "p.py").write_text(MINIMAL.format(name=name) + use)
    for name in ("first", "second", "first"):
        assert load(str(tmp_path / name / "p.py")).sources[0].connection.argument == name * 2
    (tmp_path / "second" / "helpers.py").unlink()
    with pytest.raises(InvalidDefinition, match="helpers"):
        load(str(tmp_path / "second" / "p.py"))
