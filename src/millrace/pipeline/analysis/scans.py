"""How often a query reads each source: Spark reads a source once for each time that the query's plan names it.

A table that is used twice is part of the plan twice, with all that it reads: two sources, with offsets of their own in
the checkpoint. A part of WITH that is used twice has one source, which is read twice.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from millrace.errors import InvalidSql
from millrace.pipeline.model import PipelineDef, TableDef
from millrace.pipeline.sql import defined_by, named_tables, parsed


def source_scans(pipeline: PipelineDef, name: str, *, offsets: bool = False) -> dict[str, int]:
    """Return how often each source is read for a table or source; a function's parameters count once each.

    With `offsets`, how often it is in the checkpoint.
    """
    scans: dict[str, Counter[str]] = {}
    for upstream in pipeline.upstream(name):
        table = pipeline.table(upstream)
        if table is None:
            scans[upstream.lower()] = Counter({upstream: 1})
            continue
        total: Counter[str] = Counter()
        for read, uses in _uses(table, offsets=offsets).items():
            for source, times in scans.get(read, Counter()).items():
                total[source] += uses * times
        scans[upstream.lower()] = total
    return dict(scans.get(name.lower(), Counter()))


def _uses(table: TableDef, *, offsets: bool) -> Counter[str]:
    """Return how often a table names each thing that it reads, in lower case."""
    once = Counter(read.lower() for read in table.reads)
    if table.sql is None:
        return once
    try:
        return _Names(parsed(table.sql), parts_once=offsets).uses() or once
    except InvalidSql:
        return once


class _Names:
    """The names in a query, each with the part of WITH that it stands in and that it stands for."""

    def __init__(self, tree: Any, *, parts_once: bool) -> None:
        from sqlglot import exp

        self._parts_once = parts_once
        self._parts = exp.CTE
        self._named = [table for table in named_tables(tree) if not table.db]
        self._meant = [defined_by(table) for table in self._named]
        self._times: dict[int, int] = {}

    def uses(self) -> Counter[str]:
        """Return how often names from outside are read."""
        found: Counter[str] = Counter()
        for table, part in zip(self._named, self._meant, strict=True):
            if part is None:
                found[table.name.lower()] += self._times_of(table.find_ancestor(self._parts))
        return found

    def _times_of(self, part: Any) -> int:
        """Return how often a part of WITH is computed; what stands in none is computed once."""
        if part is None:
            return 1
        if id(part) not in self._times:
            self._times[id(part)] = 1  # for a part that names itself
            users = [table for table, meant in zip(self._named, self._meant, strict=True) if meant is part]
            times = sum(self._times_of(table.find_ancestor(self._parts)) for table in users)
            self._times[id(part)] = min(times, 1) if self._parts_once else times
        return self._times[id(part)]
