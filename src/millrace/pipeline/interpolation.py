"""`${NAME}` and `${NAME:-default}` in a file's values, from the environment; `$${` is a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^{}]*))?\}|\$\{")


@dataclass(frozen=True)
class Filled:
    """A text after interpolation."""

    text: str
    refers: bool = False
    from_environment: bool = False
    """Whether a part of it came from the environment."""
    spelt_out: bool = True
    """Whether the file itself holds the value, be it as a default."""
    missing: tuple[str, ...] = ()
    malformed: bool = False


def fill(text: str, environment: Mapping[str, str]) -> Filled:
    """A text with what it refers to. As in a shell, a default also stands in for a variable that is empty."""
    if "${" not in text:
        return Filled(text)
    found: list[str] = []
    missing: list[str] = []
    defaults: list[str] = []
    malformed = False

    def put(reference: re.Match[str]) -> str:
        nonlocal malformed
        name, default = reference["name"], reference["default"]
        if name is None:
            malformed = malformed or reference[0] == "${"
            return "${"
        value = environment.get(name)
        if default is not None:
            defaults.append(default)
            value = value or None
        if value is not None:
            found.append(name)
            return value
        if default is None:
            missing.append(name)
        return default or ""

    filled = _REFERENCE.sub(put, text)
    refers = bool(found or missing or defaults)
    return Filled(filled, refers, bool(found), not refers or any(defaults), tuple(dict.fromkeys(missing)), malformed)
