"""Jars by name: sets of Maven artifacts, fetched once with the Ivy that PySpark carries, pinned by checksum."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import resources, util
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from xml.sax.saxutils import quoteattr

from millrace.errors import FetchFailed, FileUnusable, UnknownName
from millrace.locks import FolderLock
from millrace.services.java import find_java
from millrace.services.process import with_parent_watchdog
from millrace.settings import CACHE, IVY_SETTINGS

Progress = Callable[[int, int, str], None]
"""Called with how many artifacts have arrived, of how many, and the newest one's name."""

_ARRIVED = re.compile(r"\[SUCCESSFUL \] [^#]+#([^;]+);")
_UNRESOLVED = re.compile(r"^\s*:: ([^#\s]+)#([^;\s]+);(\S+?): (.+)$", re.MULTILINE)
_FAILED = re.compile(r"\[FAILED\s+\] ([^#]+)#([^;]+);([^!]+)!(.*)")
_CAUSE = re.compile(r"(?:Server access [Ee]rror[^:]*: |\b[a-z.]+Exception: )(.+)")
_SILENCE = 180.0
# Every artifact is named with its version, so Maven's descriptors need not be read: seconds instead of minutes.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="maven"/>
  <timeout-constraints>
    <timeout-constraint name="patience" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers><ibiblio name="maven" m2compatible="true" usepoms="false" timeoutConstraint="patience"/></resolvers>
</ivysettings>
"""


@dataclass(frozen=True, order=True)
class Artifact:
    """One jar of Maven's world and the SHA-256 of its bytes."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """How Maven writes it."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def file(self) -> str:
        """The name of the jar on disk."""
        return f"{self.name}-{self.version}.jar"


@dataclass(frozen=True)
class JarSet:
    """Artifacts that are used together, and the folder that holds them."""

    name: str
    about: str
    artifacts: tuple[Artifact, ...]

    @cached_property
    def folder(self) -> Path:
        """The folder of the set; another version of the set has another folder."""
        pinned = "\n".join(f"{jar.coordinates} {jar.sha256}" for jar in self.artifacts)
        digest = hashlib.sha256(pinned.encode()).hexdigest()[:12]
        return CACHE.value().absolute() / "jars" / f"{self.name}-{digest}"

    def present(self) -> bool:
        return all((self.folder / jar.file).is_file() for jar in self.artifacts)

    def size(self) -> int:
        return sum((self.folder / jar.file).stat().st_size for jar in self.artifacts) if self.present() else 0

    def classpath(self) -> str:
        """The set as Java wants it, in an order that does not change."""
        return ":".join(str(self.folder / jar.file) for jar in self.artifacts)

    def damaged(self) -> list[Artifact]:
        """The jars that are missing or whose bytes are not the pinned ones."""
        return [jar for jar in self.artifacts if _sha256(self.folder / jar.file) != jar.sha256]


def jar_sets() -> dict[str, JarSet]:
    """Every set by name."""
    return sets_in(resources.files("millrace.services").joinpath("jars.toml").read_text("utf-8"))


def sets_in(pinned: str) -> dict[str, JarSet]:
    """The sets of a file in the form of jars.toml."""
    return {name: _jar_set(name, described) for name, described in tomllib.loads(pinned).items()}


def _jar_set(name: str, described: dict[str, Any]) -> JarSet:
    jars = described.get("jars")
    if not isinstance(jars, dict):
        raise TypeError(f"jars.toml: [{name}.jars] is not a table")
    return JarSet(name, described["about"], tuple(_artifact(*jar) for jar in jars.items()))


def _artifact(coordinates: str, sha256: Any) -> Artifact:
    parts = coordinates.split(":")
    if len(parts) != 3 or not isinstance(sha256, str):
        raise TypeError(f'jars.toml: {coordinates} is not of the form "GROUP:NAME:VERSION" = "SHA-256"')
    group, name, version = parts
    return Artifact(group, name, version, sha256)


def jar_set(name: str) -> JarSet:
    """The set of a name, fetched or not."""
    sets = jar_sets()
    if name not in sets:
        raise UnknownName.among("jar set", name, sets)
    return sets[name]


def ensure(name: str, progress: Progress | None = None) -> JarSet:
    """The set of a name, fetched if it is not there yet. Two processes may ask at once: one fetches."""
    wanted = jar_set(name)
    return wanted if wanted.present() else fetch(wanted, progress)


