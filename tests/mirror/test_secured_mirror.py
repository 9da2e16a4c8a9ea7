"""A mirror into a cluster with TLS, logins and ACLs works with the rights of docs/operate/mirror.md, and names missing ones."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.clients import acls, topics, users
from odradek.clients.cluster import Cluster
from odradek.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from odradek.security.sasl.scram_credential import SHA_512
from odradek.testing import Broker
from odradek.testing.certificates import make_certificates
from tests.clients.secured import LISTENERS, MECHANISM, PASSWORD, USER, Secured
from tests.mirror.commands import mirror, worker
from tests.mirror.lanes import records_of
from tests.waiting import until

SUPER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": 0,
}
PAGE = Path(__file__).parents[2] / "docs" / "operate" / "mirror.md"


def secured(directory: Path):
    """Settings of a broker with a listener SASL_SSL and ACLs, and its certificates."""
    certificates = make_certificates(directory / "tls")
    config = {
        "listeners": LISTENERS,
        "sasl.enabled.mechanisms": MECHANISM,
        "ssl.keystore.location": str(certificates.broker),
        "connection.failed.authentication.delay.ms": "0",
    }
    return SUPER | config, certificates.ca


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    config, ca = secured(tmp_path_factory.mktemp("secured"))
    with Broker(SUPER | {"listeners": "PLAINTEXT://127.0.0.1:0"}) as a, Broker(config) as b:
        with Cluster(b.bootstrap_servers) as cluster:
            users.set_password(cluster, USER, PASSWORD, [SHA_512], 4096)
        yield a, Secured(b, ca)


@pytest.fixture
def write_file(clusters, tmp_path):
    def write(password=PASSWORD, **more):
        a, b = clusters
        settings = b.java_settings(password)
        file = tmp_path / "mirror.properties"
        file.write_text(
            f"clusters = a, b\na.bootstrap.servers = {a.bootstrap_servers}\nb.bootstrap.servers = {b.servers}\n"
            + "".join(f"b.{key} = {value}\n" for key, value in settings.items())
            + "a->b.enabled = true\ntopics = t\nemit.heartbeats.enabled = false\nodradek.mirror.metrics.listener =\n"
            + "".join(f"{key.replace('_', '.')} = {value}\n" for key, value in more.items())
        )
        return str(file)

    return write


def allow(cluster, kind, name, *operations, pattern=PatternType.LITERAL):
    acls.create(
        cluster,
        [Acl(kind, pattern, name, f"User:{USER}", "*", operation, Permission.ALLOW) for operation in operations],
    )


def test_a_wrong_password_is_a_sentence_with_the_alias_and_without_the_password(write_file):
    done = mirror("check", write_file("not-the-password"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("odradek: a->b: cluster b:") and USER in line
    assert "not-the-password" not in done.stderr + done.stdout


def test_missing_rights_are_named_and_those_of_the_document_suffice(clusters, write_file, tmp_path):
    a, b = clusters
    file = write_file()
    with Cluster(a.bootstrap_servers) as source:
        topics.create(source, "t", 1)
    producer = Producer({"bootstrap.servers": a.bootstrap_servers})
    producer.produce("t", b"1")
    assert producer.flush(60) == 0
    with Cluster(b.broker.bootstrap_servers) as target:
        allow(target, ResourceType.GROUP, "odradek-mirror.", Operation.DESCRIBE, pattern=PatternType.PREFIXED)
        allow(
            target, ResourceType.TRANSACTIONAL_ID, "odradek-mirror.", Operation.DESCRIBE, pattern=PatternType.PREFIXED
        )
        assert "topic 't': 'a.t' cannot be created in b: Authorization failed" in refused(file)
        for kind in (ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            acls.delete(target, acls.describe(target, AclFilter(kind)))
    with Cluster(b.broker.bootstrap_servers) as target:
        wide = PatternType.PREFIXED
        text = " ".join(PAGE.read_text().split())
        (named,) = re.findall(r"on the target ([^;|]*?) on topics, Read on the group", text)
        assert named == "Create, Read, Write, Describe, AlterConfigs and DescribeConfigs"
        allow(
            target,
            ResourceType.TOPIC,
            "a.",
            Operation.CREATE,
            Operation.READ,
            Operation.WRITE,
            Operation.DESCRIBE,
            Operation.ALTER_CONFIGS,
            Operation.DESCRIBE_CONFIGS,
            pattern=wide,
        )
        assert "denies the mirror's user its group" in refused(file)
        with worker(file, tmp_path / "log") as process:
            assert process.end() == 1
        assert "denies the mirror's user its group" in process.log
        allow(target, ResourceType.GROUP, "odradek-mirror.", Operation.READ, pattern=wide)
        assert "denies the mirror's user its transactional ids" in refused(file)
        allow(target, ResourceType.TRANSACTIONAL_ID, "odradek-mirror.", Operation.WRITE, pattern=wide)
        done = mirror("check", file)
        assert (done.returncode, done.stderr) == (0, "")
        with worker(file, tmp_path / "log2") as process:
            until(lambda: copied(b), lambda: process.log)
            assert process.stop() == 0
    done = mirror("status", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "lag 0 records" in done.stdout


def refused(file):
    """What a check of the file prints as it fails, in one line."""
    done = mirror("check", file)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    return line


def copied(b):
    with Cluster(b.broker.bootstrap_servers) as cluster:
        if "a.t" not in cluster.metadata(["a.t"]).topics:
            return False
    return [seen.value for seen in records_of(b.broker.bootstrap_servers, ("a.t", 0))] == [b"1"]
