"""The step of the package's build that makes the dashboard's page, for wheels and for editable installs."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKIP = "MILLRACE_SKIP_PAGE"


class PageBuildHook(BuildHookInterface[Any]):
    """Builds web/ into the package before its files are collected."""

    def dependencies(self) -> list[str]:
        """Node as a wheel, where the page must be built and this machine has no Node that can do it."""
        web = _web(Path(self.root))
        if os.environ.get(SKIP) or web is None or web.up_to_date() or web.machines_node():
            return []
        return [web.WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page; a package without it would only be noticed by its users."""
        del version, build_data
        if os.environ.get(SKIP):
            return
        web = _web(Path(self.root))
        if web is None:
            self.app.abort("web/ is missing: the dashboard's page cannot be built")
            return
        try:
            web.build()
        except web.BuildFailed as failed:
            self.app.abort(
                f"the dashboard's page could not be built: {failed}\n"
                f"To install without the page (everything else works): {SKIP}=1"
            )


def _web(root: Path) -> ModuleType | None:
    """web/build.py, which is not on any path."""
    place = root / "web" / "build.py"
    spec = importlib.util.spec_from_file_location("millrace_web_build", place)
    if not place.is_file() or spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
