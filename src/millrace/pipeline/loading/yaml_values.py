"""What a value in a YAML file means: text, number, yes or no, list, mapping; with the environment put in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from millrace.errors import Problem, SourceLocation
from millrace.pipeline.interpolation import InterpolatedText, fill
from millrace.pipeline.loading.yaml_document import Fields, Items, Node, Scalar
from millrace.pipeline.model import UNREADABLE
from millrace.pipeline.secret import Secret, holds_password, is_secret
from millrace.secret_files import exposure_warning

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


class Values:
    """Reads values; what is wrong with them goes to `problems`."""

    def __init__(self, environment: Mapping[str, str], problems: list[Problem]) -> None:
        self._environment, self._problems = environment, problems

    @property
    def problems(self) -> list[Problem]:
        """Return what is wrong so far, for what adds to it."""
        return self._problems

    def report(
        self, condition: str, message: str, place: SourceLocation, hint: str | None = None, why: str | None = None
    ) -> None:
        """Add an error to `problems`."""
        self.add(Problem(condition, message, place, hint, why))

    def add(self, problem: Problem) -> None:
        """Add a problem to `problems`."""
        self._problems.append(problem)

    def text(self, node: Node, what: str) -> str | None:
        """A value that must be text (a number's digits are), or None."""
        if not isinstance(node, Scalar) or (node.plain and node.text in ("", "~", "null")):
            self.wrong(node, what, "text")
            return None
        filled = self._filled(node)
        return None if filled is None else filled.text

    def flag(self, node: Node, what: str) -> bool:
        """A value that must be true or false."""
        flag = self.value(node)
        if not isinstance(flag, bool) and flag is not UNREADABLE:
            self.wrong(node, what, "true or false")
        return flag is True

    def value(
        self, node: Node, name: str = "", bare: list[tuple[str, SourceLocation]] | None = None, *, inside: bool = False
    ) -> Any:
        """A value of any kind, under an option's name; `bare` takes the secrets that the file spells out."""
        if isinstance(node, Items):
            items = [self.value(item, name, bare, inside=inside) for item in node.nodes]
            return UNREADABLE if UNREADABLE in items else items
        if isinstance(node, Fields):
            below = {
                key.text: self.value(value, name if is_secret(name) else key.text, bare, inside=True)
                for key, value in node.pairs
            }
            return UNREADABLE if UNREADABLE in below.values() else below
        filled = self._filled(node)
        if filled is None:
            return UNREADABLE
        is_named_secret = is_secret(name) or holds_password(filled.text)
        if is_named_secret and filled.spelt_out and filled.text and bare is not None:
            bare.append((name, node.place))
        if is_named_secret or filled.files:
            return Secret(filled.text)
        # What comes from the environment into a mapping (Kafka's properties) may be one whatever its name.
        meaning = _meaning(filled.text) if node.plain else filled.text
        if filled.variables and inside and isinstance(meaning, str):
            return Secret(filled.text)
        return meaning

    def wrong(self, node: Node, what: str, wanted: str, hint: str | None = None) -> None:
        """A value is of another kind than it must be."""
        self.report("value.type", f"{what} must be {wanted}, not {_kind(node)}", node.place, hint)

    def _filled(self, node: Scalar) -> InterpolatedText | None:
        filled = fill(node.text, self._environment)
        for name in filled.missing if not filled.malformed else ():
            hint = f"set it, or give a default: ${{{name}:-…}}"
            self.report("env.missing", f"the environment variable {name} is not set", node.place, hint)
        if filled.malformed:
            hint = "write ${NAME}, ${NAME:-default} or ${file:PATH}; for a plain ${ write $${"
            self.report("env.syntax", "a ${ does not begin a variable's name", node.place, hint)
        for error in filled.unusable:
            self._problems.append(Problem(error.condition, error.message, node.place, error.hint, error.why))
        for file in filled.files if not filled.unusable else ():
            if open_to_all := exposure_warning(file):
                self._problems.append(Problem("secret.readable", open_to_all, node.place, severity="warning"))
        return None if filled.missing or filled.malformed or filled.unusable else filled


def node_value(node: Node) -> Any:
    """A value as it is written: nothing from the environment is put in, and nothing is a secret."""
    if isinstance(node, Items):
        return [node_value(item) for item in node.nodes]
    if isinstance(node, Fields):
        return {key.text: node_value(value) for key, value in node.pairs}
    return _meaning(node.text) if node.plain else node.text


def _meaning(text: str) -> Any:
    """What an unquoted word is, by YAML 1.2: `no` and `on` are words, `2026-01-31` is text, and so is `007`."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text) and not text.isdigit() and not math.isinf(float(text)):
        return float(text)
    return text


def _kind(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Fields):
        return "a mapping"
    kinds = {str: "text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(node_value(node)), "empty")
