"""The built page, as files; or words about how to build it."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
_MISSING = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Millrace</title>
<h1>The page is not built</h1>
<p>This is a checkout of Millrace whose page has not been built yet.
Build it with <code>make setup</code>, then reload.</p>
<p>Everything else works: <a href="/api/state">/api/state</a>, <a href="/metrics">/metrics</a>,
<a href="/healthz">/healthz</a>.</p>
</html>
"""


def page(folder: Path) -> Response:
    """The page itself; it names its scripts by their content, so it alone must be asked for each time."""
    index = folder / "index.html"
    if not index.is_file():
        return HTMLResponse(_MISSING, headers={"Cache-Control": "no-store"})
    return FileResponse(index, headers={"Cache-Control": "no-cache"})


class _Files(StaticFiles):
    async def check_config(self) -> None:
        """Take a folder that does not exist for an empty one: the page may be built later."""


def files(folder: Path) -> StaticFiles:
    """What the page is made of."""
    return _Files(directory=folder, check_dir=False)


async def other(request: Request) -> Response:
    """A file beside the page (an icon), if there is one."""
    folder: Path = request.app.state.static
    beside = {one.name: one for one in folder.glob("[!.]*") if one.is_file() and not one.is_symlink()}
    found = beside.get(request.path_params["name"])
    if found is None:
        return Response("there is nothing here\n", 404, media_type="text/plain")
    return FileResponse(found)
