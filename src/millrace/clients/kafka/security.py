"""Who we are to a Kafka cluster: its security properties made sure of, and said again as Java's clients want them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from millrace.errors import FileUnusable, InvalidOption, did_you_mean
from millrace.limited_files import read_limited_text, read_start
from millrace.pipeline.secret import Secret

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_OAUTH = "sasl.oauthbearer"
_FILES = (*(f"ssl.{name}.location" for name in ("ca", "certificate", "key", "keystore")), "https.ca.location")
_LOGIN = "org.apache.kafka.common.security"
_UNSAID = frozenset(
    {
        "https.ca.location",
        "ssl.cipher.suites",  # Java's names for them are others
        *(f"{_OAUTH}.{name}" for name in ("method", "grant.type", "client.id", "client.secret", "scope", "extensions")),
    }
)
"""What Java's clients are told otherwise, or not at all."""
_PKCS8 = re.compile(r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----")


def is_access(name: str) -> bool:
    """Whether a client property says how one is let in."""
    return name == "security.protocol" or name.startswith(("sasl.", "ssl.", "https."))


def completed_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The properties, completed where one follows from another; raises when they contradict each other."""
    made = dict(options)
    if "sasl.mechanisms" in made:  # librdkafka's other name for it
        made["sasl.mechanism"] = made.pop("sasl.mechanisms")
    protocol = made.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        hint = did_you_mean(protocol, _PROTOCOLS) or f"one of {', '.join(_PROTOCOLS)}"
        raise InvalidOption(f"there is no security.protocol {protocol!r}", hint=hint)
    _require_protocol(made, protocol)
    if "SASL" in protocol:
        _require_login(made)
    for name in _FILES:
        _require_file(name, made.get(name))
    if ("ssl.certificate.location" in made) != ("ssl.key.location" in made):
        raise InvalidOption("ssl.certificate.location and ssl.key.location go together", hint="both are PEM files")
    return made


def for_java(options: Mapping[str, str]) -> dict[str, str]:
    """The same properties in the words of Java's clients: Kafka's tools and Spark."""
    mine = {name: value for name, value in completed_properties(options).items() if name not in _UNSAID}
    mine |= _login(options, mine)
    mine |= _certificates(mine)
    if mine.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        mine["ssl.endpoint.identification.algorithm"] = ""
    return mine


def java_flags(options: Mapping[str, str]) -> list[str]:
    """What a Java of Kafka 4 must be started with: it asks only token endpoints that it was told of there."""
    url = options.get(f"{_OAUTH}.token.endpoint.url")
    return [f"-D{ALLOWED_URLS}={url}"] if url else []


def _require_protocol(options: Mapping[str, str], protocol: str) -> None:
    for start, wanted in (("sasl.", "SASL"), ("ssl.", "SSL")):
        named = next((name for name in options if name.startswith(start)), None)
        if named and wanted not in protocol and named != "ssl.endpoint.identification.algorithm":
            said = f"{named} has no effect with security.protocol={protocol}"
            better = "SASL_SSL, or to SASL_PLAINTEXT" if wanted == "SASL" else "SSL, or to SASL_SSL"
            raise InvalidOption(said, hint=f"set it to {better}")
    if options.get("enable.ssl.certificate.verification", "true").lower() in ("false", "0", "f"):
        hint = "trust its authority with ssl.ca.location; ssl.endpoint.identification.algorithm=none allows any host"
        raise InvalidOption("Spark's client always verifies certificates: it cannot be switched off", hint=hint)


def _require_login(options: dict[str, str]) -> None:
    mechanism = options.get("sasl.mechanism", "").upper()
    if mechanism not in _MECHANISMS:
        said = f"there is no sasl.mechanism {mechanism!r} here" if mechanism else "sasl.mechanism is not set"
        raise InvalidOption(said, hint=f"one of {', '.join(_MECHANISMS)}")
    options["sasl.mechanism"] = mechanism
    needed = ["sasl.username", "sasl.password"]
    if mechanism == "OAUTHBEARER":
        if options.setdefault(f"{_OAUTH}.method", "oidc").lower() != "oidc":
            raise InvalidOption(f"{_OAUTH}.method can only be oidc", hint="leave it out")
        if options.get(f"{_OAUTH}.grant.type", "client_credentials") != "client_credentials":
            raise InvalidOption(f"{_OAUTH}.grant.type can only be client_credentials", hint="leave it out")
        needed = [f"{_OAUTH}.{name}" for name in ("token.endpoint.url", "client.id", "client.secret")]
    for name in needed:
        if not options.get(name):
            raise InvalidOption(f"{mechanism} needs {name}", hint=f"{name}=${{NAME}} takes it from the environment")


def _require_file(name: str, path: str | None) -> None:
    if path is None or (name == "ssl.ca.location" and path == "probe"):
        return
    try:
        start = read_start(path, 1 << 16)
    except OSError as error:
        raise FileUnusable(f"{name} cannot be read: {path}", why=error.strerror, hint="it is a PEM file") from None
    if name != "ssl.keystore.location" and b"-----BEGIN" not in start:
        raise FileUnusable(f"{name} is no PEM file: {path}", hint="it has lines like -----BEGIN CERTIFICATE-----")


def _login(options: Mapping[str, str], mine: dict[str, str]) -> dict[str, str]:
    user, password = mine.pop("sasl.username", ""), mine.pop("sasl.password", "")
    mechanism = mine.get("sasl.mechanism", "")
    if mechanism == "OAUTHBEARER":
        handler = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
        line = _jaas("oauthbearer.OAuthBearerLoginModule", _token_options(options))
        return {"sasl.login.callback.handler.class": handler, "sasl.jaas.config": line}
    if not user:
        return {}
    module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    return {"sasl.jaas.config": _jaas(module, {"username": user, "password": password})}


def _token_options(options: Mapping[str, str]) -> dict[str, str]:
    said = {"clientId": options[f"{_OAUTH}.client.id"], "clientSecret": options[f"{_OAUTH}.client.secret"]}
    if scope := options.get(f"{_OAUTH}.scope"):
        said["scope"] = scope
    for pair in filter(None, options.get(f"{_OAUTH}.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        said[f"extension_{name.strip()}"] = value.strip()
    if authority := options.get("https.ca.location"):
        said |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return said


def _jaas(module: str, said: Mapping[str, str]) -> Secret:
    inside = " ".join(f"{name}={_quoted(value)}" for name, value in said.items())
    return Secret(f"{_LOGIN}.{module} required {inside};")


def _certificates(mine: dict[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    authority, inline = mine.pop("ssl.ca.location", None), mine.pop("ssl.ca.pem", None)
    if inline:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": inline}
    elif authority and authority != "probe":
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    chain, key = mine.pop("ssl.certificate.pem", None), mine.pop("ssl.key.pem", None)
    certificate, secret = mine.pop("ssl.certificate.location", None), mine.pop("ssl.key.location", None)
    if certificate and secret:
        chain, key = _pem(certificate), _pem(secret)
    if chain and key:
        if not _PKCS8.search(key):
            hint = "openssl pkcs8 -topk8 -in OLD -out NEW makes one of any other"
            raise FileUnusable("Spark's client needs the private key in PKCS#8 (BEGIN PRIVATE KEY)", hint=hint)
        made |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": _one_line(chain)}
        made["ssl.keystore.key"] = Secret(_one_line(key))
    if "ssl.keystore.location" in mine:
        made["ssl.keystore.type"] = "PKCS12"
    return made


def _pem(path: str) -> str:
    return read_limited_text(path)


def _one_line(pem: str) -> str:
    return pem.replace("\n", " ")


def _quoted(text: str) -> str:
    """Text as a JAAS configuration wants it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
