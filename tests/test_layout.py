"""The source tree stays easy to find one's way in: sizes of packages and modules, names of modules and classes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import millrace

ROOT = Path(millrace.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")
MAX_MODULES_OF_PACKAGE = 16
MAX_LINES = 500
MIN_LINES = 40
LARGE: dict[str, str] = {}
SMALL = {
    "__main__.py": "the program `python -m millrace`",
    "cli/submit_main.py": "the program that spark-submit starts",
    "cli/commands/doctor.py": "one file a command",
    "cli/commands/settings.py": "one file a command",
    "connectors/kafka/topic_options.py": "imported by source and sink, which do not import each other",
    "connectors/rate.py": "one file a connector",
    "formats/json.py": "one file a format",
    "formats/raw.py": "one file a format",
    "formats/text.py": "one file a format",
}
NOUNS = {"decoding", "feed", "loading", "masking", "ranking", "recording", "shipping", "stopping", "testing"}
PARTICIPLES = {"begun", "done", "given", "gone", "kept", "known", "made", "said", "seen", "shown", "told", "written"}


def test_packages_are_small() -> None:
    sizes: dict[str, int] = defaultdict(int)
    for path in MODULES:
        sizes[str(path.parent.relative_to(ROOT))] += 1
    large = {package: size for package, size in sizes.items() if size > MAX_MODULES_OF_PACKAGE}
    assert not large, f"packages of more than {MAX_MODULES_OF_PACKAGE} modules; divide them by concept: {large}"


def test_modules_hold_one_whole_concept() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    small = {name: size for name, size in sizes.items() if size < MIN_LINES and name not in SMALL}
    large = {name: size for name, size in sizes.items() if size > MAX_LINES and name not in LARGE}
    assert not small | large, f"modules have {MIN_LINES} to {MAX_LINES} lines, or a reason: {small | large}"


def test_every_exception_is_needed() -> None:
    sizes = {name: len((ROOT / name).read_text().splitlines()) for name in (*SMALL, *LARGE)}
    assert not [name for name in SMALL if sizes[name] >= MIN_LINES], "leave it out of SMALL"
    assert not [name for name in LARGE if sizes[name] <= MAX_LINES], "leave it out of LARGE"


def test_modules_and_packages_are_named_by_nouns() -> None:
    names = {path.stem for path in ROOT.rglob("*.py")} | {path.parent.name for path in MODULES}
    words = {name: name.split("_")[-1] for name in names - NOUNS}
    wrong = {name for name, word in words.items() if word in PARTICIPLES or re.search("..(ing|ed)$", word)}
    assert not wrong, f"participles: {sorted(wrong)}"


def test_no_public_class_name_twice() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert not twice, f"one name for one thing: {twice}"
