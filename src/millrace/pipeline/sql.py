"""SQL as far as a pipeline must understand it without Spark: what a query reads, and whether it parses."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from os.path import commonprefix
from typing import Any

from millrace.errors import InvalidSql
from millrace.pipeline.spark_functions import spark_functions, window_form
from millrace.pipeline.spark_intervals import duration_text

_CALL = "millrace_call"
_INTERVAL = "millrace_interval"
_INTERVAL_POSITION = "millrace_interval_position"
_PLUS = "millrace_plus"
_SET_OPERATORS = ("UNION", "EXCEPT", "INTERSECT")
_NAMES = ("VAR", "IDENTIFIER", "SESSION")
_TYPES_OF_TYPES = ("ARRAY", "MAP", "STRUCT")
_NOT_AFTER_A_COMMA = ("COMMA", "FROM", "WHERE", "GROUP_BY", "ORDER_BY", "R_PAREN")


@lru_cache(maxsize=512)
def parsed(text: str) -> Any:
    """The syntax tree of one SELECT (sqlglot's, in Spark's dialect), for those who only look at it."""
    from sqlglot import errors, exp

    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tokens = _tokens(text)
        with _deeper():
            trees = [tree for tree in _parser().parse(tokens, text) if tree is not None]
        _refuse_stray_commas(tokens)
    except InvalidSql:
        raise
    except errors.ParseError as error:
        mistake = _mistake(error.errors[0] if error.errors else {}, str(error))
        mistake.hint = mistake.hint or _other_dialect_hint(tokens)
        raise mistake from None
    except errors.TokenError as error:
        raise _unfinished(error, text) from None
    except RecursionError:
        raise InvalidSql("the SQL is nested too deeply") from None
    except Exception:  # sqlglot trips over some texts that are no SQL at all
        raise InvalidSql("the SQL does not parse") from None
    if len(trees) != 1:
        raise InvalidSql(f"a table is one query, and this is {len(trees) or 'none'}")
    if not isinstance(trees[0], exp.Query):
        raise InvalidSql("a table is a query, and this is none", hint="write SELECT … FROM …")
    _refuse_incomplete(trees[0])
    return trees[0]


@dataclass(frozen=True)
class Call:
    """A function as it is called: its name as it is written, and where it stands in the SQL."""

    name: str
    line: int
    column: int


def call_of(node: Any) -> Call | None:
    """The call that a node of the syntax tree was made from; the parser itself gives many functions other names."""
    call = node.meta.get(_CALL)
    return call if isinstance(call, Call) else None


def interval_text(node: Any) -> str | None:
    """The text in quotes of an INTERVAL as it is written, of which the parser takes as much as it knows."""
    text = node.meta.get(_INTERVAL)
    return text if isinstance(text, str) else None


def interval_position(node: Any) -> tuple[int, int] | None:
    """The line and column of an INTERVAL, whose parts have none where they are literals."""
    position: tuple[int, int] | None = node.meta.get(_INTERVAL_POSITION)
    return position


def has_plus(node: Any) -> bool:
    """Whether a plus stands before an expression: `+x`, of which the parser keeps `x`."""
    return _PLUS in node.meta


@lru_cache(maxsize=1)
def _parser_class() -> type[Any]:
    from sqlglot import TokenType, exp
    from sqlglot.dialects.spark import Spark

    around = (exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup, exp.HavingMax)
    names = {name.upper() for name in spark_functions()} | {"SAFE_CAST"}  # whose `x AS int` would not parse otherwise

    base: Any = Spark.parser_class

    class Parser(base):  # type: ignore[misc]
        """Spark's parser, which remembers the names of functions and the texts of intervals.

        Functions of other engines are to it what those of the user are: a name with arguments.
        """

        FUNCTIONS = {name: build for name, build in base.FUNCTIONS.items() if name in names}  # noqa: RUF012
        FUNCTION_PARSERS = {name: parse for name, parse in base.FUNCTION_PARSERS.items() if name in names}  # noqa: RUF012

        def _parse_function_call(self, *args: Any, **kwargs: Any) -> Any:
            token, following = self._curr, self._next
            node = called = super()._parse_function_call(*args, **kwargs)
            while isinstance(called, around):
                called = called.this
            if called is not None and following is not None and following.text == "(" and _CALL not in called.meta:
                called.meta[_CALL] = Call(token.text, token.line, token.col - len(token.text) + 1)
            return node

        def _parse_unary(self, *args: Any, **kwargs: Any) -> Any:
            plus = self._curr is not None and self._curr.token_type == TokenType.PLUS
            node = super()._parse_unary(*args, **kwargs)
            if plus and node is not None:
                node.meta[_PLUS] = True
            return node

        def _parse_interval(self, *args: Any, **kwargs: Any) -> Any:
            word = self._curr if self._curr is not None and self._curr.text.upper() == "INTERVAL" else None
            text = self._next if word is not None else None
            node = first = super()._parse_interval(*args, **kwargs)
            while isinstance(first, exp.Add):
                first = first.this
            if isinstance(first, exp.Interval) and word is not None:
                first.meta[_INTERVAL_POSITION] = (word.line, word.col - len(word.text) + 1)
                if text is not None and text.token_type == TokenType.STRING:
                    first.meta[_INTERVAL] = text.text
            return node

    return Parser


def _parser() -> Any:
    from sqlglot.dialects.spark import Spark

    return _parser_class()(dialect=Spark())


def tables_read(text: str) -> tuple[str, ...]:
    """The names that a query reads, in order of appearance, without those it defines itself."""
    tables = sorted(named_tables(parsed(text)), key=lambda table: table.this.meta.get("start", 0))
    names = [table.name for table in tables if not table.db and defined_by(table) is None]
    first = {name.lower(): name for name in reversed(names)}
    return tuple(dict.fromkeys(first[name.lower()] for name in names))


def named_tables(tree: Any) -> list[Any]:
    """The tables of a query that are named in FROM or JOIN, not in a hint of a join; functions are none."""
    from sqlglot import exp

    tables = (table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier) and table.name)
    return [table for table in tables if not table.find_ancestor(exp.Hint)]


def defined_by(table: Any) -> Any:
    """The WITH part of the same query that a table's name stands for, or None when it is a name from outside."""
    inside, node = table, table.parent
    while node is not None and not table.db:
        for part in reversed(_visible(node, inside)):
            if part.alias_or_name.lower() == table.name.lower():
                return part
        inside, node = node, node.parent
    return None


