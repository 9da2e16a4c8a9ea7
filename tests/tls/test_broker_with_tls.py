"""A broker with TLS: real clients, the start, the replacement of certificates, and equal records on every listener."""

import asyncio
import hashlib
import os
import socket
import ssl
import threading

import pytest

from odradek.clients.errors import ClientError
from odradek.clients.security import ClientSecurity
from odradek.clients.wire import Connection
from odradek.testing import Broker
from odradek.testing.broker_process import BrokerError
from tests.certificates import authority, broker_settings, client_context, pem, write_files
from tests.cli.command import Command
from tests.clients.written_and_read import by_aiokafka, by_kafka_python
from tests.metrics.scraping import scrape
from tests.relay import Relay
from tests.sasl import port_of
from tests.waiting import until

RECORDS = 200


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files):
    settings = broker_settings(files, "required") | {
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/",
        "num.network.threads": "2",
    }
    with Broker(settings, topics={"t": 1, "from-confluent": 1, "from-aiokafka": 1, "from-kafka-python": 1}) as running:
        yield running


def payload(number):
    return hashlib.sha256(str(number).encode()).digest() * 20


PAYLOADS = [payload(number) for number in range(RECORDS)]


def confluent_settings(broker, files):
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": f"{files}/ca.pem",
        "ssl.key.location": f"{files}/client-key.pem",
        "ssl.certificate.location": f"{files}/client-chain.pem",
    }


def test_confluent_kafka_writes_and_reads(broker, files):
    from confluent_kafka import Consumer, Producer

    producer = Producer(confluent_settings(broker, files))
    for number in range(RECORDS):
        producer.produce("from-confluent", payload(number))
    assert producer.flush(60) == 0
    consumer = Consumer(confluent_settings(broker, files) | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["from-confluent"])
    try:
        read = []
        while len(read) < RECORDS:
            read += [message.value() for message in consumer.consume(RECORDS, 1) if not message.error()]
    finally:
        consumer.close()
    assert read == [payload(number) for number in range(RECORDS)]


def test_aiokafka_writes_and_reads(broker, files):
    async def run():
        context = client_context()
        context.load_cert_chain(f"{files}/client.pem")
        options = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SSL", "ssl_context": context}
        return await by_aiokafka(options, "from-aiokafka", PAYLOADS)

    assert asyncio.run(run()) == PAYLOADS


def test_kafka_python_writes_and_reads(broker, files):
    options = {
        "bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SSL", "ssl_cafile": f"{files}/ca.pem",
        "ssl_certfile": f"{files}/client-chain.pem", "ssl_keyfile": f"{files}/client-key.pem",
    }  # fmt: skip
    assert by_kafka_python(options, "from-kafka-python", PAYLOADS) == PAYLOADS


