"""Kafka's command-line tools against this broker and against a real Kafka: they print the same, line for line.

Left out is what is each broker's own: addresses, directories, ids of topics and members, and times.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek._ext.api.offset_commits import partition_for
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk, assignment, subscription
from tests.clients.kafka_peer import Peer
from tests.clients.kafka_tools import KafkaTools, ToolResult
from tests.wire import batch

pytestmark = [pytest.mark.xdist_group("tools-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "log.segment.bytes": 1 << 20,
    "log.retention.ms": -1,
}
RECORDS = 40
START = 1_700_000_000_000
SETTLES_S = 90
READS = {"--describe", "--list"}
ALONE = ("verifiable-producer",)
"""Prints from threads of its own, and the last when its process ends."""
UNCOMPARED = (
    (re.compile(r"^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d.*\n", re.MULTILINE), ""),  # what the tool logs
    (re.compile(r"^\s+at .*\n", re.MULTILINE), ""),  # where in the tool
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<member>"),
    (re.compile(r"(?<![\w-])[A-Za-z0-9_-]{22}(?![\w-])"), "<id>"),
    (re.compile(r"(Error while executing topic command : |\.errors\.\w+: ).*"), r"\1<message>"),
    (re.compile(r"\b1[789]\d{11}\b"), "<now>"),
    (re.compile(r'("(target|avg)_throughput":)[-\d.]+'), r"\1<rate>"),
    # Kafka makes this a setting of the cluster, for what this broker does not have (eligible leader replicas)
    (re.compile(r"DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1(, )?|min\.insync\.replicas=1,"), ""),
    (re.compile(r"^  min\.insync\.replicas=1 .*\n", re.MULTILINE), ""),
    (re.compile(r" +"), " "),  # columns are as wide as what is in them
)
"""Parts that differ between the brokers, and messages for people: only the kind of error is compared."""


class Side:
    """One of the two brokers, and its tools."""

    def __init__(self, bootstrap_servers: str, data: Path, stack: ExitStack, scratch: Path) -> None:
        self.bootstrap_servers, self.data = bootstrap_servers, data
        self.tools = stack.enter_context(KafkaTools(bootstrap_servers, scratch))
        host, _, port = bootstrap_servers.rpartition(":")
        self.wire = stack.enter_context(GroupTalk(host, int(port)))
        assert_written(self, "topic")
        self.wire.until_coordinated("any")

    def output_of(self, tool: str, arguments: tuple[str, ...]) -> ToolResult:
        """The output of a tool, normalized for the comparison."""
        result = self.tools.run(tool, *arguments) if tool not in ALONE else self.tools.run_alone(tool, *arguments)
        return ToolResult(result.code, self._comparable(result.out), self._comparable(result.err))

    def _comparable(self, text: str) -> str:
        text = text.replace(self.bootstrap_servers, "<broker>").replace(str(self.data), "<data>")
        for pattern, instead in UNCOMPARED:
            text = pattern.sub(instead, text)
        # A rate or the value of a key can contain the digits of the port, or be equal to it.
        text = re.sub(rf"(?<![\d.,=]){self.bootstrap_servers.rpartition(':')[2]}(?![\d.])", "<port>", text)
        return re.sub(r"Configs: (.*)", lambda match: "Configs: " + ",".join(sorted(match[1].split(","))), text)


class Sides:
    """Odradek and Kafka."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self.ours, self.theirs = ours, theirs

    def on_both(self, act: Callable[[Side], object]) -> list[object]:
        """Call the function with each side, at the same time; return the results."""
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(act, (self.ours, self.theirs)))

    def same(self, tool: str, *arguments: str, arrange: Callable[[str], object] = str, code: int | None = 0) -> str:
        """Run a tool against both sides, whose exit codes and outputs must be equal; return the output.

        Kafka's brokers learn of a change some moments after its response, so a tool that only reads is repeated while the
        outputs differ.

        :param arrange: applied to the output before it is compared, if it has the order of a hash table.
        :param code: the exit code that the tool must have; None for any.
        """
        until = time.monotonic() + (SETTLES_S if READS.intersection(arguments) else 0)
        while True:
            ours, theirs = self.on_both(lambda side: side.output_of(tool, arguments))
            assert isinstance(ours, ToolResult) and isinstance(theirs, ToolResult)
            compared = [[result.code, arrange(result.out), arrange(result.err)] for result in (ours, theirs)]
            alike = compared[0] == compared[1] and code in (None, theirs.code)
            if alike or time.monotonic() > until:
                break
        if code is not None:
            assert theirs.code == code, theirs
        assert alike, difference(ours, theirs)
        return ours.out