def _visible(node: Any, inside: Any) -> list[Any]:
    """The parts of a node's WITH that may be named inside one of its other children."""
    from sqlglot import exp

    if isinstance(node, exp.With):
        parts = list(node.expressions)
        before = next((number for number, part in enumerate(parts) if part is inside), 0)
        return parts[: before + 1] if node.args.get("recursive") else parts[:before]
    with_ = node.args.get("with_")
    return [] if with_ is None or with_ is inside else list(with_.expressions)


def tidy(text: str) -> str:
    """SQL as it is kept: without blank lines around it and without the indentation of the file it stands in."""
    lines = text.strip("\n").rstrip().split("\n")
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    indents = [line[: len(line) - len(line.lstrip())] for line in lines[1:] if line.strip()]
    margin = commonprefix(indents)  # noqa: RUF071 - of characters: these are no paths
    rest = [line[len(margin) :] if line.strip() else "" for line in lines[1:]]
    return "\n".join([lines[0].lstrip(), *rest])


def blank_lines(text: str) -> int:
    """How many lines stand before the first that is not blank; `tidy` leaves them out."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _mistake(about: dict[str, Any], otherwise: str) -> InvalidSql:
    text, at = str(about.get("description") or otherwise.splitlines()[0]), about.get("highlight")
    if text.startswith("Invalid expression"):
        text = f"{at!r} is not expected here"
    elif text.startswith("Required"):
        text = f"something is missing at {at!r}"
    else:  # without the parser's own names for things
        text = re.sub(r" but got .*| for <.*|<[^>]*>", "", text).rstrip(". ")
    mistake = InvalidSql(f"the SQL does not parse: {text[:1].lower()}{text[1:]}", why=_shown(about))
    mistake.line = about.get("line") or 1
    mistake.column = max((about.get("col") or 1) - len(str(at or "")) + 1, 1)
    return mistake


_WINDOW_TABLES = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


def _window_table_hint(words: list[str], first: int) -> str:
    """Return what to write instead of `TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECOND))`."""
    kind, after = words[first].upper(), range(first, len(words) - 2)
    at = next((words[number + 2] for number in after if words[number].upper() == "DESCRIPTOR"), "")
    source = next((words[number + 1] for number in after if words[number].upper() == "TABLE"), "…")
    intervals = [f"{words[number + 1]} {words[number + 2]}" for number in after if words[number].upper() == "INTERVAL"]
    durations = [duration_text(text) for text in intervals[: 1 + (kind == "HOP")]]
    time = at or (words[first + 2] if words[first + 2].isidentifier() else "at")
    window = window_form(kind.lower(), time, [text for text in durations if text] if all(durations) else ())
    if not at:
        return f"Spark has no {kind}(…): write {window}, of which .start and .end are the bounds"
    write = f"write SELECT {window} AS w, … FROM {source} GROUP BY 1, …"  # noqa: S608 - it is only shown
    return f"Spark has no TABLE({kind}(…)): {write}; w.start and w.end are its bounds"


def _other_dialect_hint(tokens: list[Any]) -> str | None:
    """What to write instead of a form that only another streaming SQL has."""
    texts = [token.text for token in tokens]
    for number in range(len(texts) - 2):
        if texts[number].upper() in _WINDOW_TABLES and texts[number + 1] == "(":
            return _window_table_hint(texts, number)
    words = {text.upper() for text in texts}
    if {"MATCH_RECOGNIZE"} & words:
        return "Spark has no MATCH_RECOGNIZE: keep the state in a Python table with transformWithStateInPandas"
    if {"EMIT", "CHANGES"} <= words:
        return "leave EMIT CHANGES out: the sink's mode says when a row is written, as mode: update"
    return None


def _unfinished(error: Exception, text: str) -> InvalidSql:
    """A quote or a comment that does not end; the tokenizer reports at which character it begins."""
    mistake = InvalidSql("the SQL does not parse: a quote or a comment does not end")
    if match := re.search(r"Missing (.+) from \d+:(\d+)", str(error.__cause__ or error).splitlines()[0]):
        before = text[: int(match[2])]
        mistake.why = f"the closing {match[1]} is missing"
        mistake.line, mistake.column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return mistake


@contextmanager
def _deeper() -> Iterator[None]:
    """Room for the parser, which takes some twenty calls for each level of brackets."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 5000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _tokens(text: str) -> list[Any]:
    """The words of a query, with those changed that the parser takes otherwise than Spark.

    `window` is a function, unless `WINDOW name AS` follows. `TABLE a` is a query; `a >>> b` shifts as `a >> b` does.
    """
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    tokens: list[Any] = []
    written = Spark().tokenize(text)
    kinds = ["", "", *(token.token_type.name for token in written), ""]
    open_types = 0
    for number, token in enumerate(written, 2):
        before, kind = kinds[number - 1], kinds[number]
        open_types += kind == "LT" and before in _TYPES_OF_TYPES
        if kind == "GT" and open_types:
            open_types -= 1
            kinds[number] = "END_OF_TYPE"
        if kind == "TABLE" and _starts_query(kinds[number - 2], before, kinds[number + 1]):
            words = Spark().tokenize("SELECT * FROM")
            for word in words:
                word.line, word.col, word.start, word.end = token.line, token.col, token.start, token.end
            tokens += words
        else:
            is_third = kinds[number - 2 : number + 1] == ["GT"] * 3 and token.start == tokens[-2].end + 2
            tokens[len(tokens) - is_third :] = [token]
    for number, token in enumerate(tokens):
        clause = [after.text.upper() for after in tokens[number + 2 : number + 3]] == ["AS"]
        if token.token_type == TokenType.WINDOW and not clause:
            token.token_type = TokenType.VAR
    return tokens


