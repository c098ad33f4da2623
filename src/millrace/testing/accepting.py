"""Expectations are written anew where they stand: what came becomes what is expected; all else in the file is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
import yaml

from millrace.drafts import write_whole
from millrace.testing.cases import Expected, Sheet
from millrace.testing.running import Failure, Result


def accept(results: Iterable[Result]) -> list[Path]:
    """Write what came in the place of what was expected and did not; the files that were changed."""
    wanted: dict[Path, dict[tuple[str | int, ...], Failure]] = {}
    changed: dict[Path, None] = {}
    for result in results:
        for one in result.failures:
            if one.expected is None:
                continue
            file = _own_file(result.sheet, one.expected)
            if file is None:
                wanted.setdefault(result.sheet.file, {}).setdefault(
                    one.expected.path, one
                )  # of two pipelines, the first
            elif file not in changed:
                write_whole(file, b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in one.came))
                changed[file] = None
    for file, failures in wanted.items():
        write_whole(file, rewritten(file.read_text("utf-8"), failures))
        changed[file] = None
    return list(changed)


def rewritten(text: str, failures: Mapping[tuple[str | int, ...], Failure]) -> str:
    """A file's text with other values at some paths."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    edits = [_edit(root, path, _columns(one)) for path, one in failures.items()]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _own_file(sheet: Sheet, expected: Expected) -> Path | None:
    """The file of JSON that an expectation stands in, if it does."""
    named = expected.value.get("json") if isinstance(expected.value, Mapping) else None
    return sheet.file.parent / str(named) if named else None


def _columns(failure: Failure) -> Any:
    """What came, of the columns that were named; of all when none was."""
    expected = failure.expected.value if failure.expected else None
    rows = expected if isinstance(expected, list) else []
    names = list(dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row))
    if not names or not isinstance(failure.came, list):
        return failure.came
    return [{name: row.get(name) for name in names} for row in failure.came]


def _edit(root: Any, path: tuple[str | int, ...], value: Any) -> tuple[int, int, str]:
    """From where to where the file is replaced, and by what."""
    key, node, flow = None, root, False
    for part in path:
        flow = flow or bool(node.flow_style)
        if isinstance(part, int):
            node = node.value[part]
        else:
            key, node = next((name, one) for name, one in node.value if name.value == part)
    end = _end(node)
    if not isinstance(value, list) or not value:
        return node.start_mark.index, end, "[]" if value == [] else str(value)
    if flow or key is None:
        return node.start_mark.index, end, f"[{', '.join(map(_flow, value))}]"
    indent = " " * (key.start_mark.column + 2)
    return key.end_mark.index, end, ":\n" + "\n".join(f"{indent}- {_flow(row)}" for row in value)


def _end(node: Any) -> int:
    """Where the last character of a value stands: of a block, comments and lines after it are not part."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _flow(row: Any) -> str:
    """A row in one line."""
    written = yaml.safe_dump(row, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1_000_000)
    return written.removesuffix("\n").removesuffix("\n...")
