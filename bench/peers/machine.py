"""The machine that figures were taken on: what matters for them, and nothing that names it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from millrace.services.java import find_java


def described() -> dict[str, str]:
    """Cores, memory, system and the versions of Java and Python."""
    return {
        "processor": f"{len(os.sched_getaffinity(0))} cores{_model()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
        "java": str(find_java().version),
        "python": platform.python_version(),
    }


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return f" of {line.split(':', 1)[1].strip()}"
    return ""