def _starts_query(second: str, before: str, after: str) -> bool:
    """Return whether TABLE is a query, and no column or argument, by the kinds of the words around it."""
    if before in ("ALL", "DISTINCT"):
        return second in _SET_OPERATORS
    in_brackets = before == "L_PAREN" and second not in _NAMES
    return before in ("", *_SET_OPERATORS) or ((in_brackets or before == "R_PAREN") and after in _NAMES)


def _refuse_stray_commas(tokens: list[Any]) -> None:
    """The parser lets `SELECT a, FROM b` pass; Spark does not."""
    for token, following in pairwise(tokens):
        if token.token_type.name == "COMMA" and following.token_type.name in _NOT_AFTER_A_COMMA:
            mistake = InvalidSql(f"the SQL does not parse: {following.text!r} cannot follow a comma")
            mistake.line, mistake.column = token.line, token.col
            raise mistake


def _refuse_incomplete(tree: Any) -> None:
    """The parser lets `SELECT FROM b` and `LATERAL .x` pass; Spark does not."""
    from sqlglot import exp

    if not all(select.expressions for select in tree.find_all(exp.Select)):
        raise InvalidSql("a SELECT has no columns", hint="write SELECT * FROM …, or name the columns")
    if not all(dot.args.get("this") for dot in tree.find_all(exp.Dot)):
        raise InvalidSql("the SQL does not parse: nothing stands before a dot")


def _shown(about: dict[str, Any]) -> str | None:
    highlight = about.get("highlight")
    if not highlight:
        return None
    before = str(about.get("start_context") or "").splitlines()[-1:] or [""]
    after = str(about.get("end_context") or "").splitlines()[:1] or [""]
    return f"near {before[0][-30:]}>>>{highlight}<<<{after[0][:30]}"
