"""Security properties of Kafka clients.

- `completed_properties` checks them, and adds those that follow from others.
- `for_java` translates them for Java's clients: Kafka's tools and Spark.
"""

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
_NOT_FOR_JAVA = frozenset(
    {
        "https.ca.location",
        "ssl.cipher.suites",  # Java has other names for them
        *(f"{_OAUTH}.{name}" for name in ("method", "grant.type", "client.id", "client.secret", "scope", "extensions")),
    }
)
"""Properties that Java's clients have under other names, or not at all."""
_PKCS8 = re.compile(r"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----")


def is_access(name: str) -> bool:
    """Return whether a client property is one of access."""
    return name == "security.protocol" or name.startswith(("sasl.", "ssl.", "https."))


def completed_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with those that follow from others; raise InvalidOption if they contradict each other."""
    properties = dict(options)
    if "sasl.mechanisms" in properties:  # librdkafka's other name for it
        properties["sasl.mechanism"] = properties.pop("sasl.mechanisms")
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        hint = did_you_mean(protocol, _PROTOCOLS) or f"one of {', '.join(_PROTOCOLS)}"
        raise InvalidOption(f"there is no security.protocol {protocol!r}", hint=hint)
    _require_protocol(properties, protocol)
    if "SASL" in protocol:
        _require_login(properties)
    for name in _FILES:
        _require_file(name, properties.get(name))
    if ("ssl.certificate.location" in properties) != ("ssl.key.location" in properties):
        raise InvalidOption("ssl.certificate.location and ssl.key.location go together", hint="both are PEM files")
    return properties


def for_java(options: Mapping[str, str]) -> dict[str, str]:
    """Return the same properties with the names of Java's clients."""
    java = {name: value for name, value in completed_properties(options).items() if name not in _NOT_FOR_JAVA}
    java |= _login(options, java)
    java |= _certificates(java)
    if java.get("ssl.endpoint.identification.algorithm", "").lower() == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return java


def java_flags(options: Mapping[str, str]) -> list[str]:
    """Return the flags for a JVM with Kafka 4, which only uses token endpoints that are listed there."""
    url = options.get(f"{_OAUTH}.token.endpoint.url")
    return [f"-D{ALLOWED_URLS}={url}"] if url else []


def _require_protocol(options: Mapping[str, str], protocol: str) -> None:
    for start, wanted in (("sasl.", "SASL"), ("ssl.", "SSL")):
        named = next((name for name in options if name.startswith(start)), None)
        if named and wanted not in protocol and named != "ssl.endpoint.identification.algorithm":
            text = f"{named} has no effect with security.protocol={protocol}"
            better = "SASL_SSL, or to SASL_PLAINTEXT" if wanted == "SASL" else "SSL, or to SASL_SSL"
            raise InvalidOption(text, hint=f"set it to {better}")
    if options.get("enable.ssl.certificate.verification", "true").lower() in ("false", "0", "f"):
        hint = "trust its authority with ssl.ca.location; ssl.endpoint.identification.algorithm=none allows any host"
        raise InvalidOption("Spark's client always verifies certificates: it cannot be switched off", hint=hint)


def _require_login(options: dict[str, str]) -> None:
    mechanism = options.get("sasl.mechanism", "").upper()
    if mechanism not in _MECHANISMS:
        text = f"there is no sasl.mechanism {mechanism!r} here" if mechanism else "sasl.mechanism is not set"
        raise InvalidOption(text, hint=f"one of {', '.join(_MECHANISMS)}")
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


def _login(options: Mapping[str, str], java: dict[str, str]) -> dict[str, str]:
    user, password = java.pop("sasl.username", ""), java.pop("sasl.password", "")
    mechanism = java.get("sasl.mechanism", "")
    if mechanism == "OAUTHBEARER":
        handler = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"
        line = _jaas("oauthbearer.OAuthBearerLoginModule", _token_options(options))
        return {"sasl.login.callback.handler.class": handler, "sasl.jaas.config": line}
    if not user:
        return {}
    module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    return {"sasl.jaas.config": _jaas(module, {"username": user, "password": password})}


def _token_options(options: Mapping[str, str]) -> dict[str, str]:
    text = {"clientId": options[f"{_OAUTH}.client.id"], "clientSecret": options[f"{_OAUTH}.client.secret"]}
    if scope := options.get(f"{_OAUTH}.scope"):
        text["scope"] = scope
    for pair in filter(None, options.get(f"{_OAUTH}.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        text[f"extension_{name.strip()}"] = value.strip()
    if authority := options.get("https.ca.location"):
        text |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return text


def _jaas(module: str, text: Mapping[str, str]) -> Secret:
    inside = " ".join(f"{name}={_quoted(value)}" for name, value in text.items())
    return Secret(f"{_LOGIN}.{module} required {inside};")


def _certificates(java: dict[str, str]) -> dict[str, str]:
    properties: dict[str, str] = {}
    authority, inline = java.pop("ssl.ca.location", None), java.pop("ssl.ca.pem", None)
    if inline:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": inline}
    elif authority and authority != "probe":
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    chain, key = java.pop("ssl.certificate.pem", None), java.pop("ssl.key.pem", None)
    certificate, secret = java.pop("ssl.certificate.location", None), java.pop("ssl.key.location", None)
    if certificate and secret:
        chain, key = read_limited_text(certificate), read_limited_text(secret)
    if chain and key:
        if not _PKCS8.search(key):
            hint = "openssl pkcs8 -topk8 -in OLD -out NEW makes one of any other"
            raise FileUnusable("Spark's client needs the private key in PKCS#8 (BEGIN PRIVATE KEY)", hint=hint)
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain.replace("\n", " ")}
        properties["ssl.keystore.key"] = Secret(key.replace("\n", " "))
    if "ssl.keystore.location" in java:
        properties["ssl.keystore.type"] = "PKCS12"
    return properties


def _quoted(text: str) -> str:
    """Return text quoted for a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