def fetch(wanted: JarSet, progress: Progress | None = None) -> JarSet:
    """Fetch a set whole or not at all: it appears under its name only when every checksum is right."""
    home = wanted.folder.parent
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileUnusable(
            f"cannot make the cache folder {home}",
            why=str(error),
            hint=f"set {CACHE.variable} to a folder of yours",
        ) from None
    with FolderLock(home / f".{wanted.name}.lock"):
        if wanted.present():
            return wanted
        prefix = f".{wanted.name}.fetching-"
        # Only the holder of the lock gets here, so whatever another fetch left behind is nobody's.
        for left in home.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=home) as folder:
            staging = Path(folder)
            _run_ivy(wanted, staging, progress or (lambda *_: None))
            _verify(wanted, staging / "lib")
            shutil.rmtree(wanted.folder, ignore_errors=True)
            (staging / "lib").rename(wanted.folder)
    return wanted


def _run_ivy(wanted: JarSet, staging: Path, progress: Progress) -> None:
    module, settings = staging / "ivy.xml", staging / "settings.xml"
    module.write_text(_module(wanted.artifacts), "utf-8")
    settings.write_text(_SETTINGS, "utf-8")
    command: list[str | Path] = [
        find_java().path, "-jar", _ivy_jar(),
        "-settings", _mirror() or settings, "-ivy", module, "-cache", staging / "cache",
        "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{staging}/lib/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    output: list[str] = []
    arrived = 0
    progress(arrived, len(wanted.artifacts), "")
    signs: SimpleQueue[bool] = SimpleQueue()
    # Under a guard: when this process ends, however it ends, Ivy does too and writes nothing more.
    guarded, pipe = with_parent_watchdog(command), subprocess.PIPE
    with (
        ThreadPoolExecutor(1) as pool,
        subprocess.Popen(guarded, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as ivy,
    ):
        watch = pool.submit(_end_when_silent, ivy, signs)
        try:
            for line in ivy.stderr or ():
                signs.put(True)
                output.append(line)
                if artifact := _ARRIVED.search(line):
                    arrived += 1
                    progress(arrived, len(wanted.artifacts), artifact[1])
        finally:
            signs.put(False)
            if ivy.stdin:
                ivy.stdin.close()
    if silent := watch.result():
        output.append(f"nothing came for {_SILENCE:.0f} s")
    if ivy.returncode or silent:
        raise _fetch_failed(wanted, "".join(output))


def _end_when_silent(process: subprocess.Popen[str], signs: SimpleQueue[bool]) -> bool:
    """End a process that writes nothing for too long: a mirror may take a request and never answer it."""
    try:
        while signs.get(timeout=_SILENCE):
            pass
    except Empty:
        process.terminate()
        return True
    return False


def _module(artifacts: tuple[Artifact, ...]) -> str:
    """What Ivy shall fetch: exactly the artifacts, nothing that they in turn ask for."""
    wanted = "\n".join(
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.name)} rev={quoteattr(jar.version)}"
        ' conf="default->default" transitive="false"/>'
        for jar in artifacts
    )
    return (
        '<ivy-module version="2.0">\n  <info organisation="millrace" module="jars"/>\n'
        '  <configurations><conf name="default"/></configurations>\n'
        f"  <dependencies>\n{wanted}\n  </dependencies>\n</ivy-module>\n"
    )


def _ivy_jar() -> Path:
    spec = util.find_spec("pyspark")  # finds the folder without importing PySpark
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    ivy_jars = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not ivy_jars:
        raise FetchFailed("PySpark's Ivy is missing", why=f"no ivy-*.jar in {folder}", hint="pip install pyspark")
    return ivy_jars[-1]


def _mirror() -> Path | None:
    chosen = IVY_SETTINGS.value()
    if chosen and not chosen.is_file():
        raise FileUnusable(f"the Ivy settings file {chosen} does not exist", hint=f"look at {IVY_SETTINGS.variable}")
    return chosen.absolute() if chosen else None


def _fetch_failed(wanted: JarSet, output: str) -> FetchFailed:
    missing = dict.fromkeys(":".join(groups[:3]) for groups in _UNRESOLVED.findall(output) + _FAILED.findall(output))
    cause = _CAUSE.search(output)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next(iter(missing), None)
    others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return FetchFailed(
        f"could not fetch {first or f'the jar set {wanted.name}'}{others}",
        why=cause[1].strip() if cause else ("it was not found" if first else "; ".join(lines[-2:])),
        hint="check the network or proxy; to use a company mirror set "
        f"{IVY_SETTINGS.variable}; to work offline copy {wanted.folder.parent} from a machine that has it",
    )


def _verify(wanted: JarSet, folder: Path) -> None:
    for jar in wanted.artifacts:
        sha256 = _sha256(folder / jar.file)
        if sha256 != jar.sha256:
            raise FetchFailed(
                f"{jar.coordinates} is not what it should be",
                why=f"SHA-256 is {sha256 or 'of a missing file'}, expected {jar.sha256}",
                hint="nothing was kept; fetch again, and if it stays so ask who runs your mirror",
            )


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
