"""Sources that several pipelines share: `include: ../sources.yaml` in a pipeline's file.

    # sources.yaml
    sources:
      posts: {kafka: posts, schema: "id string, text string, at timestamp"}

- An included file has `sources:`, may include others, and has nothing else. A path is relative to its file.
- A file that is reached in two ways counts once; one that reaches itself is an error.
- What is wrong has the line of the file that it stands in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from millrace.errors import FileUnusable, SourceLocation
from millrace.pipeline.loading.yaml_document import Fields, Items, Node, Scalar, read_document_file
from millrace.pipeline.loading.yaml_values import Values

_ENDINGS = (".yaml", ".yml")
_KEYS = ("include", "sources")


def included_sources(file: str, include: Node, values: Values) -> list[tuple[Scalar, Node]]:
    """Return the names and definitions of all sources that a file's `include` leads to, in the order of the files."""
    return list(_Includes(values).sources(file, include, (file_identity(file),)))


def file_identity(file: str | Path) -> str:
    """Return what is the same for two paths that lead to one file; of a path that no file can have, the path."""
    try:
        return os.path.realpath(file)
    except ValueError:  # a null character
        return str(file)


class _Includes:
    def __init__(self, values: Values) -> None:
        self._values, self._report = values, values.report
        self._read: set[str] = set()
        """The files that were read, by their real paths."""

    def sources(self, file: str, include: Node, path: tuple[str, ...]) -> Iterator[tuple[Scalar, Node]]:
        """Yield the sources of the files that `include` of a file names; `path` are the files that led there."""
        for node in include.nodes if isinstance(include, Items) else (include,):
            text = self._values.text(node, "include") if isinstance(node, Scalar) else None
            if text is None:
                if not isinstance(node, Scalar):
                    self._values.wrong(node, "include", "a path, or a list of paths", "write include: ../sources.yaml")
                continue
            target = os.path.normpath(Path(file).parent / text)
            identity = file_identity(target)
            if identity in path:
                way = " -> ".join(Path(each).name for each in (*path[path.index(identity) :], identity))
                hint = "remove one of these include: lines"
                self._report("include.cycle", f"{target} includes itself: {way}", node.place, hint)
            elif identity not in self._read:
                self._read.add(identity)
                root = self._root(target, node.place)
                if root is not None:
                    yield from self._sources_of(target, root, (*path, identity))

    def _root(self, target: str, place: SourceLocation) -> Fields | None:
        """Return the mapping that an included file is, or report why it is none."""
        hint = "the path is relative to the file that has the include: line"
        if not target.endswith(_ENDINGS):
            self._report("include.unusable", f"{target} cannot be included", place, "include a .yaml or .yml file")
        elif (is_folder := os.path.isdir(target)) or not os.path.exists(target):  # noqa: PTH110, PTH112 - of any text
            what = "a folder" if is_folder else "not there"
            self._report("include.unusable", f"{target} cannot be included: it is {what}", place, hint)
        else:
            return self._mapping(target, place)
        return None

    def _mapping(self, target: str, place: SourceLocation) -> Fields | None:
        before = len(self._values.problems)
        try:
            root = read_document_file(Path(target), self._values.problems)
        except FileUnusable as error:
            self._report("include.unusable", error.message, place, "make it readable", error.why)
            return None
        if isinstance(root, Fields):
            return root
        if root is not None:
            self._values.wrong(root, "an included file", "a mapping", "begin with sources:")
        elif len(self._values.problems) == before:
            self._report("file.empty", "the included file is empty", SourceLocation(target), "it needs sources:")
        return None

    def _sources_of(self, target: str, root: Fields, path: tuple[str, ...]) -> Iterator[tuple[Scalar, Node]]:
        fields = root.by_name
        for name, (key, _) in fields.items():
            if name not in _KEYS and not name.startswith("x-"):
                hint = f"it has sources: only; {name}: stays in the pipeline's own file"
                self._report("include.key", f"an included file has no {name!r}", key.place, hint)
        if "include" in fields:
            yield from self.sources(target, fields["include"][1], path)
        if "sources" not in fields:
            return
        sources = fields["sources"][1]
        if isinstance(sources, Fields):
            yield from sources.pairs
        else:
            self._values.wrong(sources, "sources", "a mapping", "write each under its name")
