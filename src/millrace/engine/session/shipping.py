"""What executors on other machines are sent: Millrace itself, the project of the pipeline, and packages of Python."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import file_digest, sha256
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING

import millrace
from millrace.atomic_files import AtomicFile
from millrace.settings import CACHE

if TYPE_CHECKING:
    from pyspark import SparkContext

UNPACKED = "millrace_packages"
"""The folder, beside where an executor works, in which the packages that were sent are found."""
NEEDED = ("confluent_kafka", "orjson", "pandas", "platformdirs", "psutil", "pyarrow", "rich", "yaml")
"""What the code that runs in executors imports; connectors to other systems say themselves what else they need."""
_NOT_SENT = ("pyspark", "py4j")
_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
_NOT_FOR_EXECUTORS = frozenset({"static"})
"""Of Millrace itself: the live page, which a driver has."""
_LONGEST_AGO = (1980, 1, 1, 0, 0, 0)


def millrace_zip(folder: Path) -> Path:
    """Millrace as a file that Python imports from; the same file for the same code."""
    package = Path(millrace.__file__).parent
    if not package.is_dir():  # this is such a file already: Spark has sent it to where we are
        return next(parent for parent in package.parents if parent.is_file())
    found = ((path, f"millrace/{path.relative_to(package)}") for path in _files(package, _NOT_FOR_EXECUTORS))
    return _by_content(folder, f"millrace-{millrace.__version__}.zip", found)


def project_zip(beside: Path, folder: Path) -> Path:
    """The modules that stand beside a pipeline's file, which its functions may import."""
    found = ((path, str(path.relative_to(beside))) for path in _files(beside) if path.suffix == ".py")
    return _by_content(folder, "project.zip", found)


def whole_zip(beside: Path, folder: Path) -> Path:
    """All that stands beside a pipeline's file; clusters want another name for it than that of its modules."""
    return _by_content(folder, "whole.zip", ((path, str(path.relative_to(beside))) for path in _files(beside)))


def packages_zip() -> Path:
    """What Millrace needs of other people's packages, as it is installed here; made once for each state of those.

    It fits executors of the same system and the same Python: it has compiled code in it.
    """
    chosen = sorted(_required("millrace"), key=lambda one: one.name.lower())
    told = "\n".join([sysconfig.get_platform(), sys.version, *(f"{one.name} {one.version}" for one in chosen)])
    made = CACHE.value().absolute() / "packages" / f"{UNPACKED}-{sha256(told.encode()).hexdigest()[:12]}.zip"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(made) as draft:
            _zip(draft.file, _installed(chosen))
    return made


def send(context: SparkContext, files: Iterable[Path]) -> None:
    """Let every executor, also one that comes later, import from these files."""
    before = [*sys.path]
    for file in files:
        context.addPyFile(str(file))
    sys.path[:] = before  # here the modules are where they always were


def _required(name: str, seen: set[str] | None = None) -> Iterator[metadata.Distribution]:
    """What is installed of what a package needs, and of what that needs in turn."""
    from packaging.requirements import Requirement  # runs that send no packages start without it

    seen = {name, *_NOT_SENT} if seen is None else seen
    for text in metadata.requires(name) or ():
        wanted = Requirement(text)
        key = wanted.name.lower().replace("_", "-")
        if key in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        yield metadata.distribution(wanted.name)
        yield from _required(wanted.name, seen)


def _installed(chosen: Iterable[metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    for one in chosen:
        for file in one.files or ():
            place = Path(str(one.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
                yield place, str(file)


def _files(folder: Path, left_out: frozenset[str] = frozenset()) -> Iterator[Path]:
    """The files of a folder that are somebody's work, in an order that does not change."""
    for at, folders, names in os.walk(folder):
        kept = {one for one in folders if one not in _LEFT_OUT | left_out and not one.startswith(".")}
        folders[:] = sorted(one for one in kept if not (Path(at) / one / "pyvenv.cfg").exists())
        found = (Path(at) / name for name in sorted(names) if not name.startswith("."))
        yield from (path for path in found if path.is_file())


def _by_content(folder: Path, name: str, files: Iterable[tuple[Path, str]]) -> Path:
    """An archive in a folder that is called by what is in it: one that a running pipeline serves is never replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with AtomicFile(folder / name, private=True) as draft:
        _zip(draft.file, files)
        draft.file.seek(0)
        draft.path = folder / file_digest(draft.file, "sha256").hexdigest()[:12] / name
        draft.path.parent.mkdir(exist_ok=True)
    return draft.path


def _zip(made: IO[bytes], files: Iterable[tuple[Path, str]]) -> None:
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zipped:
        for place, name in files:
            entry = zipfile.ZipInfo(name, _LONGEST_AGO)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, _mode(place) << 16
            with place.open("rb") as content, zipped.open(entry, "w") as written:
                while part := content.read(1 << 20):
                    written.write(part)


def _mode(place: Path) -> int:
    """What others could not read here they cannot read there."""
    return 0o644 if place.stat().st_mode & stat.S_IROTH else 0o600
