"""Processes that end with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from millrace.services.parent_watchdog import die_with_parent
die_with_parent(int(sys.argv[1]))
"""


KILLED = -signal.SIGKILL if sys.platform == "linux" else 0
"""Only Linux ends processes with their parent."""


@pytest.mark.parametrize(("lives", "code"), [(True, 0), (False, KILLED)])
def test_a_parent_that_has_ended_before_ends_its_child(lives: bool, code: int) -> None:
    parent = os.getpid() if lives else os.getppid()
    child = subprocess.run([sys.executable, "-c", PROGRAM, str(parent)], check=False)
    assert child.returncode == code
