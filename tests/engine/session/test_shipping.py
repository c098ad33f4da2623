"""What executors are sent."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from millrace import __version__
from millrace.engine.session import shipping


def names(zipped: Path) -> list[str]:
    with zipfile.ZipFile(zipped) as content:
        return content.namelist()


def test_millrace_can_be_imported_from_what_is_sent(tmp_path: Path) -> None:
    made = shipping.millrace_zip(tmp_path)
    assert made.name == f"millrace-{__version__}.zip"
    assert {"millrace/engine/queries/decoding.py", "millrace/services/jars.toml"} <= set(names(made))
    assert not [one for one in names(made) if "__pycache__" in one or "/static/" in one]
    code = "import millrace.engine.queries.decoding as found; print(found.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(made)}, capture_output=True, text=True, check=False
    )
    assert str(made) in ran.stdout, ran.stderr


def test_the_same_code_is_the_same_file(tmp_path: Path) -> None:
    one, two = (shipping.millrace_zip(tmp_path) for _ in range(2))
    assert one == two
    assert [path.name for path in tmp_path.iterdir()] == [one.parent.name]


def test_a_run_that_sends_no_packages_starts_without_what_finds_them() -> None:
    code = "import sys; import millrace.engine.session.shipping; print('packaging.requirements' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_a_project_is_its_modules_and_nobody_elses(tmp_path: Path) -> None:
    own = ("pipeline.py", "own/parts.py", "static/rows.csv", "tests/likely.py")
    for name in (*own, ".git/x.py", "env/pyvenv.cfg", "env/lib.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe.py")
    made = tmp_path / ".out"
    assert set(names(shipping.project_zip(tmp_path, made))) == {one for one in own if one.endswith(".py")}
    assert set(names(shipping.whole_zip(tmp_path, made))) == set(own)


def test_what_others_cannot_read_here_they_cannot_read_there(tmp_path: Path) -> None:
    for name, mode in (("open.yaml", 0o644), ("client.properties", 0o640)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    made = shipping.whole_zip(tmp_path, tmp_path / ".out")
    assert made.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(made) as content:
        modes = {one.filename: one.external_attr >> 16 for one in content.infolist()}
    assert modes == {"open.yaml": 0o644, "client.properties": 0o600}


def test_packages_are_all_that_is_needed_and_no_spark() -> None:
    found = {one.name.lower().replace("_", "-") for one in shipping._required("millrace")}
    assert {"pyarrow", "pandas", "numpy", "confluent-kafka", "orjson", "psutil"} <= found
    assert not {"pyspark", "py4j", "pytest"} & found
    given = {name for one in shipping._required("millrace") for _, name in shipping._installed([one])}
    for module in shipping.NEEDED:
        assert any(name.startswith((f"{module}/", f"{module}.")) for name in given), module
    assert metadata.version("pyarrow") in next(
        one.version for one in shipping._required("millrace") if one.name == "pyarrow"
    )
