"""Addresses, client properties, and what becomes of Kafka's errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import ClusterMetadata

from millrace.clients.kafka.cluster import Cluster
from millrace.clients.properties import read_properties
from millrace.errors import FileUnusable, InvalidOption, KafkaUnreachable
from millrace.services.process import free_port


@pytest.fixture
def properties(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "client.properties"
        path.write_text(text, "utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("address", "bootstrap"),
    [
        ("localhost:9092", "localhost:9092"),
        ("a.example:1,b-2.example:65535", "a.example:1,b-2.example:65535"),
        (" a:1 , b:2 ", "a:1,b:2"),
        ("[::1]:9092", "[::1]:9092"),
    ],
)
def test_addresses(address: str, bootstrap: str) -> None:
    assert Cluster.at(address).bootstrap == bootstrap


@pytest.mark.parametrize(
    "address",
    ["", "nonsense", "a:0", "a:65536", "a:b", ":9092", "a:1,", "a:1 b:2", "kafka://a:1", "::1:9092", "a\n:1"],
)
def test_no_addresses(address: str) -> None:
    with pytest.raises(InvalidOption):
        Cluster.at(address)


def test_the_timeout_is_the_settings_unless_given(set_environment: Callable[..., None]) -> None:
    set_environment(MILLRACE_KAFKA_TIMEOUT="3s")
    assert Cluster.at("a:1").timeout == 3
    assert Cluster.at("a:1", timeout=0.5).timeout == 0.5


def test_properties_with_comments_and_variables(
    properties: Callable[[str], Path], set_environment: Callable[..., None]
) -> None:
    set_environment(KAFKA_USER="ann", KAFKA_PASSWORD="a=b#c")
    path = properties(
        "# who we are\n\n  sasl.username = ${KAFKA_USER} \nsasl.password=${KAFKA_PASSWORD}\nclient.id=${KAFKA_USER}-1\n"
    )
    assert read_properties(path) == {"sasl.username": "ann", "sasl.password": "a=b#c", "client.id": "ann-1"}


def test_a_missing_variable_is_told_with_its_line(
    properties: Callable[[str], Path], set_environment: Callable[..., None]
) -> None:
    set_environment(KAFKA_PASSWORD=None)
    path = properties("sasl.username=ann\n# the secret\nsasl.password=${KAFKA_PASSWORD}\n")
    with pytest.raises(InvalidOption) as raised:
        read_properties(path)
    assert str(raised.value.place) == f"{path}:3"


def test_a_line_without_an_equals_sign_is_told_with_its_line(properties: Callable[[str], Path]) -> None:
    path = properties("client.id=a\nsecurity.protocol SSL\n")
    with pytest.raises(InvalidOption) as raised:
        read_properties(path)
    assert str(raised.value.place) == f"{path}:2"


@pytest.mark.parametrize(
    ("name", "instead"), [("sasl.jaas.config", "sasl.username"), ("ssl.truststore.location", "ssl.ca.location")]
)
def test_a_name_of_java_clients_gets_ours(properties: Callable[[str], Path], name: str, instead: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        read_properties(properties(f"{name}=x\n"))
    assert raised.value.place
    assert instead in (raised.value.hint or "")


def test_a_properties_file_that_cannot_be_read_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"client.id=caf\xe9\n")
    for path in (tmp_path / "none", tmp_path, tmp_path / "latin"):
        with pytest.raises(FileUnusable):
            Cluster.at("a:1", path)


def test_passwords_are_not_in_the_repr(properties: Callable[[str], Path]) -> None:
    cluster = Cluster.at("a:1", properties("sasl.username=ann\nsasl.password=secret\n"))
    assert cluster.options["sasl.password"] == "secret"
    assert "secret" not in repr(cluster)
    assert "secret" not in str(cluster)


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")]
)
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_for_java(name: str, mechanism: str, module: str) -> None:
    given = {"security.protocol": "SASL_SSL", name: mechanism, "sasl.username": "ann", "sasl.password": "secret"}
    assert Cluster("a:1", given).java_properties() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="ann" password="secret";',
    }


def test_quotes_in_a_password_stay_within_it_for_java() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    found = Cluster("a:1", {**given, "sasl.password": 'a"b\\c'}).java_properties()
    assert found["sasl.jaas.config"].endswith(r'password="a\"b\\c";')


def test_certificates_for_java(tmp_path: Path) -> None:
    certificate, key = tmp_path / "me.pem", tmp_path / "me.key"
    certificate.write_text("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n")
    key.write_text("-----BEGIN PRIVATE KEY-----\ndef\n-----END PRIVATE KEY-----\n")
    mine = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    given = {"security.protocol": "SSL", "ssl.ca.location": str(certificate), **mine}
    found = Cluster("a:1", given).java_properties()
    assert found.pop("security.protocol") == "SSL"
    assert (found.pop("ssl.truststore.type"), found.pop("ssl.truststore.location")) == ("PEM", str(certificate))
    assert found.pop("ssl.keystore.type") == "PEM"
    assert "abc" in found.pop("ssl.keystore.certificate.chain")
    assert "def" in found.pop("ssl.keystore.key")
    assert not found


def test_a_property_wins_over_ours_and_an_argument_over_both() -> None:
    cluster = Cluster("a:1", {"client.id": "mine", "acks": "1"})
    assert cluster.config()["client.id"] == "mine"
    assert cluster.config(client_id="other")["client.id"] == "other"


def test_nobody_at_the_address_is_unreachable() -> None:
    with pytest.raises(KafkaUnreachable) as raised:
        Cluster(f"127.0.0.1:{free_port()}", timeout=0.5).connect()
    assert raised.value.condition == "kafka.unreachable"
    assert raised.value.exit_code == 1


def test_a_cluster_that_names_no_broker_is_unreachable() -> None:
    class Empty:
        """An admin client whose cluster has nobody in it."""

        asked = 0

        def list_topics(self, timeout: float) -> ClusterMetadata:
            self.asked += 1
            return ClusterMetadata()

        def poll(self, timeout: float) -> int:
            return 0

    cluster, empty = Cluster("127.0.0.1:1", timeout=0.1), Empty()
    cluster.__dict__["_admin_client"] = (empty, [])
    with pytest.raises(KafkaUnreachable) as raised:
        cluster.connect()
    assert raised.value.hint
    assert empty.asked > 1


def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    with pytest.raises(KafkaUnreachable):
        Cluster("no-such-host.invalid:9092", timeout=0.5).connect()


@pytest.mark.parametrize("options", [{"no.such.property": "1"}, {"acks": "many"}, {"security.protocol": "magic"}])
def test_a_property_that_is_none_is_an_invalid_option(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        Cluster("127.0.0.1:1", options).connect()
    with pytest.raises(InvalidOption):
        Cluster("127.0.0.1:1", options).admin()


def test_connect_tells_who_is_there(cluster: Cluster, topic: str) -> None:
    found = cluster.connect()
    assert [f"{broker.host}:{broker.port}" for broker in found.brokers.values()] == [cluster.bootstrap]
    assert len(found.topics[topic].partitions) == 3


def test_words_of_kafkas_client_come_without_its_marks() -> None:
    error = Cluster("here:9092").error(KafkaError(KafkaError._WAIT_COORD), "tell Kafka how far it is")
    assert error.message == "could not tell Kafka how far it is: Waiting for coordinator"
