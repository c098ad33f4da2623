"""Finds the Java that Kafka, Cassandra and Spark run on, and checks its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millrace.errors import JavaUnusable
from millrace.settings import JAVA

MIN_JAVA_VERSION = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)([^"]*)"')
_INSTALL = (
    f"install Java {MIN_JAVA_VERSION} or newer (Debian: apt install openjdk-{MIN_JAVA_VERSION}-jre-headless), "
    "or set MILLRACE_JAVA"
)


@dataclass(frozen=True)
class Java:
    """A java program and its version."""

    path: Path
    version: str
    major: int

    @property
    def keytool(self) -> Path:
        """The program beside java that makes keys and certificates."""
        return self.path.resolve().parent / "keytool"


def find_java() -> Java:
    """The Java to use, tried: MILLRACE_JAVA, then JAVA_HOME, then the PATH."""
    return _tried(_candidate())


@cache
def _tried(path: Path) -> Java:
    try:
        ran = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = f"{JAVA.variable} names it: set it to a java that runs, or unset it" if JAVA.value() else _INSTALL
        raise JavaUnusable(f"{path} does not run", why=str(error), hint=hint) from None
    version = _VERSION.search(ran.stderr)
    if not version:
        why = (ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"])[0]
        raise JavaUnusable(f"{path} is not a working java", why=why, hint=_INSTALL)
    java = Java(path, version[1] + version[2], int(version[1]))
    if java.major < MIN_JAVA_VERSION:
        raise JavaUnusable(
            f"{path} is Java {java.version}, too old",
            why=f"Kafka and Spark need Java {MIN_JAVA_VERSION}",
            hint=_INSTALL,
        )
    return java


def _candidate() -> Path:
    chosen = JAVA.value()
    if chosen:
        return chosen
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is None:
        raise JavaUnusable("no Java was found", why="neither JAVA_HOME nor the PATH has a java", hint=_INSTALL)
    return Path(on_path)
