"""The commands that send and read records request nothing that a producer or a consumer may not do: operators watch the
broker's log of denials, and would look for an attacker."""

from collections.abc import Iterator

import pytest

from odradek.security.acl import Operation
from odradek.testing import Broker
from tests.cli.command import Command
from tests.security.over_wire import CLUSTER, CLUSTER_NAME, CONFIG, GROUP, TOPIC, TXN, Client, acl
from tests.waiting import until

SUPER_USER = "127.0.0.9"
"""An address; the commands connect from another one."""
SETTINGS = CONFIG | {"group.initial.rebalance.delay.ms": 0, "num.network.threads": 1}
DENIED = "is Denied operation"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS, topics={"orders": 2, "secret": 1}) as broker:
        odradek = Command(broker.bootstrap_servers)
        role = ("--topic", "orders", "--allow", "User:ANONYMOUS")
        odradek("acl", "add", "--producer", "--transactional-id", "tx", *role)
        odradek("acl", "add", "--consumer", "--group", "g", *role)
        everything = ((TOPIC, "*"), (GROUP, "*"), (TXN, "*"), (CLUSTER, CLUSTER_NAME))
        with Client(broker, SUPER_USER) as user:  # from now on, the commands have these rights only
            acls = [acl(kind, name, Operation.ALL, host=SUPER_USER, principal="User:*") for kind, name in everything]
            assert user.create_acls(acls) == [0] * len(acls)
        yield broker


def test_commands_that_send_and_read_records_cause_no_denial(broker: Broker) -> None:
    odradek = Command(broker.bootstrap_servers)
    for options in ("--create", "--acks 1 -z zstd", "-X linger.ms=1", "-X transactional.id=tx"):
        odradek("produce", "orders", *options.split(), stdin="a\n")
    for options in ("", "--uncommitted", "-X group.id=g", "-g g"):
        read = odradek("consume", "orders", "--from", "beginning", "--exit", *options.split())
        assert read == "a\n" * 4, options
    odradek("topic", "list")
    odradek("group", "list")
    odradek("group", "describe", "g")
    odradek("group", "explain", "g")
    odradek("transaction", "describe", "tx")
    odradek.refused("consume", "secret", "--exit", words=["'secret'", "not authorised"])
    odradek.refused("produce", "secret", stdin="a\n", words=["not authorised"])
    until(lambda: DENIED in broker.log_file.read_text(), broker.log_tail)
    denials = [line for line in broker.log_file.read_text().splitlines() if DENIED in line]
    assert all("Topic:LITERAL:secret" in line for line in denials), denials
    # librdkafka looks for the coordinator of some group in any case: this is denied, and does not matter
    read = odradek("consume", "orders", "--from", "beginning", "--exit", "-X", "fetch.min.bytes=1")
    assert read == "a\n" * 4
    # the error names the group, not the place in which the command looks for it first
    odradek.refused("group", "describe", "other", words=["group 'other': not authorised for the group"])
    odradek.refused("group", "delete", "other", "another", words=["one of 2 groups ('other', ...): not authorised"])
