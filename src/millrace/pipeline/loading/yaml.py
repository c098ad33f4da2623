"""Pipelines written in YAML, with SQL for their tables.

    name: trending
    sources:
      posts: {kafka: posts, schema: "id string, text string, at timestamp"}
    tables:
      tags: SELECT explode(regexp_extract_all(text, '#(\\w+)')) AS tag FROM posts
    sinks:
      - {from: tags, kafka: tags}

Reading continues after a mistake, so that all of them are reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from millrace.errors import InputError, InvalidDefinition, Problem, SourceLocation, did_you_mean
from millrace.pipeline import model
from millrace.pipeline.functions import FunctionDef
from millrace.pipeline.loading.functions import functions_of_file
from millrace.pipeline.loading.python import read_by
from millrace.pipeline.loading.yaml_document import Fields, FieldsByName, Items, Node, Scalar, read_document_file
from millrace.pipeline.loading.yaml_include import file_identity, included_sources
from millrace.pipeline.loading.yaml_values import Values
from millrace.pipeline.panels import KINDS
from millrace.pipeline.ranking import LATEST, TOP, ranking
from millrace.pipeline.sql import blank_lines, tidy
from millrace.units import parse_interval

KEYS = ("name", "trigger", "include", "functions", "sources", "tables", "sinks", "panels")
GENERAL = ("from", "mode", "trigger", "watermark", "static")
"""Words that every source or sink knows; of the others, one is the connector's name."""


class _RankingKeys(NamedTuple):
    """The keys of a `latest` or a `top`."""

    required: tuple[str, ...]
    others: tuple[str, ...]
    example: str


_RANKING_KEYS = {
    LATEST: _RankingKeys(("from", "by", "order"), (), "from: TABLE, by: key, order: at"),
    TOP: _RankingKeys(("from", "n", "order"), ("by", "rank"), 'from: TABLE, n: 10, by: window, order: "count DESC"'),
}
_TABLE_FORMS = ("sql", *_RANKING_KEYS)
"""How the rows of a table are described: one of these."""
_UNKNOWN_WATERMARK = model.Watermark("", 0.0)


def load_yaml(path: Path, connectors: Collection[str] = ()) -> model.PipelineDef:
    """Return the pipeline of a YAML file; raise one error with all its mistakes."""
    pipeline, problems = read_yaml(path, connectors)
    if pipeline is None or problems:
        raise InvalidDefinition.listing(str(path), problems)
    return pipeline


def read_yaml(
    path: Path, connectors: Collection[str] = (), environment: Mapping[str, str] | None = None
) -> tuple[model.PipelineDef | None, list[Problem]]:
    """What can be read of a YAML file, and what is wrong with it.

    `connectors` are names that are known to be connectors. Where none of them is a key of a source or sink, its first
    key that is no general word is taken for the connector.
    """
    problems: list[Problem] = []
    root = read_document_file(path, problems)
    if root is None:
        empty = Problem("file.empty", "the file is empty", SourceLocation(str(path)), "it needs name, sources …")
        return None, problems or [empty]
    values = Values(os.environ if environment is None else environment, problems)
    return _Form(str(path), values, connectors).pipeline(root), problems


