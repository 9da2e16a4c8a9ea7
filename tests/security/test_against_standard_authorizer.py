"""The authorizer against Kafka's own StandardAuthorizer, in a JVM, on the same generated sets of ACLs."""

import json
import os
import random
import subprocess
from typing import Any

import pytest

from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.authorizer import Authorizer
from odradek.security.hosts import normal_host
from tests.security import generated
from tests.toolchains import java_command

pytestmark = [pytest.mark.java, pytest.mark.timeout(1200)]

SETS = int(os.environ.get("AUTHORIZER_SETS", "300"))
"""10,000 in the nightly run."""
HOSTS = ("127.0.0.1", "10.0.0.1", "0:0:0:0:0:0:0:1")
OF_TYPE = (Operation.READ, Operation.WRITE, Operation.CREATE, Operation.ALTER)
CLUSTER = ResourceType.CLUSTER


def a_set(rng: random.Random) -> tuple[list[Acl], str, bool]:
    acls = set()
    for _ in range(rng.randint(0, 14)):
        kind = rng.choice((*generated.TYPES, CLUSTER))
        acls.add(
            Acl(
                kind,
                rng.choice((PatternType.LITERAL, PatternType.PREFIXED)) if kind != CLUSTER else PatternType.LITERAL,
                rng.choice(generated.NAMES) if kind != CLUSTER else "kafka-cluster",
                rng.choice(generated.PRINCIPALS),
                rng.choice((*HOSTS, "*", "*", "*")),
                rng.choice(generated.OPERATIONS),
                rng.choice((Permission.DENY, Permission.ALLOW, Permission.ALLOW)),
            )
        )
    return sorted(acls), rng.choice(("", "", "User:alice", "User:carol;User:bob")), rng.random() < 0.3


def questions(rng: random.Random) -> list[list[Any]]:
    asked: list[list[Any]] = []
    for _ in range(60):
        kind = rng.choice((*generated.TYPES, CLUSTER))
        name = "kafka-cluster" if kind == CLUSTER else rng.choice((*generated.NAMES, "abcd", "zzz"))
        asked.append([rng.choice(generated.PRINCIPALS[:3]), rng.choice(HOSTS), rng.choice(generated.ASKED), kind, name])
    clients, kinds = generated.PRINCIPALS[:3], generated.TYPES
    asked += [[rng.choice(clients), rng.choice(HOSTS), rng.choice(OF_TYPE), rng.choice(kinds), None] for _ in range(8)]
    return asked


def test_decisions_are_those_of_kafkas_own_authorizer() -> None:
    rng = random.Random(4711)
    allowed = 0
    with subprocess.Popen(
        java_command("AclOracle", classes=True), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as oracle:
        assert oracle.stdin is not None and oracle.stdout is not None
        for _ in range(SETS):
            acls, super_users, default = a_set(rng)
            asked = questions(rng)
            document = {"super": super_users, "default": default, "acls": acls, "questions": asked}
            oracle.stdin.write(json.dumps(document) + "\n")
            oracle.stdin.flush()
            expected = oracle.stdout.readline().strip()
            authorizer = Authorizer(acls, super_users.split(";"), default)
            for question, answer in zip(asked, expected, strict=True):
                principal, host, operation, kind, name = question
                if name is None:
                    rule = authorizer.decide_by_type(principal, normal_host(host), operation, kind)
                else:
                    rule = authorizer.decide(principal, normal_host(host), operation, kind, name)
                assert rule.allowed == (answer == "1"), (acls, super_users, default, question, str(rule))
                allowed += rule.allowed
        oracle.stdin.close()
    assert allowed > SETS  # the sets allow something, too