def read_digest(settings, topic, records, size):
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(settings | {"group.id": "digest", "fetch.message.max.bytes": size, "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    digest, count = hashlib.sha256(), 0
    try:
        while count < records:
            for message in consumer.consume(1000, 1):
                assert message.error() is None
                digest.update(message.value())
                count += 1
    finally:
        consumer.close()
    return digest.hexdigest()


def test_cold_and_warm_segments_are_the_same_over_tls(broker, files):
    from confluent_kafka import Producer

    producer = Producer(confluent_settings(broker, files) | {"linger.ms": 50, "batch.size": 500_000})
    records = 12_000
    for number in range(records):
        producer.produce("t", payload(number) * 2)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    expected = read_digest({"bootstrap.servers": f"127.0.0.1:{port_of(broker, 'PLAINTEXT')}"}, "t", records, 1_000_000)
    assert read_digest(confluent_settings(broker, files), "t", records, 1_000_000) == expected, "warm"
    for segment in (broker.data_dir / "t-0").glob("*.log"):
        fd = os.open(segment, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    assert read_digest(confluent_settings(broker, files), "t", records, 8_000_000) == expected, "cold"


# -- the command and other clients of our own ------------------------------------------------------------------------------


def test_commands_connect_with_a_command_config(broker, files):
    command, how = Command(broker.bootstrap_servers), ("--command-config", files / "client.properties")
    command("produce", "t", *how, stdin="x\n")
    assert "from-aiokafka" in command("topic", "list", *how)
    command("doctor", *how)


def test_clients_say_what_is_wrong(broker, files, tmp_path):
    address = ("127.0.0.1", broker.port, 10.0)
    trust = f"ssl.truststore.location={files}/ca.pem\n"
    for text, message in (
        ("security.protocol=SSL\n" + trust, "requires a client certificate"),
        ("security.protocol=SSL\n", "is not accepted"),
        ("security.protocol=PLAINTEXT\n", "closed it"),
        (f"security.protocol=SSL\nssl.truststore.location={files}/none.pem\n", "ssl.truststore.location"),
        ("security.protocol=SASL_SSL\nsasl.jaas.config=geheim\n", "sasl.mechanism"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=geheim\n", "sasl.jaas.config"),
        ("security.protocol=TLS\n", "must be one of PLAINTEXT, SSL"),
        (f"security.protocol=SSL\nssl.endpoint.identification.algorithm=dns\n{trust}", "must be https"),
    ):
        file = tmp_path / "c.properties"
        file.write_text(text)
        with pytest.raises(ClientError) as caught:
            Connection(*address, security=ClientSecurity.from_file(file))
        assert message in str(caught.value) and "geheim" not in str(caught.value)


def test_the_host_name_is_verified_unless_that_is_switched_off(broker, files, tmp_path):
    with Relay(broker.port, "127.0.0.2") as relay:
        text = (files / "client.properties").read_text()
        file = tmp_path / "c.properties"
        file.write_text(text)
        address = ("127.0.0.2", relay.port, 10.0)
        with pytest.raises(ClientError, match=r"does not contain the host 127\.0\.0\.2"):
            Connection(*address, security=ClientSecurity.from_file(file))
        file.write_text(text + "ssl.endpoint.identification.algorithm=\n")
        Connection(*address, security=ClientSecurity.from_file(file)).close()


# -- the start ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"ssl.keystore.location": "/no/such/file"},
            "ssl.keystore.location=/no/such/file: cannot be read: No such file",
        ),
        (
            {"ssl.client.auth": "required", "ssl.truststore.location": ""},
            "ssl.client.auth=required: needs ssl.truststore.location",
        ),
        ({"ssl.keystore.location": ""}, "ssl.keystore.location must be set"),
        ({"ssl.cipher.suites": "NONE"}, "ssl.cipher.suites=NONE: NONE is not known"),
    ],
)
def test_a_configuration_that_cannot_work_refuses_the_start_with_one_line(files, changed, message):
    with pytest.raises(BrokerError) as caught, Broker(broker_settings(files) | changed):
        pass
    lines = [line for line in str(caught.value).splitlines() if message in line]
    assert len(lines) == 1, str(caught.value)
    assert "Traceback" not in str(caught.value)


# -- new certificates --------------------------------------------------------------------------------------------------------


def serial_number(broker):
    """The serial number of the certificate that a new connection gets."""
    with (
        socket.create_connection(("127.0.0.1", broker.port)) as sock,
        client_context().wrap_socket(sock, server_hostname="127.0.0.1") as tls,
    ):
        return tls.getpeercert()["serialNumber"]


def replace(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.replace(path)


def fresh_certificate(name="broker"):
    return "".join(pem(authority().issue_cert("127.0.0.1", "localhost", common_name=name, organization_unit_name="x")))


@pytest.mark.parametrize("by", ["AlterConfigs", "time"])
def test_certificates_are_replaced_under_load(tmp_path, by):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    files = write_files(tmp_path)
    path = files / "broker.pem"
    path.write_text(fresh_certificate())
    settings = broker_settings(files) | {"num.network.threads": "2"}
    if by == "time":
        settings["odradek.ssl.reload.ms"] = "50"
    with Broker(settings, topics={"t": 1}) as broker:
        client = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": f"{files}/ca.pem",
        }
        producer, lost = Producer(client | {"linger.ms": 0}), []
        admin = AdminClient(client)
        stop = threading.Event()

        def write():
            while not stop.is_set():
                producer.produce("t", b"x" * 100, on_delivery=lambda error, _: error and lost.append(error))
                producer.poll(0.001)

        def alter(location, expect_failure=None):
            entry = ConfigEntry(
                "listener.name.ssl.ssl.keystore.location", str(location), incremental_operation=AlterConfigOpType.SET
            )
            (future,) = admin.incremental_alter_configs(
                [ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])]
            ).values()
            if expect_failure is None:
                return future.result(60)
            with pytest.raises(Exception, match=expect_failure):
                future.result(60)
            return None

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(3):
                before = serial_number(broker)
                replace(path, fresh_certificate())
                if by == "AlterConfigs":
                    alter(path)
                    assert serial_number(broker) != before, "in force when the answer comes"
                else:
                    until(lambda before=before: serial_number(broker) != before, "the new certificate is not used")
            before = serial_number(broker)
            replace(path, fresh_certificate("somebody-else"))
            if by == "AlterConfigs":
                alter(path, "ssl.allow.dn.changes")
                alter(files / "none.pem", "cannot be read")
                replace(path, "nonsense")
                alter(path, "is neither PEM nor PKCS12 nor JKS")
            else:
                until(lambda: "the former ones stay in use" in broker.log_tail(), "no ERROR line")
                assert broker.log_tail().count("the former ones stay in use") == 1
            assert serial_number(broker) == before
            worker = next(process for process in broker.processes() if process["kind"] == "worker")
            os.kill(worker["pid"], 9)  # its successor has the new certificate, too
            until(
                lambda: all(p["pid"] != worker["pid"] and p["state"] == "serving" for p in broker.processes()),
                "no successor",
            )
            assert serial_number(broker) == before
        finally:
            stop.set()
            thread.join()
        assert producer.flush(60) == 0 and not lost