def difference(ours: ToolResult, theirs: ToolResult) -> str:
    """The difference as text: Odradek's lines with "-", Kafka's with "+"."""
    texts = [[str(result.code), *result.out.splitlines(), *result.err.splitlines()] for result in (ours, theirs)]
    return "\n".join(difflib.unified_diff(*texts, lineterm="", n=0))


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    scratch = tmp_path_factory.mktemp("tools")
    with ExitStack() as stack:
        theirs = stack.enter_context(Peer(scratch / "kafka", CONFIG))
        ours = stack.enter_context(Broker(CONFIG, directory=scratch / "odradek"))
        yield Sides(
            Side(ours.bootstrap_servers, ours.data_dir, stack, scratch / "ours.err"),
            Side(theirs.bootstrap_servers, theirs.data_dir, stack, scratch / "theirs.err"),
        )


def lines(text: str) -> list[str]:
    """Sort output that the tool prints in the order of a hash table."""
    return sorted(text.splitlines())


def test_topics_are_created_changed_and_deleted(sides: Sides) -> None:
    create = ("topics", "--create", "--topic")
    made = ("--config", "retention.ms=86400001", "--config", "cleanup.policy=compact")
    assert "Created topic made." in sides.same(*create, "made", "--partitions", "3", "--replication-factor", "1", *made)
    sides.same(*create, "made", code=1)
    sides.same(*create, "made", "--if-not-exists")
    sides.same(*create, "with.dot")
    sides.same(*create, "assigned", "--replica-assignment", "1,1")
    for wrong in (
        ("bad name",),
        ("wide", "--replication-factor", "3"),
        ("none", "--partitions", "0"),
        ("wrong", "--config", "retention.ms=soon"),
        ("wrong", "--config", "no.such.key=1"),
        ("wrong", "--replica-assignment", "1,9"),
    ):
        sides.same(*create, *wrong, code=1)
    alter = ("topics", "--alter", "--topic")
    sides.same(*alter, "made", "--partitions", "5")
    for wrong in (("made", "--partitions", "4"), ("made", "--partitions", "5"), ("absent", "--partitions", "4")):
        sides.same(*alter, *wrong, code=1)
    sides.same(*alter, "absent", "--partitions", "4", "--if-exists")
    sides.same(*alter, "made", "--partitions", "6", "--replica-assignment", "1,1,1,1,1,1")
    assert "PartitionCount: 6" in sides.same("topics", "--describe", "--topic", "made")
    sides.same("topics", "--describe", "--topic", "made", "--partition-size-limit-per-response", "2")
    assert sides.same("topics", "--list").split() == ["__consumer_offsets", "assigned", "made", "topic", "with.dot"]
    sides.same("topics", "--list", "--exclude-internal")
    sides.same("topics", "--describe", arrange=lines)
    sides.same("topics", "--describe", "--exclude-internal", "--topics-with-overrides", arrange=lines)
    for which in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"):
        assert sides.same("topics", "--describe", which).strip() == ""
    sides.same("topics", "--describe", "--at-min-isr-partitions", arrange=lines)
    sides.same("topics", "--describe", "--topic", "absent", code=1)
    sides.same("topics", "--describe", "--topic", "absent", "--if-exists")
    sides.same("topics", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", code=1)
    sides.same("topics", "--delete", "--topic", "made")
    sides.same("topics", "--delete", "--topic", "made", code=1)
    sides.same("topics", "--delete", "--topic", "absent", "--if-exists")
    sides.same("topics", "--delete", "--topic", "assigned|with.*")
    assert sides.same("topics", "--list").split() == ["__consumer_offsets", "topic"]


OF_ONE_ONLY = re.compile(
    r" (message\.(downconversion\.enable|format\.version|timestamp\.difference\.max\.ms)|share\.|streams\.|odradek\.).*"
)
"""Keys for old clients, which Kafka 4 no longer serves; keys for kinds of groups that only Kafka has; keys of Odradek only."""


def of_both(text: str) -> list[str]:
    return [line for line in text.splitlines() if not OF_ONE_ONLY.match(line)]


def test_configurations_of_topics_and_groups(sides: Sides) -> None:
    sides.same("topics", "--create", "--topic", "settings")
    for kind, name, good, bad in (
        ("topics", "settings", "retention.ms=86400001,cleanup.policy=[delete,compact]", "retention.ms=soon"),
        ("groups", "group", "consumer.session.timeout.ms=50000", "consumer.session.timeout.ms=1"),
    ):
        where = ("--entity-type", kind, "--entity-name", name)
        sides.same("configs", "--alter", *where, "--add-config", good)
        assert good.split(",")[0] in sides.same("configs", "--describe", *where)
        sides.same("configs", "--describe", "--entity-type", kind, arrange=lines)
        sides.same("configs", "--describe", *where, "--all", arrange=of_both)
        sides.same("configs", "--alter", *where, "--add-config", bad, code=1)
        sides.same("configs", "--alter", *where, "--add-config", "no.such=1", code=1)
        keys = ",".join(setting.split("=")[0] for setting in good.split(",") if "=" in setting)
        sides.same("configs", "--alter", *where, "--delete-config", keys)
        assert good.split(",")[0] not in sides.same("configs", "--describe", *where)
    absent = ("--entity-type", "topics", "--entity-name", "absent")
    sides.same("configs", "--alter", *absent, "--add-config", "retention.ms=1", code=1)
    sides.same("configs", "--describe", "--topic", "absent", code=None)


def test_configurations_of_brokers(sides: Sides) -> None:
    single, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    sides.same("configs", "--alter", *single, "--add-config", "log.cleaner.threads=2,log.retention.ms=9000000000000")
    sides.same("configs", "--describe", *single)
    sides.same("configs", "--alter", *every, "--add-config", "log.retention.ms=9000000000001")
    for where in (single, every, ("--entity-type", "brokers")):
        assert "log.retention.ms=900000000000" in sides.same("configs", "--describe", *where)
    sides.same("configs", "--alter", *single, "--add-config", "log.dirs=/tmp", code=1)
    sides.same("configs", "--alter", *single, "--add-config", "log.cleaner.threads=-1", code=1)
    sides.same("configs", "--alter", *single, "--delete-config", "log.cleaner.threads,log.retention.ms")
    sides.same("configs", "--alter", *every, "--delete-config", "log.retention.ms")
    sides.same("configs", "--describe", *single)


OWN_VALUES = {
    "metric.reporters",
    "num.network.threads",
    "principal.builder.class",
    "remote.log.metadata.manager.class.name",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
}
"""Keys with another default: values that depend on the machine, Java classes, and a longer queue of new connections."""


def test_a_broker_has_all_of_kafkas_keys_with_kafkas_defaults(sides: Sides) -> None:
    ask = ("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")

    def keys(side: object) -> dict[str, str]:
        assert isinstance(side, Side)
        result = side.output_of("configs", ask)
        assert result.code == 0
        return {line.split("=")[0].strip(): line for line in result.out.splitlines() if " sensitive=" in line}

    ours, theirs = sides.on_both(keys)
    assert isinstance(ours, dict) and isinstance(theirs, dict)
    assert not theirs.keys() - ours.keys()
    configured = {key for key, line in [*ours.items(), *theirs.items()] if "STATIC_BROKER_CONFIG" in line}
    compared = theirs.keys() - configured - OWN_VALUES
    assert len(compared) > 250
    assert {key: ours[key] for key in compared} == {key: theirs[key] for key in compared}


def test_quotas(sides: Sides) -> None:
    user, client = ("--entity-type", "users", "--entity-name", "u"), ("--entity-type", "clients", "--entity-name", "c")
    sides.same("configs", "--alter", *user, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2048")
    sides.same("configs", "--alter", *user, *client, "--add-config", "request_percentage=50")
    everybody = ("--entity-type", "clients", "--entity-default")
    sides.same(
        "configs", "--alter", *everybody, "--add-config", "producer_byte_rate=1000000000"
    )  # Kafka holds us to it
    address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    sides.same("configs", "--alter", *address, "--add-config", "connection_creation_rate=10")
    sides.same("configs", "--alter", *user, "--add-config", "no_such_rate=10", code=1)
    for where in (user, (*user, *client), everybody, address, ("--entity-type", "users"), ("--entity-type", "ips")):
        assert "rate=" in (output := sides.same("configs", "--describe", *where, arrange=lines)) or "percent" in output
    sides.same("configs", "--alter", *user, "--delete-config", "producer_byte_rate")
    sides.same("configs", "--alter", *user, "--delete-config", "producer_byte_rate", code=1)
    assert "producer" not in sides.same("configs", "--describe", *user)


def test_offsets_deleted_records_and_log_dirs(sides: Sides, tmp_path: Path) -> None:
    sides.on_both(lambda side: assert_written(side, "offsets"))
    at = ("get-offsets", "--topic", "offsets")
    sides.same("get-offsets", "--exclude-internal-topics")
    for when in ("-1", "-2", "-3", "earliest", "latest", "max-timestamp", "earliest-local", "latest-tiered"):
        assert sides.same(*at, "--time", when) or when == "latest-tiered"
    assert sides.same(*at, "--time", str(START + 5500)).split() == ["offsets:0:6", "offsets:1:6"]
    sides.same(*at, "--time", str(START + 10**9))
    sides.same(*at, "--time", "soon", code=1)
    sides.same("get-offsets", "--topic", "absent", code=1)
    assert sides.same("get-offsets", "--topic-partitions", "offsets:1,off.*:0").count("offsets:") == 2
    sides.same(*at, "--partitions", "1")
    sides.same(*at, "--partitions", "9", code=1)
    size = sides.same("log-dirs", "--describe", "--topic-list", "offsets,absent")
    assert '"partition":"offsets-0","size":' in size and '"size":0' not in size
    sides.same("log-dirs", "--describe", "--topic-list", "offsets", "--broker-list", "1")
    sides.same("log-dirs", "--describe", "--broker-list", "7", code=1)
    for offsets, first in (((10, -1), [10, RECORDS]), ((RECORDS + 1, 5), [10, RECORDS])):
        wish = [{"topic": "offsets", "partition": n, "offset": offset} for n, offset in enumerate(offsets)]
        (tmp_path / "wish.json").write_text(json.dumps({"version": 1, "partitions": wish}))
        sides.same("delete-records", "--offset-json-file", str(tmp_path / "wish.json"), arrange=lines)
        expected = [f"offsets:{n}:{offset}" for n, offset in enumerate(first)]
        assert sides.same(*at, "--time", "earliest").split() == expected


def assert_written(side: Side, topic: str) -> None:
    """A topic of two partitions with 40 records each, a second apart."""
    side.wire.create(topic, 2)
    side.wire.until_led(topic, 2)
    for partition in range(2):
        for number in range(RECORDS):
            records = batch(b"%d" % number, timestamp=START + 1000 * number)
            assert side.wire.produce(topic, records, partition).error_code == 0


def test_groups_are_listed_and_described(sides: Sides) -> None:
    def live(side: Side) -> None:
        side.wire.commit("empty", {("topic", 0): 15, ("topic", 1): 40})
        joined = side.wire.join("watched", protocols=(("range", subscription("topic")),), session_timeout_ms=240_000)
        me, generation = joined.member_id, joined.generation_id
        side.wire.sync("watched", me, generation, assignments={me: assignment("topic", 0, 1)})
        held = {"member_id": me, "generation_id_or_member_epoch": generation}
        side.wire.commit("watched", {("topic", 0): 15}, **held)

    sides.on_both(live)
    for which in ((), ("--state",), ("--type",), ("--state", "stable"), ("--state", "empty"), ("--type", "classic")):
        assert "watched" in sides.same("groups", "--list", *which, arrange=lines) or "empty" in which
    for group in ("empty", "watched"):
        for what in ((), ("--members",), ("--state",), ("--offsets", "--verbose"), ("--members", "--verbose")):
            sides.same("groups", "--describe", "--group", group, *what)
    sides.same("groups", "--describe", "--all-groups", "--state", arrange=lines)
    for refused in (
        ("--describe", "--group", "absent"),
        ("--delete", "--group", "watched"),
        ("--reset-offsets", "--group", "watched", "--all-topics", "--to-earliest", "--execute"),
        ("--delete-offsets", "--group", "watched", "--topic", "topic"),
    ):
        assert "Error:" in sides.same("groups", *refused)
    sides.same("all-groups", "--list", arrange=lines)
    sides.same("all-groups", "--list", "--group-type", "classic", arrange=lines)


def test_offsets_of_groups_are_reset_and_deleted(sides: Sides, tmp_path: Path) -> None:
    sides.on_both(lambda side: side.wire.commit("reset", {("topic", 0): 15, ("topic", 1): 40}))
    reset = ("groups", "--reset-offsets", "--group", "reset", "--topic")
    sides.same(*reset, "topic", "--to-earliest")  # is not executed
    for where, how in (
        ("topic:0", ("--to-earliest",)),
        ("topic", ("--to-latest",)),
        ("topic", ("--shift-by", "-7")),
        ("topic", ("--shift-by", "-700")),
        ("topic", ("--to-offset", "12")),
        ("topic", ("--to-datetime", "2023-11-14T22:13:25.000Z")),
        ("topic", ("--by-duration", "P1D")),
    ):
        assert sides.same(*reset, where, *how, "--execute").split()[-3:-1] == ["topic", "0" if ":" in where else "1"]
    plan = sides.same(*reset, "topic", "--to-current", "--export", "--dry-run")
    (tmp_path / "plan.csv").write_text(plan)
    sides.same("groups", "--reset-offsets", "--group", "reset", "--from-file", str(tmp_path / "plan.csv"), "--execute")
    assert "Error" in sides.same(*reset, "absent", "--to-earliest", "--execute")
    sides.same("groups", "--describe", "--group", "reset")
    delete = ("groups", "--delete-offsets", "--group", "reset", "--topic")
    sides.same(*delete, "topic:1")
    sides.same(*delete, "topic:7", code=None)
    sides.same(*delete, "absent", code=None)
    assert "successfully: 'reset'" in sides.same("groups", "--delete", "--group", "reset", "--group", "absent")
    assert "reset" not in sides.same("groups", "--list", arrange=lines).split()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_producer_and_consumer(sides: Sides, protocol: str) -> None:
    topic = f"verified-{protocol}"

    def one_partition(side: Side) -> None:
        side.wire.create(topic)
        side.wire.until_led(topic)

    sides.on_both(one_partition)
    sent = sides.same("verifiable-producer", "--topic", topic, "--max-messages", "20", "--repeating-keys", "3")
    assert sent.count('"producer_send_success"') == 20
    read = ("--group-id", topic, "--max-messages", "20", "--reset-policy", "earliest", "--group-protocol", protocol)
    output = sides.same("verifiable-consumer", "--topic", topic, *read, "--verbose", arrange=without_counts)
    assert output.count('"record_data"') == 20
    sides.same("groups", "--describe", "--group", topic)
    sides.same("groups", "--describe", "--group", topic, "--state")


def without_counts(text: str) -> list[str]:
    """The lines without those that depend on time: records of a poll, commits except the last, empty assignments."""
    chance = ('"records_consumed"', '"offsets_committed"', '"partitions_assigned","partitions":[]')
    kept = [line for line in text.splitlines() if not any(name in line for name in chance)]
    committed = [line for line in text.splitlines() if chance[1] in line]
    return kept + committed[-1:]


def test_the_console_consumer(sides: Sides) -> None:
    shown = [
        part
        for field in ("partition", "offset", "timestamp", "key", "value")
        for part in ("--formatter-property", f"print.{field}=true")
    ]
    read = ("console-consumer", "--topic", "topic", "--from-beginning", "--max-messages", str(2 * RECORDS), *shown)
    assert len(sides.same(*read, "--group", "console", arrange=lines).splitlines()) == 2 * RECORDS
    sides.same("groups", "--describe", "--group", "console")
    last = ("--partition", "1", "--offset", str(RECORDS - 2), "--max-messages", "2")
    assert sides.same("console-consumer", "--topic", "topic", *last).split() == [str(RECORDS - 2), str(RECORDS - 1)]


NEWER_VALUES = re.compile(r'"version":[34],|,"topicId":"[^"]*"')
"""Kafka 4 writes version 4; this broker version 3, which readers of any age know."""


EMPTY = '"protocolType":""'
"""Kafka notes a group when its first member receives an id; this broker when the group has a generation."""


@pytest.mark.parametrize("formatter", ["OffsetsMessageFormatter", "GroupMetadataMessageFormatter"])
def test_the_formatters_of_the_offsets_topic(sides: Sides, formatter: str) -> None:
    """The records of a group, from its join to its deletion."""
    group = f"formatted-{formatter}"
    partition = partition_for(group, int(CONFIG["offsets.topic.num.partitions"]))

    def end(side: Side) -> int:
        return int(side.wire.offset_at("__consumer_offsets", -1, partition).offset)

    def live(side: Side) -> None:
        joined = side.wire.join(group, protocols=(("range", subscription("topic")),), session_timeout_ms=240_000)
        me, generation = joined.member_id, joined.generation_id
        side.wire.sync(group, me, generation, assignments={me: assignment("topic", 0, 1)})
        held = {"member_id": me, "generation_id_or_member_epoch": generation}
        side.wire.commit(group, {("topic", 0): (15, "a note"), ("topic", 1): 16}, **held)
        side.wire.leave(group, (me, None))
        side.wire.delete_groups(group)

    def formatted(side: Side) -> list[str]:
        first = end(side)
        live(side)
        at = ("--topic", "__consumer_offsets", "--partition", str(partition), "--offset", str(first))
        shown = ("--formatter", f"org.apache.kafka.tools.consumer.{formatter}")
        printed = side.output_of("console-consumer", (*at, "--max-messages", str(end(side) - first), *shown))
        each = re.split(r"(?<=\})(?=\{)", printed.out.replace("\n", ""))
        return [NEWER_VALUES.sub("", entry) for entry in each if f'"{group}"' in entry and EMPTY not in entry]

    ours, theirs = sides.on_both(formatted)
    assert isinstance(ours, list) and isinstance(theirs, list) and len(theirs) >= 3
    assert ours == theirs, "\n".join(difflib.unified_diff(ours, theirs, lineterm="", n=0))


def test_elections_reassignments_and_transactions(sides: Sides, tmp_path: Path) -> None:
    for which in (("--all-topic-partitions",), ("--topic", "topic", "--partition", "0")):
        for kind in ("preferred", "unclean"):
            sides.same("leader-election", "--election-type", kind, *which)
    absent = ("--topic", "absent", "--partition", "0")
    sides.same("leader-election", "--election-type", "preferred", *absent, code=1)
    sides.same("reassign-partitions", "--list")
    wish = {"version": 1, "partitions": [{"topic": "topic", "partition": 0, "replicas": [1], "log_dirs": ["any"]}]}
    (tmp_path / "wish.json").write_text(json.dumps(wish))
    for verb in ("--execute", "--verify"):
        sides.same("reassign-partitions", verb, "--reassignment-json-file", str(tmp_path / "wish.json"))
    sides.same("transactions", "list")
    sides.same("transactions", "describe-producers", "--topic", "topic", "--partition", "0")
