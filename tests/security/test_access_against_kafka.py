"""The same requests to this broker and to Kafka under the same ACLs: the responses must be equal, field by field.

A request of each API is sent by a client whose rights are those of a set of ACLs: some chosen sets, and some generated ones.
Ids, addresses, times and messages are not compared; nor what both brokers describe in their own way when it is allowed
(settings, log directories).
"""

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.api.table import APIS
from odradek.security.acl import Acl, Operation, PatternType, Permission
from odradek.testing import Broker
from tests.api.test_against_kafka import UNCOMPARED, fields_of, place_of
from tests.clients.kafka_peer import Peer
from tests.security.access_requests import GONE, NAMES, REQUESTS, UNASKED
from tests.security.over_wire import (
    ACLS_OF_ADMIN,
    ADMIN,
    CLIENT,
    CLUSTER,
    CLUSTER_NAME,
    CONFIG,
    GROUP,
    TOPIC,
    TXN,
    Client,
    acl,
)
from tests.waiting import until
from tests.wire import NOBODY

pytestmark = [pytest.mark.xdist_group("access-against-kafka"), pytest.mark.timeout(1800), pytest.mark.java]

SETTINGS = CONFIG | {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "log.retention.ms": -1,
}
GENERATED = int(os.environ.get("ACCESS_SETS", "4"))
"""The number of generated sets; 50 in the nightly run."""
PREFIXED, DENY = PatternType.PREFIXED, Permission.DENY
NOT_COMPARED = UNCOMPARED | {
    "producer_id",
    "total_bytes",
    "usable_bytes",
    "log_dir",
    "is_cordoned",
    "member_epoch",
    "generation_id",
}
BOTH_DESCRIBE = {"configs", "supported_features", "active_producers", "acls"}
"""Fields of which only is compared whether they are empty."""
KINDS = {TOPIC: "mine", GROUP: "mine", TXN: "mine"}


def of_mine(operation: int, **fields: Any) -> list[Acl]:
    return [acl(kind, "mine", operation, pattern=PREFIXED, **fields) for kind in KINDS]


CHOSEN: dict[str, list[Acl]] = {
    "nothing": [],
    "describe": of_mine(Operation.DESCRIBE),
    "read": of_mine(Operation.READ),
    "write": of_mine(Operation.WRITE),
    "create and delete": of_mine(Operation.CREATE) + of_mine(Operation.DELETE),
    "alter": of_mine(Operation.ALTER) + of_mine(Operation.ALTER_CONFIGS),
    "all of mine": of_mine(Operation.ALL),
    "describe the cluster": [acl(CLUSTER, CLUSTER_NAME, Operation.DESCRIBE)],
    "alter the cluster": [acl(CLUSTER, CLUSTER_NAME, Operation.ALTER)],
    "create in the cluster": [acl(CLUSTER, CLUSTER_NAME, Operation.CREATE), *of_mine(Operation.DESCRIBE_CONFIGS)],
    "write idempotently": [acl(CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE)],
    "settings of the cluster": [acl(CLUSTER, CLUSTER_NAME, Operation.ALTER_CONFIGS)],
    "as a broker": [acl(CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION)],
    "all but one": [*of_mine(Operation.ALL), acl(TOPIC, "mine", Operation.READ, permission=DENY)],
    "no write anywhere": [
        *of_mine(Operation.ALL),
        acl(TOPIC, "*", Operation.WRITE, permission=DENY, principal="User:*", host="*"),
    ],
}


def generated(seed: int) -> list[Acl]:
    rng = random.Random(seed)
    acls = set()
    for _ in range(rng.randint(3, 12)):
        kind = rng.choice((TOPIC, TOPIC, GROUP, TXN, CLUSTER))
        name = CLUSTER_NAME if kind == CLUSTER else rng.choice((*NAMES, "mine-", "t", "*"))
        pattern = PREFIXED if kind != CLUSTER and name != "*" and rng.random() < 0.5 else PatternType.LITERAL
        acls.add(
            acl(
                kind,
                name,
                rng.choice([one for one in Operation if Operation.ALL <= one <= Operation.IDEMPOTENT_WRITE]),
                pattern=pattern,
                permission=DENY if rng.random() < 0.25 else Permission.ALLOW,
                host=rng.choice((CLIENT, CLIENT, "*" if kind == TXN else CLIENT)),
                principal=rng.choice(("User:ANONYMOUS", "User:*", "User:somebody")),
            )
        )
    return sorted(acls)


SETS = CHOSEN | {f"generated {seed}": generated(seed) for seed in range(GENERATED)}


