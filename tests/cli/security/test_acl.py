"""``odradek acl`` against a broker with an authorizer."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.api.table import BY_KEY
from odradek.cli.inspection.usage_source import parse_address
from odradek.cli.security.acl_remedies import commands
from odradek.cli.security.acl_unused import show_unused
from odradek.clients.cluster import Cluster
from odradek.metrics import spool_rows
from odradek.metrics.pages import UsageRow
from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from odradek.security.explaining import Change
from odradek.security.unused import Use, unneeded
from odradek.testing import Broker
from tests.cli.command import Command
from tests.metrics.spool_model import HOUR, NOON, Clock, spool
from tests.security.over_wire import ACLS_OF_ADMIN, ADMIN, CONFIG, Client, acl
from tests.waiting import until
from tests.wire import batch

TOPIC = ResourceType.TOPIC
EXCEPT_HERE = "but allowed from 127.0.0.1: an ACL decides: allow User:* ALL on topic * from host 127.0.0.1"
"""What the ACLs of the fixture allow."""
WITH_SPOOL = {"usage.spool.interval.ms": 1000, "usage.spool.max.bytes": 1 << 26, "metrics.listener": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(CONFIG | WITH_SPOOL) as broker, Client(broker, ADMIN) as admin:
        admin.create_acls(ACLS_OF_ADMIN)
        yield broker


def run(broker: Broker, *words: str, code: int = 0) -> str:
    done = Command(broker.bootstrap_servers).run("acl", *words)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def listed(broker: Broker, *words: str) -> list[dict[str, Any]]:
    return json.loads(run(broker, "list", "--json", *words))


def test_what_a_producer_and_a_consumer_need_is_added_listed_and_removed(broker: Broker) -> None:
    producer = ("--producer", "--topic", "orders", "--transactional-id", "o", "--allow", "User:a", "--idempotent")
    run(broker, "add", *producer)
    mine = {(row["resource"], row["name"], row["operation"]) for row in listed(broker, "--principal", "User:a")}
    assert mine == {
        ("TOPIC", "orders", "WRITE"),
        ("TOPIC", "orders", "DESCRIBE"),
        ("TOPIC", "orders", "CREATE"),
        ("TRANSACTIONAL_ID", "o", "WRITE"),
        ("TRANSACTIONAL_ID", "o", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
    }
    run(broker, "add", "--consumer", "--prefix", "--topic", "ord", "--group", "g", "--allow", "User:b")
    assert {row["pattern"] for row in listed(broker, "--principal", "User:b")} == {"PREFIXED"}
    applying = listed(broker, "--topic", "orders", "--applying")
    assert {row["name"] for row in applying} == {"orders", "ord", "*"}
    assert "User:b" in run(broker, "list", "--topic", "ord")
    run(broker, "remove", *producer, "--dry-run")
    assert listed(broker, "--principal", "User:a")
    run(broker, "remove", *producer, "--yes")
    assert not listed(broker, "--principal", "User:a")
    assert "none of these ACLs exists" in run(broker, "remove", *producer, "--yes", code=1)


def test_a_decision_is_explained(broker: Broker) -> None:
    run(broker, "add", "--topic", "t", "--operation", "read", "--allow", "User:c")
    run(broker, "add", "--topic", "t", "--operation", "all", "--deny", "User:d", "--host", "10.0.0.1")
    ask = ("explain", "--topic", "t", "--operation", "describe", "--principal")
    assert run(broker, *ask, "User:c").startswith("allowed: an ACL allows it: allow User:c READ on topic t")
    denied = run(broker, *ask, "User:d", "--host", "10.0.0.1")
    assert "an ACL denies it: deny User:d ALL on topic t from host 10.0.0.1" in denied and "must be removed" in denied
    answer = json.loads(run(broker, *ask, "User:e", "--json"))
    assert not answer["allowed"] and answer["rule"] == "DefaultDeny"
    assert answer["change"] == "add an ACL that allows DESCRIBE on topic t"
    assert run(broker, *ask, "User:e e").splitlines() == [
        "denied: no ACL allows DESCRIBE on topic t to User:e e from any address",
        EXCEPT_HERE,
        "to change that: add an ACL that allows DESCRIBE on topic t",
        "  odradek acl add --topic t --operation describe --allow 'User:e e'",
    ]
    everybody = json.loads(
        run(broker, "explain", "--user", "User:x", "--operation", "create-tokens", "--principal", "User:e", "--json")
    )
    assert everybody["allowed"] and "allow.everyone.if.no.acl.found" in everybody["why"]


def test_without_an_address_those_with_another_decision_are_named(broker: Broker) -> None:
    rules = ("--topic", "h", "--operation", "read")
    run(broker, "add", *rules, "--allow", "User:h", "--host", "10.0.0.1", "--host", "192.0.2.1")
    ask = ("explain", *rules, "--principal", "User:h")
    lines = run(broker, *ask).splitlines()
    assert lines[0] == "denied: no ACL allows READ on topic h to User:h from any address"
    assert [line for line in lines if line.startswith("but") and line != EXCEPT_HERE] == [
        f"but allowed from {address}: an ACL decides: allow User:h READ on topic h from host {address}"
        for address in ("10.0.0.1", "192.0.2.1")
    ]
    answer = json.loads(run(broker, *ask, "--json"))
    assert {row["host"] for row in answer["elsewhere"] if row["allowed"]} == {"10.0.0.1", "127.0.0.1", "192.0.2.1"}
    assert "but" not in run(broker, *ask, "--host", "10.0.0.1") and "but" not in run(broker, *ask, "--host", "10.0.0.2")


@pytest.mark.parametrize("rules", [
    [],
    [("--allow", "User:r")],
    [("--allow", "User:*")],
    [("--allow", "User:r"), ("--allow", "User:*")],
    [("--deny", "User:r")],
    [("--deny", "User:*", "--prefix"), ("--allow", "User:r")],
    [("--deny", "User:r"), ("--deny", "User:*")],
    [("--allow", "User:r", "--host", "10.9.9.9")],
])  # fmt: skip
def test_the_commands_of_an_explanation_change_the_decision(broker: Broker, rules: list[tuple[str, ...]]) -> None:
    resource = ("--topic", f"remedy of {len(rules)}", "--operation", "write")
    for rule in rules:
        run(broker, "add", *resource, *rule)
    ask = ("explain", *resource, "--principal", "User:r", "--json")
    before = json.loads(run(broker, *ask))
    for command in before["commands"]:
        words = shlex.split(command, comments=True)
        assert words[:2] == ["odradek", "acl"]
        run(broker, *words[2:], *(["--yes"] if words[2] == "remove" else []))
    after = json.loads(run(broker, *ask))
    assert before["commands"] and after["allowed"] != before["allowed"]
    for row in listed(broker, "--topic", resource[1]):
        rule = (f"--{row['permission'].lower()}", row["principal"], "--host", row["host"])
        prefix = ["--prefix"] if row["pattern"] == "PREFIXED" else []
        run(broker, "remove", *resource, *rule, *prefix, "--yes")


def test_the_commands_connect_as_the_explanation_did_and_keep_the_access_of_others(
    broker: Broker, tmp_path: Path
) -> None:
    config = tmp_path / "a client"
    config.write_text("security.protocol=PLAINTEXT\n")
    ask = ("explain", "--user", "*", "--operation", "create-tokens", "--principal", "User:a", "--json")
    assert json.loads(run(broker, *ask))["commands"] == []
    ask = ("explain", "--user", "User:x", *ask[3:])
    added = "--user User:x --operation all --allow 'User:*'", "--user User:x --operation create-tokens --deny User:a"
    assert json.loads(run(broker, *ask))["commands"] == [f"odradek acl add {words}" for words in added]
    connect = ("-b", broker.bootstrap_servers, "--command-config", str(config))
    assert json.loads(run(broker, *ask, *connect))["commands"] == [
        f"odradek acl add {shlex.join(connect)} {words}" for words in added
    ]


def test_the_rules_of_all_users_are_explained_and_removed(broker: Broker) -> None:
    rules = ("--user", "*", "--operation", "describe-tokens", "--deny", "User:*")
    run(broker, "add", *rules)
    ask = (
        "explain",
        "--user",
        "User:x",
        "--operation",
        "describe-tokens",
        "--principal",
        "User:a",
        "--host",
        "10.0.0.5",
    )
    assert run(broker, *ask).splitlines()[-2:] == [
        "  odradek acl add --user User:x --operation describe-tokens --allow User:a --host 10.0.0.5",
        f"  {shlex.join(('odradek', 'acl', 'remove', *rules))}"
        "  # removes more: deny User:* DESCRIBE_TOKENS on user * from any host",
    ]
    run(broker, "remove", *rules, "--yes")


def test_a_line_end_in_a_name_does_not_end_a_comment() -> None:
    rule = acl(ResourceType.GROUP, "g\nreboot", Operation.READ, permission=Permission.DENY)
    (command,) = commands([Change(False, rule, broader=True)], [])
    assert "\n" not in command.partition("#")[2] and shlex.split(command, comments=True)[4] == "g\nreboot"


def test_addresses_that_keep_the_old_decision_are_named(broker: Broker) -> None:
    rules = ("--topic", "still", "--operation", "read", "--allow", "User:s")
    run(broker, "add", *rules)
    run(broker, "add", *rules, "--host", "10.0.0.5")
    ask = ("explain", *rules[:4], "--principal", "User:s")
    kept = "after that still allowed from 10.0.0.5: an ACL decides: allow User:s READ on topic still from host 10.0.0.5"
    assert kept in run(broker, *ask).splitlines()
    assert {row["host"] for row in json.loads(run(broker, *ask, "--json"))["still_elsewhere"]} == {
        "10.0.0.5",
        "127.0.0.1",
    }


def test_a_prefix_that_is_a_star_is_explained_as_a_mistake(broker: Broker) -> None:
    run(broker, "add", "--topic", "*", "--prefix", "--operation", "write", "--allow", "User:star")
    ask = ("explain", "--topic", "t", "--principal", "User:star", "--operation")
    denied = run(broker, *ask, "write")
    assert denied.startswith("denied")
    assert (
        "does not apply: allow User:star WRITE on topic prefix * from any host: in a prefix, * is a character" in denied
    )
    assert "does not apply" not in run(broker, *ask, "read")
    answer = json.loads(run(broker, *ask, "write", "--json"))
    assert [row["name"] for row in answer["mistaken"]] == ["*"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "--topic", "t", "--allow", "User:a"), "nothing to do"),
        (
            ("add", "--topic", "t", "--operation", "read", "--allow", "alice"),
            "'alice' is not a principal: did you mean 'User:alice'?",
        ),
        (("list", "--principal", "user:alice"), "'user:alice' is not a principal: did you mean 'User:alice'?"),
        (("add", "--user", ":x", "--operation", "all", "--allow", "User:a"), "write such as User:alice"),
        (("add", "--producer", "--allow", "User:a"), "--producer needs --topic"),
        (("add", "--cluster", "--prefix", "--operation", "alter", "--allow", "User:a"), "--prefix does not apply"),
        (
            ("add", "--topic", "t", "--operation", "read", "--allow", "User:a", "--host", "localhost"),
            "not an IP address",
        ),
        (("add", "--cluster", "--operation", "read", "--allow", "User:a"), "READ does not exist for CLUSTER"),
        (("explain", "--operation", "read", "--principal", "User:a"), "give one resource"),
        (("explain", "--topic", "t", "--operation", "read", "--principal", "carol"), "did you mean 'User:carol'?"),
    ],
)
def test_a_wrong_command_line_says_what_is_right(broker: Broker, words: tuple[str, ...], message: str) -> None:
    assert message in run(broker, *words, code=2)


def test_acls_that_nobody_needed_are_found_in_the_usage_of_the_broker(broker: Broker) -> None:
    run(broker, "add", "--topic", "used", "--topic", "idle", "--operation", "write", "--allow", "User:ANONYMOUS")
    with Client(broker, ADMIN) as admin:
        admin.create("used")
        assert admin.produce("used", batch(b"v")).error_code == 0

    def found() -> bool:
        done = Command(broker.bootstrap_servers).run("acl", "unused", "--spool", str(broker.data_dir), "--json")
        names = {row["name"] for row in json.loads(done.stdout)} if done.returncode == 0 else set()
        assert done.returncode != 0 or "the spool has usage since 20" in done.stderr or not names
        return "idle" in names and "used" not in names

    until(found, "the spool has the produce, so that its ACL is used")


UNASKED = cast("Cluster", None)  # the ACLs are those of the test


def write_usage(directory: Path, principal: str = "User:c", api: str = "Fetch") -> None:
    """Two intervals: 12:00 to 18:00, and to 23:30. The principal has read the topic `used` in both."""
    clock = Clock(NOON)
    writer = spool(directory, clock=clock)
    for hours, requests in ((6, 1), (5.5, 2)):
        clock.advance(int(hours * HOUR))
        row = UsageRow(0, principal, "c", "used", 1, NOON, NOON, requests, *[0] * 7)
        assert writer.write([spool_rows.usage(row, {1: api})])


@pytest.mark.parametrize(
    ("rules", "since", "listed", "said", "warned"),
    [
        ([], "-30d", False, "no ACLs", ""),
        (["deny"], "-30d", False, "no ACL allows something; ACLs that deny are not judged", ""),
        (["used"], "-30d", False, "every ACL that allows something was needed since 2026-10-24 12:00 UTC", ""),
        (["used"], "-1h", False, "every ACL that allows something was needed since 2026-10-24 23:00 UTC", ""),
        (["used", "idle"], "-1h", True, "idle", ""),
        (["used", "idle"], "-30d", True, "idle", "since 2026-10-24 12:00 UTC only, not since 2026-09-25 00:00 UTC"),
    ],
)
def test_the_text_about_unused_acls_says_what_is_known(
    rules: list[str], since: str, listed: bool, said: str, warned: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    permissions = (Permission.ALLOW, Permission.DENY)

    def described(*_: object) -> list[Acl]:
        return [
            acl(TOPIC, rule, Operation.READ, principal="User:c", permission=permissions[rule == "deny"])
            for rule in rules
        ]

    monkeypatch.setattr("odradek.clients.acls.describe", described)
    write_usage(tmp_path)
    show_unused(UNASKED, "", 1, since, str(tmp_path), False, NOON + 12 * HOUR)
    shown = capsys.readouterr()
    assert said in (shown.out if listed else shown.err) and ("idle" in shown.out) == listed
    assert warned in shown.err and ("warning" in shown.err) == bool(warned)


@pytest.mark.parametrize(("api", "mentioned"), [("Fetch", True), ("SaslHandshake", False), ("ApiVersions", False)])
def test_usage_without_names_is_mentioned_except_before_a_login(
    api: str, mentioned: bool, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("odradek.clients.acls.describe", lambda *_: [acl(TOPIC, "idle", Operation.READ)])
    write_usage(tmp_path, "other", api)
    show_unused(UNASKED, "", 1, "-1h", str(tmp_path), False, NOON + 12 * HOUR)
    assert ("whose principal or topic was not recorded" in capsys.readouterr().err) == mentioned


@pytest.mark.parametrize(
    ("since", "written", "said"),
    [
        ("-10m", True, "has no usage since 2026-10-24 23:50 UTC, so it is not known which ACLs were needed"),
        ("-1h", False, "there is no spool in"),
        ("yesterday", True, "--since 'yesterday' is not a time"),
    ],
)
def test_unknown_usage_is_an_error(since: str, written: bool, said: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("odradek.clients.acls.describe", lambda *_: [acl(TOPIC, "idle", Operation.READ)])
    if written:
        write_usage(tmp_path)
    with pytest.raises(SystemExit):
        show_unused(UNASKED, "", 1, since, str(tmp_path), False, NOON + 12 * HOUR)
    shown = capsys.readouterr()
    assert said in shown.err and not shown.out


def test_without_metering_the_command_says_that_nothing_is_known(monkeypatch, capsys) -> None:
    monkeypatch.setattr("odradek.clients.acls.describe", lambda *_: [acl(TOPIC, "idle", Operation.READ)])
    with Broker({"usage.spool.max.bytes": 0, "metrics.listener": "127.0.0.1:0"}) as broker:
        address = broker.metrics_url.removeprefix("http://")
        monkeypatch.setattr(
            "odradek.cli.inspection.usage_source._configured_address", lambda *_: parse_address(address)
        )
        with pytest.raises(SystemExit):
            show_unused(UNASKED, broker.bootstrap_servers, 30, "-30d", None, False)
    shown = capsys.readouterr()
    assert "usage.spool.max.bytes is 0; so it is not known which ACLs were needed" in shown.err and not shown.out


def test_an_acl_is_needed_if_its_principal_used_what_it_allows() -> None:
    ways = {row.name: row.ways for row in BY_KEY.values()}
    rules = {
        "write": acl(TOPIC, "t", Operation.WRITE, principal="User:a"),
        "read": acl(TOPIC, "t", Operation.READ, principal="User:a"),
        "prefix": acl(TOPIC, "t", Operation.ALL, principal="User:*", pattern=PatternType.PREFIXED),
        "other": acl(TOPIC, "u", Operation.ALL, principal="User:a"),
        "describe": acl(TOPIC, "t", Operation.DESCRIBE, principal="User:c"),
        "group": acl(ResourceType.GROUP, "g", Operation.READ, principal="User:a"),
        "deny": acl(TOPIC, "v", Operation.ALL, permission=Permission.DENY),
    }

    def unneeded_after(*uses: Use) -> set[str]:
        found: list[Acl] = unneeded(list(rules.values()), uses, ways)
        return {name for name, rule in rules.items() if rule in found}

    everything = set(rules) - {"deny"}
    assert unneeded_after() == everything
    assert unneeded_after(Use("User:a", "Produce", "t")) == everything - {"write", "prefix"}
    assert unneeded_after(Use("User:b", "Fetch", "t1")) == everything - {"prefix"}
    assert unneeded_after(Use("User:a", "Heartbeat", None)) == everything - {"group"}
    assert unneeded_after(Use("User:c", "Metadata", None)) == everything - {"describe"}
    assert unneeded_after(Use("User:a", "Metadata", None)) == everything
    assert unneeded_after(Use("User:a", "DeleteTopics", None)) == everything - {"prefix", "other"}


def test_what_a_client_may_not_see_is_not_reported_as_empty_or_as_a_failure_of_the_broker() -> None:
    with Broker(CONFIG, topics={"t": 1}) as broker, Client(broker, ADMIN) as admin:
        assert admin.produce("t", batch(b"v")).error_code == 0
        command = Command(broker.bootstrap_servers)
        assert command.json("topic", "list", "--sizes")[0]["bytes"] > 0
        deny = {"host": ADMIN, "principal": "User:*", "permission": Permission.DENY}
        cluster = (ResourceType.CLUSTER, "kafka-cluster")
        rules = [acl(TOPIC, "*", Operation.DESCRIBE_CONFIGS, **deny)]
        rules += [acl(*cluster, operation, **deny) for operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)]
        assert admin.create_acls([*ACLS_OF_ADMIN, *rules]) == [0] * (len(ACLS_OF_ADMIN) + 3)
        created = command.run("produce", "new", "--create", stdin="v\n")
        assert created.returncode == 0 and "sent 1 record" in created.stderr, created
        assert command.json("topic", "list", "--sizes")[0]["bytes"] is None
        (finding,) = [row for row in command.json("doctor")["findings"] if row["subject"] == "settings"]
        assert finding["severity"] == "warning" and "DESCRIBE_CONFIGS" in finding["remedy"]
        command.refused("user", "list", words=["the broker's log names the principal and the missing right"])
        creating = [acl(*cluster, Operation.CREATE, **deny), acl(TOPIC, "*", Operation.CREATE, **deny)]
        assert admin.create_acls(creating) == [0, 0]
        assert command.refused("topic", "create", "x", words=["was not created"]).count("the broker's log names") == 1
