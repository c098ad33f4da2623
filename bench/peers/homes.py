"""Where peers live: environments, jars and classes of their own in the cache, apart from Millrace's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from millrace.errors import MillraceError
from millrace.services import jars
from millrace.settings import CACHE
from peers.contract import MissingError

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


def environment(name: str, *requirements: str) -> Path:
    """The Python of a virtual environment with these packages; it is made when it is not there."""
    folder = _folder(name, "\n".join(requirements))
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", folder)
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
        ready.touch()
    return python


def jar_set(name: str) -> str:
    """The class path of a set of jars.toml."""
    wanted = jars.sets_in((HERE / "jars.toml").read_text("utf-8"))[name]
    try:
        return (wanted if wanted.present() else jars.fetch(wanted)).classpath()
    except MillraceError as error:
        raise MissingError(str(error)) from None


def compiled(source: Path, classpath: str) -> Path:
    """The folder with the classes of a Java program."""
    folder = _folder(source.stem.lower(), source.read_text("utf-8") + classpath)
    if not (folder / "ready").exists():
        if not shutil.which("javac"):
            raise MissingError("there is no javac: a JDK is needed, not only Java")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run("javac", "-nowarn", "-d", folder, "-cp", classpath, source)
        (folder / "ready").touch()
    return folder


def _folder(name: str, content: str) -> Path:
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return CACHE.value().absolute() / "peers" / f"{name}-{digest}"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise MissingError("; ".join(lines[-2:]) or f"{command[0]} ended with {done.returncode}")
