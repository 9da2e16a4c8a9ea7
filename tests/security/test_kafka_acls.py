"""Kafka's own kafka-acls against this broker: what it adds, lists and removes."""

from collections.abc import Iterator

import pytest

from odradek.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from odradek.testing import Broker
from tests.security.over_wire import ACLS_OF_ADMIN, ADMIN, CONFIG, Client, acl
from tests.toolchains import run_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(CONFIG) as broker, Client(broker, ADMIN) as admin:
        admin.create_acls(ACLS_OF_ADMIN)
        yield broker


def kafka_acls(broker: Broker, *words: str) -> str:
    return run_java("org.apache.kafka.tools.AclCommand", "--bootstrap-server", broker.bootstrap_servers, *words)


def test_kafka_acls_adds_lists_and_removes(broker: Broker) -> None:
    producer = ("--producer", "--topic", "orders", "--transactional-id", "tx", "--allow-principal", "User:p")
    kafka_acls(broker, "--add", *producer)
    prefixed = ("--topic", "ord", "--resource-pattern-type", "prefixed", "--operation", "Read")
    kafka_acls(broker, "--add", *prefixed, "--deny-principal", "User:q", "--deny-host", "10.0.0.1")
    anywhere = {"principal": "User:p", "host": "*"}
    wanted = {
        *(acl(TOPIC, "orders", one, **anywhere) for one in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)),
        *(acl(TXN, "tx", one, **anywhere) for one in (Operation.WRITE, Operation.DESCRIBE)),
        acl(
            TOPIC,
            "ord",
            Operation.READ,
            principal="User:q",
            host="10.0.0.1",
            permission=Permission.DENY,
            pattern=PatternType.PREFIXED,
        ),
    }
    with Client(broker, ADMIN) as admin:
        assert set(admin.acls()) - set(ACLS_OF_ADMIN) == wanted
        listed = kafka_acls(broker, "--list", "--topic", "orders", "--resource-pattern-type", "match")
        assert "name=ord, patternType=PREFIXED" in listed and "principal=User:q" in listed
        assert "name=orders, patternType=LITERAL" in listed
        kafka_acls(broker, "--remove", "--force", *producer)
        assert [one.principal for one in admin.acls(AclFilter(name="orders"))] == []
        kafka_acls(broker, "--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed")
        assert admin.acls() == sorted(ACLS_OF_ADMIN)
