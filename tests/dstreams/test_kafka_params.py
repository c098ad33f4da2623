"""kafkaParams of old, for today's clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.dstreams.kafka_params import Parameters
from millrace.errors import InvalidOption

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="s3cr\\"et!";'


def test_names_of_old_are_understood_and_dead_ones_left_out() -> None:
    given = {
        "metadata.broker.list": "a:1, b:2",
        "auto.offset.reset": "smallest",
        "zookeeper.connect": "z:1",
        "group.id": "g",
    }
    parameters = Parameters.of({**given, "fetch.message.max.bytes": 1000})
    assert parameters.reset == "earliest"
    assert parameters.for_spark() == {"kafka.bootstrap.servers": "a:1,b:2", "kafka.max.partition.fetch.bytes": "1000"}


def test_reading_begins_with_what_comes_unless_the_program_says_otherwise() -> None:
    assert Parameters.of({"bootstrap.servers": "a:1"}).reset == "latest"


def test_java_s_words_reach_spark_as_they_are_and_the_driver_in_its_own(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----")
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    parameters = Parameters.of({"bootstrap.servers": "a:1", **given})
    options = parameters.cluster().options
    assert (options["sasl.username"], options["sasl.password"]) == ("ann", 's3cr"et!')
    assert options["ssl.ca.location"] == str(authority)
    assert parameters.for_spark()["kafka.sasl.jaas.config"] == JAAS
    assert "s3cr" not in repr(parameters)


def test_librdkafkas_words_reach_spark_in_javas() -> None:
    access = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    parameters = Parameters.of({"bootstrap.servers": "a:1", **access, "sasl.password": "secret!"})
    assert 'username="ann"' in parameters.for_spark()["kafka.sasl.jaas.config"]


def test_the_password_of_a_key_reaches_the_driver_in_the_words_of_either(tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    pem.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    ssl = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.key.password": "s3cret!"}
    own = {"ssl.certificate.location": str(pem), "ssl.key.location": str(pem)}
    javas = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}
    for given in (own, javas):
        parameters = Parameters.of({**ssl, **given})
        assert parameters.cluster().options["ssl.key.password"] == "s3cret!"
        assert parameters.for_spark()["kafka.ssl.key.password"] == "s3cret!"
        assert parameters.for_spark()["kafka.ssl.keystore.type"] == "PEM"
        assert "s3cret" not in repr(parameters)
    assert Parameters.of({**ssl, **own}).cluster().options["ssl.key.location"] == str(pem)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"bootstrap.servers": "nowhere"},
        {"bootstrap.servers": "a:1", "auto.offset.reset": "never"},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        Parameters.of(wrong)


def test_a_store_in_javas_own_format_is_refused() -> None:
    given = {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.truststore.location": "x.jks"}
    with pytest.raises(InvalidOption):
        Parameters.of(given).cluster()
