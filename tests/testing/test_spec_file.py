"""A `*.test.yaml` file becomes tests, or all of its mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import FileUnusable, InvalidTest, SourceLocation
from millrace.testing.runner import find
from millrace.testing.spec import place_of
from millrace.testing.spec_file import read_spec_file


def written(folder: Path, text: str) -> Path:
    (folder / "trending.yaml").touch()
    file = folder / "trending.test.yaml"
    file.write_text(text, "utf-8")
    return file


def problems(folder: Path, text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(InvalidTest) as raised:
        read_spec_file(written(folder, text))
    return [(one.place.line if one.place else None, one.message) for one in raised.value.problems]


def test_a_test_is_one_step_or_several(tmp_path: Path) -> None:
    spec_file = read_spec_file(
        written(
            tmp_path,
            "tests:\n"
            "  one: {given: {posts: [{n: 1}]}, expect: {t: []}, late: {t: 2}, dead: {posts: 1}}\n"
            "  two:\n"
            "    steps:\n"
            "      - given: {posts: [a]}\n"
            "      - watermark: 2026-05-04T12:00:00Z\n"
            "    expect: {t: [{n: 1}]}\n"
            "    key: {t: n}\n",
        )
    )
    one, two = spec_file.cases
    assert spec_file.pipelines == (str(tmp_path / "trending.yaml"),)
    assert one.steps[0].given == {"posts": [{"n": 1}]}
    assert [one.steps[0].rows["t"].value, one.steps[0].late["t"].value, one.steps[0].dead["posts"].value] == [[], 2, 1]
    assert not one.moves_watermarks
    assert [step.watermark for step in two.steps] == [None, "2026-05-04T12:00:00Z"]
    assert two.whole.rows["t"].path == ("tests", "two", "expect", "t")
    assert two.key == {"t": ("n",)}


def test_every_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "tests:\n"
        "  a: {expct: {}}\n"
        "  b: {steps: [], given: {}}\n"
        "  c:\n"
        "    steps:\n"
        "      - {watermark: now, given: {x: []}}\n",
    )
    assert [line for line, _ in found] == [2, 2, 2, 3, 3, 3, 6, 4]


def test_a_test_that_expects_nothing_is_none(tmp_path: Path) -> None:
    for expects in ("", ", expect: {}", ", late: {}, dead: {}"):
        found = problems(tmp_path, f"tests:\n  a: {{given: {{posts: []}}{expects}}}\n")
        assert [(line, "nothing" in said) for line, said in found] == [(2, True)]
    found = problems(tmp_path, "tests:\n  a:\n    steps:\n      - given: {posts: []}\n      - watermark: now\n")
    assert [line for line, _ in found] == [2]


@pytest.mark.parametrize(
    "wrong", ["late: {t: yes}", "late: {t: true}", "dead: {posts: true}", "dead: {posts: many}", "key: {x: n}"]
)
def test_numbers_and_keys_are_what_they_must_be(tmp_path: Path, wrong: str) -> None:
    assert len(problems(tmp_path, f"tests:\n  a: {{given: {{posts: []}}, expect: {{t: []}}, {wrong}}}\n")) == 1
    assert problems(tmp_path, "environment: {A: [x]}\ntests: {a: {given: {}, expect: {t: []}}}")


def test_rows_know_their_lines_and_long_numbers_are_numbers(tmp_path: Path) -> None:
    rows = "      posts:\n        - n: 1234567890123456789012\n          m: 1\n"
    text = f"tests:\n  a:\n    given:\n{rows}    expect: {{t: []}}\n"
    (case,) = read_spec_file(written(tmp_path, text)).cases
    (row,) = case.steps[0].given["posts"]
    assert row == {"n": 1234567890123456789012, "m": 1}
    assert [place_of(row, name) for name in row] == [
        SourceLocation(str(tmp_path / "trending.test.yaml"), line) for line in (5, 6)
    ]


@pytest.mark.parametrize("text", ["", "tests: {}", "tests: []", "- a", "tests:\n  a: 1\n"])
def test_what_is_no_file_of_tests(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)


def test_a_file_is_about_the_pipelines_of_its_name_or_those_it_names(tmp_path: Path) -> None:
    file = written(tmp_path, "tests: {a: {given: {}, expect: {t: []}}}")
    (tmp_path / "trending.py").touch()
    assert [Path(one).name for one in read_spec_file(file).pipelines] == ["trending.yaml", "trending.py"]
    file.write_text("pipeline: other.py\ntests: {a: {given: {}, expect: {t: []}}}")
    assert read_spec_file(file).pipelines == (str(tmp_path / "other.py"),)
    alone = tmp_path / "alone.test.yaml"
    alone.write_text("tests: {a: {given: {}, expect: {t: []}}}")
    with pytest.raises(InvalidTest):
        read_spec_file(alone)


def test_files_of_tests_are_found_by_folder_by_pipeline_and_by_name(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    hidden = tmp_path / ".venv" / "x.test.yaml"
    hidden.parent.mkdir()
    hidden.touch()
    assert find([str(tmp_path)]) == find([str(file)]) == find([str(tmp_path / "trending.yaml")]) == [file]
    with pytest.raises(FileUnusable):
        find([str(tmp_path / "none.yaml")])
    (tmp_path / "bare.py").touch()
    with pytest.raises(InvalidTest):
        find([str(tmp_path / "bare.py")])