class Side:
    """One of the two brokers."""

    def __init__(self, at: Any) -> None:
        self.at = at
        self.ids: dict[str, bytes] = {}
        self.acls: list[Acl] = []
        with Client(at, ADMIN) as admin:
            admin.create_acls(ACLS_OF_ADMIN)
            self._in_force(admin, ACLS_OF_ADMIN)
            for name in ("mine", "theirs"):
                self.ids[name] = admin.create(name, 1)
                admin.until_led(name)
            admin.until_coordinated("first")
            for key in ("first", "mine"):
                until(lambda key=key: self._finds(admin, key), f"a coordinator of transactional id {key}")
            until(lambda: self._has_producer_id(admin), "a producer id")

    @staticmethod
    def _finds(admin: Client, key: str) -> bool:
        request = REQUESTS["coordinator 4 of transactions"]({})[0]
        request.coordinator_keys = [key]
        return bool(admin.ask(request, 10, 4).coordinators[0].error_code == 0)

    @staticmethod
    def _has_producer_id(admin: Client) -> bool:
        return bool(admin.ask(*REQUESTS["producer id"]({})).error_code == 0)

    @staticmethod
    def _in_force(admin: Client, acls: list[Acl]) -> None:
        until(lambda: admin.acls() == sorted(acls), "the ACLs are in force")

    def use(self, acls: list[Acl]) -> None:
        """Give the client exactly these rights."""
        with Client(self.at, ADMIN) as admin:
            admin.set_acls(acls)
            self._in_force(admin, [*acls, *ACLS_OF_ADMIN])
            present = {t.name: t.topic_id for t in admin.metadata(*GONE).topics if t.error_code == 0}
            for name in GONE:
                self.ids[name] = present.get(name) or admin.create(name, 1)
                admin.until_led(name)

    def ask(self, name: str) -> Any:
        """What the client receives, to be compared; None if the broker closes the connection."""
        with Client(self.at, CLIENT) as client:
            try:
                response = client.ask(*REQUESTS[name](self.ids))
            except (EOFError, ConnectionResetError):
                return None
        return comparable(response, {one: name for name, one in self.ids.items()})


def comparable(value: Any, names: dict[bytes, str], field: str = "") -> Any:
    if field in BOTH_DESCRIBE:
        return bool(value)
    if isinstance(value, list):
        told = [comparable(one, names) for one in value]
        return sorted(told, key=lambda one: (*place_of(one), str(one))) if told and isinstance(told[0], dict) else told
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return names.get(data, data if len(data) != 16 or data in (bytes(16), NOBODY) else "an id")
    if value is None or isinstance(value, int | float | str):
        return value
    told = {one: comparable(getattr(value, one), names, one) for one in fields_of(value) if one not in NOT_COMPARED}
    if "topic_config_error_code" in told:
        del told["topic_id"]  # Kafka chooses an id for a topic that is only validated
    if "base_offset" in told:
        del told["log_start_offset"], told["base_offset"]
    return told


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Odradek and Kafka."""
    with ExitStack() as stack:
        theirs = stack.enter_context(Peer(tmp_path_factory.mktemp("kafka"), SETTINGS))
        ours = stack.enter_context(Broker(SETTINGS, directory=tmp_path_factory.mktemp("odradek")))
        yield Side(ours), Side(theirs)


def test_every_api_is_compared() -> None:
    asked = {build(dict.fromkeys((*NAMES, *GONE), bytes(16)))[1] for build in REQUESTS.values()}
    assert {row.key for row in APIS} - asked - set(UNASKED) == set()


@pytest.mark.parametrize("name", SETS)
def test_responses_under_a_set_of_acls_are_kafkas(sides: tuple[Side, Side], name: str) -> None:
    ours, theirs = sides
    for side in sides:
        side.use(SETS[name])
    differing = []
    for request in REQUESTS:
        here, there = ours.ask(request), theirs.ask(request)
        if here != there:
            differing.append(f"{request}:\n  ours:  {here}\n  Kafka: {there}")
    assert not differing, "\n".join([f"{len(differing)} of {len(REQUESTS)} differ", *differing])


def test_a_pattern_subscribes_to_what_the_member_may_describe_as_in_kafka(sides: tuple[Side, Side]) -> None:
    """The last test: the group that it makes is none of those that the others list."""
    for side in sides:
        side.use([acl(GROUP, "of-patterns", Operation.READ), acl(TOPIC, "mine", Operation.DESCRIBE, pattern=PREFIXED)])
        with Client(side.at, CLIENT) as client:
            client.topics_of_pattern("of-patterns", ".*", [side.ids["mine"], side.ids["mine-gone"]])
            assert client.beat("of-patterns", "m", -1).error_code == 0