class _Form:
    """A document read as a pipeline."""

    def __init__(self, file: str, values: Values, connectors: Collection[str]) -> None:
        self._file, self._values, self._connectors = file, values, connectors
        self._report = values.report

    def pipeline(self, root: Node) -> model.PipelineDef | None:
        fields = self._fields(root, "a pipeline", hint="begin with name: and sources:")
        if fields is None:
            return None
        if "tests" in fields and "sources" not in fields:
            hint = "millrace test runs them; name the pipeline that stands beside it"
            self._report("key.unknown", "these are tests, not a pipeline", fields["tests"][0].place, hint)
            return None
        self._refuse_unknown(fields, KEYS, "a pipeline")
        place = SourceLocation(self._file, 1)
        if "name" not in fields:
            self._report("key.missing", "the pipeline has no name", place, "add name: my_pipeline")
        key, name = fields.get("name", (None, None))
        own = tuple(starmap(self._source, self._named(fields, "sources")))
        tables = tuple(starmap(self._table, self._whole(self._named(fields, "tables"))))
        sinks = tuple(starmap(self._sink, self._listed(fields, "sinks")))
        panels = tuple(starmap(self._panel, self._listed(fields, "panels")))
        taken = {read.lower() for table in tables for read in table.reads}
        taken |= {name.lower() for name in (*(sink.table for sink in sinks), *(panel.table for panel in panels))}
        return model.PipelineDef(
            (name and self._values.text(name, "name")) or "",
            (*own, *self._included(fields, own, taken, {table.name.lower() for table in tables})),
            tables,
            sinks,
            panels,
            self._trigger(fields) or model.FASTEST,
            key.place if key else place,
            tuple(self._functions(fields)),
        ).linked()

    def _included(
        self, fields: FieldsByName, own: tuple[model.SourceDef, ...], taken: set[str], tables: set[str]
    ) -> Iterator[model.SourceDef]:
        """Read the sources of included files that something takes, or seems to; the others are for other pipelines."""
        if "include" not in fields:
            return
        first = {source.name.lower(): source.place for source in own}
        shared: dict[str, tuple[Scalar, Node]] = {}
        for key, node in included_sources(self._file, fields["include"][1], self._values):
            name = key.text.lower()
            if name in first:
                why, hint = f"a source of this name is in {first[name]}", "rename one of them, or remove it"
                self._report("name.duplicate", f"{key.text!r} is the name of two sources", key.place, hint, why)
            else:
                first[name], shared[name] = key.place, (key, node)
        for unknown in taken - tables - first.keys():  # so that the error can say which was meant
            taken = {*taken, *get_close_matches(unknown, shared, n=1, cutoff=0.6)}
        for name, (key, node) in shared.items():
            if name in taken:
                yield replace(self._source(key, node), included=True)

    def _functions(self, fields: FieldsByName) -> Iterator[FunctionDef]:
        """The functions of the files that are named, by their paths from the pipeline's file."""
        if "functions" not in fields or _is_empty(fields["functions"][1]):
            return
        node = fields["functions"][1]
        files: set[str] = set()
        for item in node.nodes if isinstance(node, Items) else (node,):
            name = self._values.text(item, "functions")
            if name == "":
                self._values.wrong(item, "functions", "a file, or a list of files", "write functions: ./udf.py")
            elif name is not None and (file := file_identity(Path(self._file).parent / name)) not in files:
                files.add(file)
                functions, problems = functions_of_file(Path(self._file).parent / name, item.place)
                for problem in problems:
                    self._values.add(problem)
                yield from functions

    def _source(self, key: Scalar, node: Node) -> model.SourceDef:
        fields = self._fields(node, f"source {key.text!r}", hint="write {kafka: topic, schema: …}") or {}
        static = "static" in fields and self._values.flag(fields["static"][1], "static")
        connection = self._connection(fields, key.place, ("watermark", "static"), f"source {key.text!r}")
        return model.SourceDef(key.text, connection, self._watermark(fields), static, key.place)

    def _table(self, key: Scalar, node: Node) -> model.TableDef:
        what = f"table {key.text!r}"
        if isinstance(node, Scalar):
            return self._sql_table(key, node, what, None)
        fields = self._fields(node, what, hint="write SQL, or sql: and watermark:") or {}
        known = (*_TABLE_FORMS, "watermark")
        pieces = [name for name, (_, value) in fields.items() if name not in known and _is_empty(value)]
        sql = fields["sql"][1] if "sql" in fields else None
        if pieces and isinstance(sql, Scalar) and sql.plain:
            self._refuse_commas(key, sql, pieces, "sql")
            return model.TableDef(key.text, (), watermark=self._watermark(fields), place=key.place)
        self._refuse_unknown(fields, known, what)
        watermark = self._watermark(fields)
        forms = [name for name in fields if name in _TABLE_FORMS]
        for other in forms[1:]:
            hint = f"make two tables: one takes its rows from: {key.text}"
            self._report("key.unknown", f"{what} has {forms[0]} already", fields[other][0].place, hint)
        if "sql" in forms[:1]:
            return self._sql_table(key, fields["sql"][1], what, watermark)
        if forms:
            return self._ranking_table(key, *fields[forms[0]], watermark)
        if fields:
            self._report("key.missing", f"{what} has no SQL", key.place, "add sql: SELECT …")
        return model.TableDef(key.text, (), watermark=watermark, place=key.place)

    def _whole(self, tables: list[tuple[Scalar, Node]]) -> list[tuple[Scalar, Node]]:
        """The tables without those that are pieces of the SQL before, whose commas divide it inside { }."""
        whole: list[tuple[Scalar, Node]] = []
        pieces: list[str] = []
        for key, node in reversed(tables):
            if _is_empty(node) and not key.text.isidentifier():
                pieces.insert(0, key.text)
                continue
            if pieces and isinstance(node, Scalar) and node.plain:
                self._refuse_commas(key, node, pieces, key.text)
            whole.insert(0, (key, Fields((), node.place) if pieces else node))
            pieces = []
        return whole

    def _refuse_commas(self, key: Scalar, node: Scalar, pieces: list[str], name: str) -> None:
        """Report SQL in a mapping in { } whose commas are taken for those of the mapping."""
        message = f"the SQL of table {key.text!r} ends at its first comma: inside {{ }} a comma begins the next key"
        quoted = f'{{{name}: "{", ".join([node.text, *pieces])}"}}'
        hint = f"put it in quotes, as {quoted}, or below {name}: | in lines of its own"
        self._report("sql.comma", message, node.place, hint)

    def _ranking_table(
        self, key: Scalar, form: Scalar, node: Node, watermark: model.Watermark | None
    ) -> model.TableDef:
        """A table of the newest or the best rows of another."""
        what, kind = f"{form.text} of table {key.text!r}", form.text
        wanted = _RANKING_KEYS[kind]
        fields = self._fields(node, what, hint=f"write {kind}: {{{wanted.example}}}") or {}
        self._refuse_unknown(fields, (*wanted.required, *wanted.others), what)
        missing = [name for name in wanted.required if name not in fields] if fields else []
        for name in missing:
            hint = f"write {kind}: {{{wanted.example}}}"
            self._report("key.missing", f"{what} has no {name!r}", form.place, hint)
        source = self._from(node, fields, what) if "from" in fields else None
        given = {name: self._values.value(fields[name][1]) for name in ("by", "order", "n", "rank") if name in fields}
        places: dict[str, SourceLocation] = {name: fields[name][0].place for name in given}
        table = model.TableDef(key.text, (source,) if source else (), watermark=watermark, place=key.place)
        if not source or missing or model.UNREADABLE in given.values():
            return table
        try:
            rows = ranking(kind, given.pop("by", ()), given.pop("order"), places=places, **given)
        except InvalidDefinition as error:
            place = error.place or form.place
            self._values.add(Problem("ranking.invalid", f"{what}: {error.message}", place, error.hint, error.why))
            return table
        return model.ranking_table(key.text, source, rows, watermark, key.place, form.place)

    def _sql_table(self, key: Scalar, node: Node, what: str, watermark: model.Watermark | None) -> model.TableDef:
        text = self._values.text(node, f"the SQL of {what}")
        if text is None or not isinstance(node, Scalar):
            return model.TableDef(key.text, (), watermark=watermark, place=key.place)
        begins = node.begins or node.place
        if node.marks is None and begins.line is not None:
            begins = SourceLocation(begins.file, begins.line + blank_lines(text))
        query = tidy(text)
        return model.TableDef(key.text, read_by(query), query, None, watermark, key.place, begins, node.marks)

    def _sink(self, node: Node, fields: FieldsByName) -> model.SinkDef:
        connection = self._connection(fields, node.place, ("from", "mode", "trigger"), "the sink")
        mode = self._values.text(fields["mode"][1], "mode") or "" if "mode" in fields else "append"
        return model.SinkDef(self._from(node, fields, "a sink"), connection, mode, self._trigger(fields), node.place)

    def _panel(self, node: Node, fields: FieldsByName) -> model.Panel:
        kinds = [name for name in fields if name != "from"]
        kind = next((name for name in kinds if name in model.PANELS), kinds[0] if kinds else "")
        table = self._from(node, fields, "a panel")
        if not kind:
            hint = f"add one of: {', '.join(model.PANELS)}"
            self._report("key.missing", "a panel says what it shows", node.place, hint)
            return model.Panel(table, "", (), node.place)
        self._refuse_beside(fields, kind)
        key, options = fields[kind]
        pairs = options.pairs if isinstance(options, Fields) else ()
        given = {name.text: self._values.value(value) for name, value in pairs}
        if not isinstance(options, Fields) and not _is_empty(options):
            given = {"": model.UNREADABLE}
            self._values.wrong(options, kind, "a mapping", f"write {_example(kind, options)}")
        places = {name.text: name.place for name, _ in pairs}
        return model.Panel(table, kind, model.freeze(given), key.place, places)

    def _refuse_beside(self, fields: FieldsByName, kind: str) -> None:
        """What stands beside a panel's kind, and belongs into it or into a panel of its own."""
        inside = KINDS[kind].options if kind in KINDS else ()
        for name, (key, _) in fields.items():
            if name in ("from", kind) or name.startswith("x-"):
                continue
            hint = did_you_mean(name, ("from", kind))
            if name in KINDS:
                hint = f"a panel is of one kind: begin another with - from: …, and {name}: below it"
            elif any(option.name == name for option in inside):
                hint = f"put it into {kind}: {kind}: {{{name}: …}}"
            self._report("key.unknown", f"a panel has no {name!r}", key.place, hint)

    def _connection(
        self, fields: FieldsByName, place: SourceLocation, general: tuple[str, ...], what: str
    ) -> model.Connection:
        chosen = self._connector(list(fields))
        if chosen is None:
            if fields or what == "the sink":
                self._report("connector.missing", f"{what} names no connector", place, "add one as kafka: topic")
            return model.connection("", place=place)
        bare: list[tuple[str, SourceLocation]] = []
        options = {
            name: self._values.value(node, name, bare)
            for name, (_, node) in fields.items()
            if name != chosen and name not in general
        }
        key, node = fields[chosen]
        argument = self._values.value(node, "", bare)
        return model.connection(
            chosen,
            None if argument == {} else argument,
            options,
            place=key.place,
            places={name: option.place for name, (option, _) in fields.items()},
            bare=tuple(bare),
        )

    def _connector(self, keys: list[str]) -> str | None:
        """The key that names the connector: a known one, else the first that is no general word."""
        others = [key for key in keys if key not in GENERAL]
        connectors = [key for key in others if key in self._connectors or key.endswith(".py")]
        return next(iter(connectors or others), None)

    def _watermark(self, fields: FieldsByName) -> model.Watermark | None:
        if "watermark" not in fields:
            return None
        node = fields["watermark"][1]
        if not isinstance(node, Items) or len(node.nodes) != 2:
            self._values.wrong(node, "watermark", "a column and a delay", "write [at, 10 seconds]")
            return _UNKNOWN_WATERMARK
        column, delay = (self._values.text(part, "watermark") for part in node.nodes)
        try:
            if column is not None and delay is not None:
                return model.Watermark(column, parse_interval(delay))
        except InputError as error:
            self._report("watermark.invalid", f"the watermark's delay: {error.message}", node.place, error.hint)
        return _UNKNOWN_WATERMARK

    def _trigger(self, fields: FieldsByName) -> model.Trigger | None:
        if "trigger" not in fields:
            return None
        node = fields["trigger"][1]
        text = self._values.text(node, "trigger")
        try:
            return model.parse_trigger(text) if text else None
        except InputError as error:
            self._report("trigger.invalid", error.message, node.place, error.hint)
            return None

    def _from(self, node: Node, fields: FieldsByName, what: str) -> str:
        if "from" in fields:
            value = fields["from"][1]
            table = self._values.text(value, "from")
            if table == "":
                self._report("key.missing", f"{what} has an empty 'from'", value.place, "name a source or a table")
            return table or ""
        self._report("key.missing", f"{what} says what it takes", node.place, "add from: TABLE")
        return ""

    def _named(self, fields: FieldsByName, key: str) -> list[tuple[Scalar, Node]]:
        """The pairs of a mapping of names; an empty value is none of them."""
        if key not in fields or _is_empty(fields[key][1]):
            return []
        named = self._fields(fields[key][1], key, hint="write each under its name")
        return list(named.values()) if named else []

    def _listed(self, fields: FieldsByName, key: str) -> list[tuple[Node, Any]]:
        """The mappings of a list."""
        if key not in fields or _is_empty(fields[key][1]):
            return []
        node = fields[key][1]
        if not isinstance(node, Items):
            self._values.wrong(node, key, "a list", "begin each with a dash: - {from: …}")
            return []
        return [(item, self._fields(item, f"each of {key}", hint="write {from: …}") or {}) for item in node.nodes]

    def _fields(self, node: Node, what: str, hint: str) -> FieldsByName | None:
        if isinstance(node, Fields):
            return node.by_name
        self._values.wrong(node, what, "a mapping", hint)
        return None

    def _refuse_unknown(self, fields: FieldsByName, known: tuple[str, ...], what: str) -> None:
        for name, (key, _) in fields.items():
            if name not in known and not name.startswith("x-"):  # x-…: a place for what others refer to by *alias
                self._report("key.unknown", f"{what} has no {name!r}", key.place, did_you_mean(name, known))


def _example(kind: str, given: Node) -> str:
    """A panel of a kind as it may have been meant."""
    word = given.text if isinstance(given, Scalar) and given.text.isidentifier() else "…"
    options = KINDS[kind].options if kind in KINDS else ()
    needed = [option for option in options if option.required] or options[:1]
    first, *others = [option.name for option in needed] or ["value"]
    listed = f"[{word}]" if options and options[0].takes == "columns" else word
    return f"{kind}: {{{', '.join([f'{first}: {listed}', *(f'{name}: …' for name in others)])}}}"


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and node.text in ("", "~", "null")
