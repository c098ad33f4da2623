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


@dataclass
class InterpolatedText:
    """A text after interpolation, and what its references led to."""

    text: str
    variables: list[str] = field(default_factory=list)
    """Variables whose values are a part of it."""
    defaults: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Files that a part of it came from: it is a secret then."""
    unusable: list[FileUnusable] = field(default_factory=list)
    malformed: bool = False

    @property
    def spelt_out(self) -> bool:
        """Whether the file itself holds the value, be it as a default."""
        refers = self.variables or self.missing or self.defaults or self.files or self.unusable
        return not refers or any(self.defaults)


def fill(text: str, environment: Mapping[str, str]) -> InterpolatedText:
    """A text with what it refers to. As in a shell, a default also stands in for a variable that is empty."""
    filled = InterpolatedText(text)
    filled.text = _REFERENCE.sub(lambda reference: _value(reference, environment, filled), text)
    return filled


def _value(reference: re.Match[str], environment: Mapping[str, str], filled: InterpolatedText) -> str:
    """Return the text that stands for a reference, and note in `filled` what it is."""
    file, name, default = reference["file"], reference["name"], reference["default"]
    try:
        if file is not None:
            filled.files.append(file)
            return read_secret(file)
        if name is None:
            filled.malformed = filled.malformed or reference[0] == "${"
            return "${"
        value = read_variable_or_file(name, environment)
    except FileUnusable as error:
        filled.unusable.append(error)
        return ""
    if default is not None:
        filled.defaults.append(default)
        value = value or None
    if value is not None:
        filled.variables.append(name)
        return value
    if default is None and name not in filled.missing:
        filled.missing.append(name)
    return default or ""
