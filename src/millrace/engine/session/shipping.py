"""Archives for executors on other machines.

- `millrace_zip`: Millrace itself.
- `project_zip` and `whole_zip`: the modules, or all files, beside the pipeline's file.
- `packages_zip`: the Python packages that Millrace needs.
- `send`: lets every executor import from such archives.
"""

from __future__ import annotations

import os
import shutil
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
"""The folder into which an executor unpacks the packages, in its working directory."""
NEEDED = ("confluent_kafka", "orjson", "pandas", "platformdirs", "psutil", "pyarrow", "rich", "yaml")
"""What the code in executors imports; connectors to other systems check themselves what else they need."""
_NOT_SHIPPED = ("pyspark", "py4j")
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules"})
_DRIVER_ONLY_FOLDERS = frozenset({"static"})
"""The dashboard, which only the driver serves."""
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


def millrace_zip(folder: Path) -> Path:
    """Return Millrace as an archive that Python imports from; the same code has the same file."""
    package = Path(millrace.__file__).parent
    if not package.is_dir():  # Spark runs this process from such an archive
        return next(parent for parent in package.parents if parent.is_file())
    files = ((path, f"millrace/{path.relative_to(package)}") for path in _files(package, _DRIVER_ONLY_FOLDERS))
    return _zip_by_content(folder, f"millrace-{millrace.__version__}.zip", files)


def project_zip(module_folder: Path, folder: Path) -> Path:
    """Return the modules beside a pipeline's file, which its functions may import."""
    files = ((path, str(path.relative_to(module_folder))) for path in _files(module_folder) if path.suffix == ".py")
    return _zip_by_content(folder, "project.zip", files)


def whole_zip(module_folder: Path, folder: Path) -> Path:
    """Return all files beside a pipeline's file; clusters need another name than that of the archive of modules."""
    files = ((path, str(path.relative_to(module_folder))) for path in _files(module_folder))
    return _zip_by_content(folder, "whole.zip", files)


def packages_zip() -> Path:
    """Return the packages that Millrace needs, as they are installed here; created once for each set of versions.

    It fits executors with the same system and Python, since it has compiled code in it.
    """
    packages = sorted(_required("millrace"), key=lambda package: package.name.lower())
    versions = (f"{package.name} {package.version}" for package in packages)
    identity = "\n".join([sysconfig.get_platform(), sys.version, *versions])
    path = CACHE.value().absolute() / "packages" / f"{UNPACKED}-{sha256(identity.encode()).hexdigest()[:12]}.zip"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(path) as draft:
            _zip(draft.file, _installed(packages))
    return path


def send(context: SparkContext, files: Iterable[Path]) -> None:
    """Let every executor, also one that registers later, import from these files."""
    path = [*sys.path]
    for file in files:
        context.addPyFile(str(file))
    sys.path[:] = path  # here the modules are installed


def _required(name: str, seen: set[str] | None = None) -> Iterator[metadata.Distribution]:
    """Yield the installed requirements of a package, and theirs in turn."""
    from packaging.requirements import Requirement  # slow to import, and needed by few runs

    seen = {name, *_NOT_SHIPPED} if seen is None else seen
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        key = requirement.name.lower().replace("_", "-")
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        yield metadata.distribution(requirement.name)
        yield from _required(requirement.name, seen)


def _installed(packages: Iterable[metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    for package in packages:
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                yield path, str(file)


def _files(folder: Path, skipped: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Yield the files of a folder in a fixed order, without hidden ones, caches and virtual environments."""
    for parent, subfolders, names in os.walk(folder):
        kept = {name for name in subfolders if name not in _SKIPPED_FOLDERS | skipped and not name.startswith(".")}
        subfolders[:] = sorted(name for name in kept if not (Path(parent) / name / "pyvenv.cfg").exists())
        paths = (Path(parent) / name for name in sorted(names) if not name.startswith("."))
        yield from (path for path in paths if path.is_file())


def _zip_by_content(folder: Path, name: str, files: Iterable[tuple[Path, str]]) -> Path:
    """Write an archive to a folder named by its digest, so that one which a running pipeline serves is not replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    with AtomicFile(folder / name, private=True) as draft:
        _zip(draft.file, files)
        draft.file.seek(0)
        draft.path = folder / file_digest(draft.file, "sha256").hexdigest()[:12] / name
        draft.path.parent.mkdir(exist_ok=True)
    return draft.path


def _zip(target: IO[bytes], files: Iterable[tuple[Path, str]]) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, name in files:
            entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
            # A file that other accounts cannot read here cannot be read by others there.
            mode = 0o644 if path.stat().st_mode & stat.S_IROTH else 0o600
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            with path.open("rb") as content, archive.open(entry, "w") as compressed:
                shutil.copyfileobj(content, compressed, 1 << 20)
