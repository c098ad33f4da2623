"""The Chromium in which the page is tested and photographed: find it, and install it where apt can.

python scripts/browser.py    (make browser; make test does it too)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PLACES = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-pings",
)


def find() -> str | None:
    """The program: the one that MILLRACE_BROWSER names, or one of the usual ones."""
    named = os.environ.get("MILLRACE_BROWSER")
    if named:
        return named
    found = (shutil.which(name) for name in _NAMES)
    return next((path for path in found if path), None) or next((one for one in _PLACES if Path(one).exists()), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A running browser, without a window, that talks to nobody by itself."""
    from playwright.sync_api import sync_playwright

    program = find()
    if program is None:
        raise FileNotFoundError("there is no Chromium; `make browser` installs it, MILLRACE_BROWSER names another one")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=program, args=[*_QUIET, *(["--no-sandbox"] if root else [])]
        )
        try:
            yield started
        finally:
            started.close()


def main() -> None:
    """Install Chromium, unless a browser is there."""
    if find():
        return
    if not shutil.which("apt-get"):
        sys.exit(
            "The tests of the page need Chromium: install it, or name a browser like it with MILLRACE_BROWSER=/path"
        )
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    if as_root and not shutil.which("sudo"):
        sys.exit("The tests of the page need Chromium: as root, apt-get install chromium")
    print("installing Chromium for the tests of the page (apt-get install chromium)", flush=True)
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        ran = subprocess.run([*as_root, "apt-get", *command], capture_output=True, text=True, check=False)
        if ran.returncode and command[0] == "install":
            sys.exit(f"apt-get could not install chromium:\n{ran.stderr.strip()[-1500:]}")


if __name__ == "__main__":
    main()
