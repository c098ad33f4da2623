"""A Confluent-compatible schema registry, as a worker talks to it: schemas by their id, ids of schemas."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import httpx

from millrace.errors import InvalidOption, RegistryRefused, RegistryUnreachable
from millrace.formats.avro_schema import AvroSchema, InvalidAvro, read_avro

_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT = 10.0
_FIRST_BEYOND = 1 << 31
_NOT_FOUND = "404"  # a registry's own code for what it does not have starts with these digits


class UnknownSchema(Exception):
    """The registry answers, and has no schema of an id; or it has one that is of no use."""


def checked_address(text: str) -> str:
    """A URL that can be asked, without a slash at its end; never shown, as it may hold a password."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        httpx.URL(text)
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good:
        raise InvalidOption("the registry's address is not a URL", hint="write it as http://host:port")
    return text.rstrip("/")


def without_password(address: str) -> str:
    """An address as it may be shown."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


@lru_cache(maxsize=16)
def registry_at(address: str) -> Registry:
    """The registry at an address; one a process, so that each schema is fetched once."""
    return Registry(address)


class Registry:
    """Fetches and registers schemas, and caches them: the schema of an id never changes."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(checked_address(address))
        self._address = without_password(address.rstrip("/"))  # httpx logs whatever it asks for
        self._user = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        self._schemas: dict[int, AvroSchema] = {}
        self._ids: dict[tuple[str, str], int] = {}
        self._client: httpx.Client | None = None

    def schema(self, number: int) -> AvroSchema:
        """The schema of an id."""
        if not 0 < number < _FIRST_BEYOND:  # garbage; some registries fail when they are asked for it
            raise UnknownSchema(f"unknown schema id {number}")
        if number not in self._schemas:
            answer = self._ask("GET", f"/schemas/ids/{number}")
            if answer is None:
                raise UnknownSchema(f"unknown schema id {number}")
            if answer.get("schemaType", "AVRO") != "AVRO":
                raise UnknownSchema(f"schema id {number} is not Avro but {answer['schemaType']}")
            try:
                self._schemas[number] = self._read(answer)
            except InvalidAvro as error:
                raise UnknownSchema(f"schema id {number} cannot be used: {error}") from None
        return self._schemas[number]

    def register(self, subject: str, text: str) -> int:
        """The id of a schema under a subject, to which it is added if it is new."""
        if (subject, text) not in self._ids:
            answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": text})
            if answer is None or not isinstance(answer.get("id"), int):
                raise self._no_registry("it gives no id")
            self._ids[subject, text] = answer["id"]
        return self._ids[subject, text]

    def _read(self, answer: dict[str, Any]) -> AvroSchema:
        """A schema, after those that it refers to by name."""
        if not isinstance(answer.get("schema"), str):
            raise self._no_registry("it gives no schema")
        named: dict[str, Any] = {}
        for reference in answer.get("references") or []:
            subject, version = reference.get("subject", ""), reference.get("version", "latest")
            other = self._ask("GET", f"/subjects/{quote(str(subject), safe='')}/versions/{version}")
            if other is None:
                raise InvalidAvro(f"it refers to {subject}, which is not there")
            named.update(self._read(other).named)
        return read_avro(answer["schema"], named)

    def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any] | None:
        """Return the registry's answer, or None if it does not have the schema."""
        if self._client is None:
            transport = httpx.HTTPTransport(retries=2)
            headers = {"accept": _TYPE, "content-type": _TYPE}
            self._client = httpx.Client(transport=transport, timeout=_TIMEOUT, headers=headers, auth=self._user)
        try:
            content = json.dumps(body) if body else None
            response = self._client.request(method, self._address + path, content=content)
        except httpx.TransportError as error:
            raise RegistryUnreachable(
                f"the schema registry at {self._address} does not answer",
                why=f"{type(error).__name__}: {error}",
                hint="check that it runs and that its address is right; nothing is lost, run again",
            ) from None
        return self._answer(response)

    def _answer(self, response: httpx.Response) -> dict[str, Any] | None:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        problem = answer if isinstance(answer, dict) else {}
        words, code = problem.get("message"), str(problem.get("error_code"))
        if response.status_code == httpx.codes.NOT_FOUND and code.startswith(_NOT_FOUND):
            return None
        if response.status_code in (401, 403, 409, 422):
            raise RegistryRefused(
                f"the schema registry at {self._address} refuses: {response.status_code} {response.reason_phrase}",
                why=str(words)[:300] if words else None,
                hint=_HINTS.get(response.status_code),
            )
        raise self._no_registry(f"it answers {response.status_code} {words or response.reason_phrase}"[:300])

    def _no_registry(self, why: str) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"what answers at {self._address} is no schema registry, or a broken one",
            why=why,
            hint="check the address, with its path",
        )


_HINTS = {
    401: "put the user and the password in the address: http://USER:PASSWORD@host:port",
    403: "the user may not do this",
    409: "the schema is not compatible with the subject's older ones: change it, or the subject's compatibility level",
}
