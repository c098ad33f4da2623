"""The program that spark-submit starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import millrace

PROGRAM = Path(millrace.__file__).parent / "cli" / "submit_main.py"


@pytest.mark.parametrize("linked", [False, True], ids=["itself", "as the image has it"])
def test_its_neighbours_are_no_libraries(tmp_path: Path, linked: bool) -> None:
    """Else `import cassandra` would find the module of `millrace cassandra`."""
    stub = tmp_path / "millrace" / "cli"
    stub.mkdir(parents=True)
    for folder in (stub.parent, stub):
        (folder / "__init__.py").touch()
    (stub / "main.py").write_text("import sys\ndef main():\n    print(*sys.path, sep='\\n')\n")
    program = PROGRAM
    if linked:
        program = tmp_path / "submitted.py"
        program.symlink_to(PROGRAM)
    line = [sys.executable, str(program)]
    ran = subprocess.run(line, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    searched = ran.stdout.splitlines()
    assert searched[0] == str(tmp_path)
    assert str(PROGRAM.parent) not in searched
