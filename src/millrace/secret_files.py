"""Secrets in files of their own, as Docker, Kubernetes and systemd provide them."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from millrace.errors import FileUnusable
from millrace.limited_files import read_limited_text

SUFFIX = "_FILE"
"""`NAME_FILE` names the file that holds what `NAME` would."""
_HANDED_OUT = ("/run/secrets/", "/var/run/secrets/")
"""Where containers have them: readable by all users, and there is only one."""
_LARGEST_BYTES = 1024 * 1024


def read_secret(path: str | Path) -> str:
    """Return the content of a file or pipe (at most 1 MB) without the newline at its end."""
    file = Path(path).expanduser()
    try:
        return read_limited_text(file, _LARGEST_BYTES).rstrip("\r\n")
    except UnicodeDecodeError:
        raise FileUnusable(f"the secret in {file} cannot be read", why="it is not UTF-8") from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise FileUnusable(f"the secret in {file} cannot be read", why=why, hint="check its path and rights") from None


def read_variable_or_file(name: str, environment: Mapping[str, str]) -> str | None:
    """Return the value of a variable, or the content of the file that `NAME_FILE` names; None without either."""
    if name in environment:
        return environment[name]
    file = environment.get(name + SUFFIX)
    return read_secret(file) if file else None


def exposure_warning(path: str | Path) -> str | None:
    """Return a warning if all users of this machine can read a file; else None."""
    file = Path(path).expanduser()
    try:
        readable_by_all = file.stat().st_mode & stat.S_IROTH
    except OSError:
        return None
    if not readable_by_all or str(file.absolute()).startswith(_HANDED_OUT):
        return None
    return f"all users of this machine can read {file}, which holds a secret: chmod 600 {file}"
