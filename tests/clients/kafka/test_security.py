"""Security properties: what contradicts itself, what Java's clients are told, and those in the environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.clients.cassandra import Cassandra
from millrace.clients.kafka.cluster import Cluster
from millrace.clients.kafka.security import completed_properties, for_java, java_flags
from millrace.clients.properties import read_properties
from millrace.errors import FileUnusable, InvalidOption
from millrace.pipeline.secret import Secret

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "x"}
TOKENS = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "oauthbearer",
    "sasl.oauthbearer.token.endpoint.url": "https://tokens/",
    "sasl.oauthbearer.client.id": "ann",
    "sasl.oauthbearer.client.secret": 'a"b',
}


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.username": "ann", "sasl.password": "x"},
        {"ssl.ca.location": "/x"},
        {**LOGIN, "security.protocol": "SSL"},
        {**LOGIN, "sasl.mechanism": "GUESS"},
        {**LOGIN, "sasl.password": ""},
        {"security.protocol": "SASL_SSL"},
        {"security.protocol": "TLS"},
        {**TOKENS, "sasl.oauthbearer.client.secret": ""},
        {**TOKENS, "sasl.oauthbearer.method": "default"},
        {"security.protocol": "SSL", "ssl.certificate.location": __file__},
        {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"},
    ],
)
def test_what_cannot_be_meant(options: dict[str, str]) -> None:
    with pytest.raises((InvalidOption, FileUnusable)) as raised:
        completed_properties(options)
    assert raised.value.hint


def test_tokens_for_both_kinds_of_clients() -> None:
    options = {**TOKENS, "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "cluster=one"}
    assert Cluster("a:1", options).config()["sasl.oauthbearer.method"] == "oidc"
    java = for_java(options)
    assert java["sasl.mechanism"] == "OAUTHBEARER"
    assert java["sasl.jaas.config"].endswith(
        r'required clientId="ann" clientSecret="a\"b" scope="kafka" extension_cluster="one";'
    )
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://tokens/"
    assert java_flags(options) == ["-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://tokens/"]
    assert not [name for name in java if "client" in name]


def test_no_host_is_said_otherwise_in_java() -> None:
    found = for_java({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"})
    assert found["ssl.endpoint.identification.algorithm"] == ""


def test_a_key_that_java_cannot_read(tmp_path: Path) -> None:
    key, certificate = tmp_path / "me.key", tmp_path / "me.pem"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nabc\n")
    certificate.write_text("-----BEGIN CERTIFICATE-----\nabc\n")
    files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    with pytest.raises(FileUnusable) as raised:
        for_java({"security.protocol": "SSL", **files})
    assert "openssl pkcs8" in (raised.value.hint or "")


def test_properties_in_the_environment(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    password, config = tmp_path / "password", tmp_path / "client.properties"
    password.write_text("out-0f-a-file\n")
    password.chmod(0o644)
    config.write_text("sasl.mechanism=PLAIN\nclient.id=me\n")
    set_environment(
        MILLRACE_KAFKA_SECURITY_PROTOCOL="SASL_SSL",
        MILLRACE_KAFKA_SASL_MECHANISM="SCRAM-SHA-256",
        MILLRACE_KAFKA_SASL_USERNAME="ann",
        MILLRACE_KAFKA_SASL_PASSWORD_FILE=str(password),
        MILLRACE_KAFKA_TIMEOUT="3s",
    )
    told: list[str] = []
    cluster = Cluster.at("a:1", config, environment=True, notify=told.append)
    assert cluster.options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": "out-0f-a-file",
        "client.id": "me",
    }
    assert len(told) == 1
    assert "chmod 600" in told[0]
    assert "sasl.username" not in Cluster.at("a:1", config).options


def test_cassandras_in_the_environment(set_environment: Callable[..., None]) -> None:
    set_environment(
        MILLRACE_CASSANDRA_USER="ann", MILLRACE_CASSANDRA_PASSWORD="of-7he-ring", MILLRACE_CASSANDRA_TLS_HOSTNAME="no"
    )
    found = Cassandra.at("a:1", environment=True).options
    assert found == {"user": "ann", "password": "of-7he-ring", "tls.hostname": "no"}
    assert isinstance(found["password"], Secret)


def test_secrets_of_a_properties_file(tmp_path: Path, set_environment: Callable[..., None]) -> None:
    password, config = tmp_path / "password", tmp_path / "client.properties"
    password.write_text("out-0f-a-file\n")
    password.chmod(0o600)
    config.write_text(f"sasl.password=${{file:{password}}}\nsasl.username=${{WHO:-ann}}\n")
    told: list[str] = []
    assert read_properties(config, told.append) == {"sasl.password": "out-0f-a-file", "sasl.username": "ann"}
    assert told == []
    config.write_text("sasl.password=spelt-0ut\n")
    config.chmod(0o644)
    assert isinstance(read_properties(config, told.append)["sasl.password"], Secret)
    assert str(config) in told[0]
    config.write_text("sasl.password=${file:/no/such}\n")
    with pytest.raises(FileUnusable) as raised:
        read_properties(config)
    assert str(raised.value.place) == f"{config}:1"
