"""Spark's DDL for columns, read from sqlglot's tokens so that a mistake has its line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from millrace.errors import InvalidSchema, did_you_mean
from millrace.pipeline.schema import SIMPLE, Array, Decimal, Field, Map, Schema, Simple, Struct, Type

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_DECIMALS = ("decimal", "dec", "numeric")
_REFUSED = {
    "variant": "declare the fields that are needed, or take the whole text as string",
    "varchar": "use string",
    "char": "use string",
    "character": "use string",
    "text": "use string",
    "void": "leave the column out",
    "interval": "use string",
    "datetime": "use timestamp",
    "json": "declare its fields as struct<…>, or use string",
    "uuid": "use string",
}
_KNOWN = (*SIMPLE, *_ALIASES, *_DECIMALS, "array", "map", "struct")
_WORD = re.compile(r"\w+")
_MAX_DIGITS = 38
_MAX_DEPTH = 50


class Token(NamedTuple):
    """A piece of the text."""

    kind: str
    text: str
    start: int

    def __str__(self) -> str:
        return repr(self.text) if self.kind != "END" else "the end"


def parse_ddl(text: str) -> Schema:
    """The schema that a DDL text describes."""
    return _Parser(text).schema()


class _Parser:
    """Reads the tokens once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._tokenized(text)
        self._next = 0
        self._depth = 0

    def schema(self) -> Schema:
        """All of the text, as columns: bare, or within `struct<…>` as Spark prints them."""
        if self._now().kind == "END":
            self._fail("the schema is empty", self._now(), hint="for example: id string, at timestamp")
        if self._now().text.lower() == "struct" and self._after().text == "<":
            whole = self._type()
            fields = whole.fields if isinstance(whole, Struct) else ()
        else:
            fields = self._fields()
        if self._now().kind != "END":
            self._fail(f"expected a comma or the end, got {self._now()}", self._now())
        return Schema(fields)

    def _fields(self) -> tuple[Field, ...]:
        fields: dict[str, Field] = {}
        while True:
            start = self._now()
            field = self._field()
            twin = fields.setdefault(field.name.lower(), field)
            if twin is not field:
                why = None if twin.name == field.name else f"Spark takes {twin.name!r} and {field.name!r} for one name"
                self._fail(f"column {field.name!r} is there twice", start, why=why)
            if not self._take(","):
                return tuple(fields.values())

    def _field(self) -> Field:
        name = self._name()
        self._take(":")
        kind = self._type(name)
        nullable = True
        while True:
            if self._take("not"):
                self._expect("null")
                nullable = False
            elif self._take("comment"):
                self._comment()
            else:
                return Field(name, kind, nullable)

    def _name(self) -> str:
        token = self._now()
        if token.kind == "IDENTIFIER" and token.text:
            return self._advance().text
        if not _WORD.fullmatch(token.text) or token.kind in ("STRING", "NUMBER"):
            hint = "a name with other signs stands in `backticks`"
            self._fail(f"expected a column's name, got {token}", token, hint=hint)
        follows = self._after()
        if follows.text in (".", "-") or follows.kind == "DCOLON":
            self._fail(f"unexpected {follows} in a name", follows, hint="write such a name in `backticks`")
        return self._advance().text

    def _type(self, column: str | None = None) -> Type:
        token = self._now()
        if token.kind == "END" or token.text in (",", ">"):
            what = f"column {column!r} has no type" if column else f"expected a type, got {token}"
            self._fail(what, token, hint=f"for example: {column or 'id'} string")
        if not _WORD.fullmatch(token.text) or token.kind in ("IDENTIFIER", "STRING", "NUMBER"):
            self._fail(f"expected a type, got {token}", token)
        self._advance()
        word = token.text.lower()
        name = _ALIASES.get(word, word)
        if name in SIMPLE:
            return Simple(name)
        if name in _DECIMALS:
            return self._decimal()
        nested: dict[str, Callable[[], Type]] = {
            "array": lambda: Array(self._type()),
            "map": self._map,
            "struct": lambda: Struct(self._fields()),
        }
        return self._nested(nested[name], token) if name in nested else self._unknown(token, word)

    def _unknown(self, token: Token, word: str) -> NoReturn:
        if word in _REFUSED:
            self._fail(f"the type {word} is not supported", token, hint=_REFUSED[word])
        self._fail(f"there is no type named {token.text!r}", token, hint=did_you_mean(word, _KNOWN))

    def _decimal(self) -> Decimal:
        if not self._take("("):
            return Decimal()
        start = self._now()
        precision = self._digits()
        scale = self._digits() if self._take(",") else 0
        self._expect(")")
        if not 1 <= precision <= _MAX_DIGITS:
            self._fail(f"a decimal has 1 to {_MAX_DIGITS} digits, not {precision}", start)
        if scale > precision:
            self._fail(f"{scale} digits after the point of {precision} in all", start)
        return Decimal(precision, scale)

    def _digits(self) -> int:
        token = self._now()
        if not re.fullmatch(r"[0-9]{1,9}", token.text):
            self._fail(f"expected a number of digits, got {token}", token, hint="for example: decimal(10,2)")
        return int(self._advance().text)

    def _nested(self, read: Callable[[], Type], start: Token) -> Type:
        if self._now().text == "<>":
            self._fail(f"{start.text} of nothing", start)
        self._expect("<", after=start.text)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"types are nested more than {_MAX_DEPTH} deep", start)
        nested = read()
        self._depth -= 1
        self._expect(">")
        return nested

    def _map(self) -> Map:
        start = self._now()
        key = self._type()
        if isinstance(key, Map):
            self._fail("a map cannot be the key of a map", start)
        self._expect(",")
        return Map(key, self._type())

    def _comment(self) -> None:
        if self._now().kind != "STRING":
            self._fail(f"expected the comment's text in quotes, got {self._now()}", self._now())
        while self._now().kind == "STRING":  # 'it''s' comes as two
            self._advance()

    def _now(self) -> Token:
        return self._tokens[self._next]

    def _after(self) -> Token:
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def _advance(self) -> Token:
        token = self._now()
        self._next += 1
        return token

    def _take(self, text: str) -> bool:
        token = self._now()
        if token.kind in ("STRING", "IDENTIFIER") or token.text.lower() != text:
            return False
        self._next += 1
        return True

    def _expect(self, text: str, after: str | None = None) -> None:
        if not self._take(text):
            token = self._now()
            self._fail(f"expected {text!r}{f' after {after}' if after else ''}, got {token}", token)

    def _tokenized(self, text: str) -> list[Token]:
        try:
            tokens = Spark().tokenize(text)
        except TokenError:
            start = max(text.rfind("'"), text.rfind("`"), text.rfind('"'), 0)
            self._fail("a quote is not closed", Token("STRING", "", start))
        end = Token("END", "", len(text))
        return [*(Token(token.token_type.name, token.text, token.start) for token in tokens), end]

    def _fail(self, message: str, token: Token, *, why: str | None = None, hint: str | None = None) -> NoReturn:
        before = self._text[: token.start]
        line, column = before.count("\n") + 1, token.start - (before.rfind("\n") + 1) + 1
        where = f"column {column}" if "\n" not in self._text.strip() and line == 1 else f"line {line}, column {column}"
        mistake = InvalidSchema(f"{message} (at {where} of the schema)", why=why, hint=hint)
        mistake.line, mistake.column = line, column
        raise mistake
