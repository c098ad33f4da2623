"""`${NAME}`, `${NAME:-default}` and `${file:PATH}` in a file's values; `$${` is a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from millrace.errors import FileUnusable
from millrace.secret_files import read_secret, read_variable_or_file

_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{file:(?P<file>[^{}]+)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<or>:-(?P<default>[^{}]*))?\}"
    r"|\$\{"
)


@dataclass(frozen=True)
class InterpolatedText:
    """A text after interpolation."""

    text: str
    from_environment: bool = False
    """Whether a part of it came from the environment."""
    spelt_out: bool = True
    """Whether the file itself holds the value, be it as a default."""
    missing: tuple[str, ...] = ()
    malformed: bool = False
    files: tuple[str, ...] = ()
    """Files that a part of it came from: it is a secret then."""
    unusable: tuple[FileUnusable, ...] = ()


def fill(text: str, environment: Mapping[str, str]) -> InterpolatedText:
    """A text with what it refers to. As in a shell, a default also stands in for a variable that is empty."""
    if "${" not in text:
        return InterpolatedText(text)
    references = _References(environment)
    filled = _REFERENCE.sub(references.put, text)
    refers = bool(
        references.names or references.missing or references.defaults or references.files or references.unusable
    )
    return InterpolatedText(
        filled,
        bool(references.names),
        not refers or any(references.defaults),
        tuple(dict.fromkeys(references.missing)),
        references.malformed,
        tuple(references.files),
        tuple(references.unusable),
    )


@dataclass
class _References:
    """What the references of one text led to."""

    environment: Mapping[str, str]
    names: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    unusable: list[FileUnusable] = field(default_factory=list)
    malformed: bool = False

    def put(self, reference: re.Match[str]) -> str:
        """The text that stands for a reference."""
        try:
            if reference["file"] is not None:
                self.files.append(reference["file"])
                return read_secret(reference["file"])
            return self._variable(reference)
        except FileUnusable as error:
            self.unusable.append(error)
            return ""

    def _variable(self, reference: re.Match[str]) -> str:
        name, default = reference["name"], reference["default"]
        if name is None:
            self.malformed = self.malformed or reference[0] == "${"
            return "${"
        value = read_variable_or_file(name, self.environment)
        if default is not None:
            self.defaults.append(default)
            value = value or None
        if value is not None:
            self.names.append(name)
            return value
        if default is None:
            self.missing.append(name)
        return default or ""