def test_settings_of_all_listeners_and_secrets_cannot_be_changed_at_run_time(broker, files):
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    admin = AdminClient(confluent_settings(broker, files))
    for name, value, message in (
        ("ssl.keystore.location", "/x", "for single listeners only"),
        ("listener.name.ssl.ssl.keystore.password", "geheim", "secrets are not kept"),
    ):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        (future,) = admin.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])]
        ).values()
        with pytest.raises(Exception, match=message) as caught:
            future.result(60)
        assert "geheim" not in str(caught.value)


def test_other_protocols_are_counted_and_logged_once_for_an_address(files):
    settings = broker_settings(files) | {"metrics.listener": "127.0.0.1:0"}
    with Broker(settings) as broker:
        for sent in (b"\0\0\0\x10\0\x12\0\0\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 8):
            with socket.create_connection(("127.0.0.1", broker.port), 30) as sock:
                sock.sendall(sent)
                assert sock.recv(100) == b""
        plain_port = port_of(broker, "PLAINTEXT")
        with (
            socket.create_connection(("127.0.0.1", plain_port), 30) as sock,
            pytest.raises((ssl.SSLError, ConnectionResetError)),
        ):
            client_context().wrap_socket(sock, server_hostname="127.0.0.1")

        def counted():
            page = scrape(broker)
            closed = page.sum("odradek_connections_closed_total", reason="other_protocol")
            return (closed, page.sum("odradek_failed_authentications_total")) == (4, 3)

        until(counted, "the failures are not counted")
        lines = broker.log_file.read_text().splitlines()
    refusals = [line for line in lines if " odradek.connections: " in line and " closed: " in line]
    assert len(refusals) == 2, refusals
    assert "expects TLS" in refusals[0] and "this listener expects plaintext" in refusals[1]
