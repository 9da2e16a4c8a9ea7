"""`odradek transaction`, `doctor` and `consume --isolation`: the same commands, with the same results, against Kafka and this
broker."""

import itertools
import json
from types import SimpleNamespace

import pytest

from odradek.clients.transactions import OPEN
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_producers
from odradek.testing import Broker
from tests.cli.command import Command
from tests.cli.transaction.transaction_talk import TransactionTalk
from tests.clients.kafka_peer import Peer
from tests.clients.kafka_tools import KafkaTools
from tests.waiting import until

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("cli-transactions")]

CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 3,
    "transaction.partition.verification.enable": "false",  # so that a test can make a hanging transaction
}
AN_HOUR_MS = 3_600_000
LIMIT_MS = 900_000 + 300_000
_numbers = itertools.count()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("kafka", marks=pytest.mark.java),
        "odradek",
    ],
)
def cluster(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    peer = Peer(directory, CONFIG) if request.param == "kafka" else Broker(CONFIG, directory=directory)
    with peer as running:
        host, _, port = running.bootstrap_servers.rpartition(":")
        with TransactionTalk(host, int(port)) as talk:
            servers = running.bootstrap_servers
            log = None if request.param == "kafka" else lambda: running.log_file.read_text(errors="replace")
            yield SimpleNamespace(odradek=Command(servers), talk=talk, bootstrap_servers=servers, log=log)


@pytest.fixture
def odradek(cluster):
    return cluster.odradek


@pytest.fixture
def talk(cluster):
    return cluster.talk


@pytest.fixture
def name():
    """A name for a topic and the beginning of transactional ids, unique to the test."""
    return f"transactions-{next(_numbers)}"


@pytest.fixture
def topic(talk, name):
    """A topic of three partitions."""
    talk.create(name, 3)
    talk.until_led(name, 3)
    return name


def states(odradek, *options):
    return {row["transactional_id"]: row["state"] for row in odradek.json("transaction", "list", *options)}


def made_hanging(talk, topic, partition, ago_ms=AN_HOUR_MS):
    """A transaction that no coordinator has; its producer."""
    producer = talk.init(f"{topic}-rotated")
    talk.write(f"{topic}-rotated", producer, topic, partition, ago_ms=ago_ms)
    return producer


def ended(talk, odradek, name, commits):
    """End the transaction of an id, and wait until the coordinator has completed it."""
    producer = talk.open(name, name.rpartition("/")[0], 0)
    assert talk.end(name, producer, commits) == 0
    until(lambda: states(odradek, "--match", name)[name].startswith("Complete"), "the transaction has ended")


def test_ids_are_listed_by_state_producer_age_and_name(odradek, talk, topic):
    ended(talk, odradek, f"{topic}/committed", True)
    ended(talk, odradek, f"{topic}/aborted", False)
    producer, _ = talk.open(f"{topic}/open", topic, 0, 1)
    talk.init(f"{topic}/new")
    mine = ("--match", f"{topic}/*")
    everything = {"committed": "CompleteCommit", "aborted": "CompleteAbort", "open": "Ongoing", "new": "Empty"}
    assert states(odradek, *mine) == {f"{topic}/{word}": state for word, state in everything.items()}
    assert states(odradek, *mine, "--state", "ongoing") == {f"{topic}/open": "Ongoing"}
    assert len(states(odradek, *mine, "--state", "ongoing", "--state", "empty")) == 2
    assert states(odradek, "--producer-id", producer) == {f"{topic}/open": "Ongoing"}
    assert states(odradek, "--match", f"{topic}/[cn]*").keys() == {f"{topic}/committed", f"{topic}/new"}
    assert states(odradek, "--match", f"{topic}/") == {}
    until(lambda: states(odradek, *mine, "--older-than", "10ms") == {f"{topic}/open": "Ongoing"}, "it is 10 ms old")
    assert states(odradek, *mine, "--older-than", "1h") == {}
    (row,) = odradek.json("transaction", "list", "--match", f"{topic}/open")
    assert row["producer_id"] == producer and row["coordinator"] == 1 and row["open_ms"] >= 0
    assert f"{topic}/open" in odradek("transaction", "list")
    nothing = odradek.run("transaction", "list", "--match", "nothing")
    assert (nothing.returncode, nothing.stderr) == (0, "no transactional ids match\n")
    assert talk.end(f"{topic}/open", (producer, 0), True) == 0


def test_an_id_is_described(odradek, talk, topic):
    producer = talk.open(topic, topic, 0, 2, timeout_ms=30_000)
    (described,) = odradek.json("transaction", "describe", topic)
    places = [{"topic": topic, "partition": number} for number in (0, 2)]
    assert described.pop("started_ms") > 0
    assert described == {
        "transactional_id": topic,
        "coordinator": 1,
        "state": "Ongoing",
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "timeout_ms": 30_000,
        "partitions": places,
    }
    output = odradek("transaction", "describe", topic)
    assert f"partitions: {topic}-0, {topic}-2" in output and "transaction timeout: 30000 ms (30 s)" in output
    odradek.refused("transaction", "describe", "nobody", words=["'nobody' does not exist", "odradek transaction list"])
    for options in ((), ("--json",)):
        several = odradek.run("transaction", "describe", "nobody", topic, "no-one", *options)
        assert several.returncode == 1 and topic in several.stdout
        assert [line.split("'")[1] for line in several.stderr.splitlines()] == ["nobody", "no-one"]
    assert talk.end(topic, producer, True) == 0


def test_the_transaction_of_an_id_is_aborted_and_its_producer_fenced(odradek, talk, topic):
    producer = talk.open(topic, topic, 0, 1, timeout_ms=30_000)
    odradek.refused("transaction", "abort", topic, words=["--yes", topic, "2 partitions"])
    assert states(odradek, "--match", topic) == {topic: "Ongoing"}
    aborted = odradek.json("transaction", "abort", topic, "--yes")
    assert (aborted["transactional_id"], aborted["aborted"], aborted["producer_id"]) == (topic, True, producer[0])
    assert aborted["producer_epoch"] > producer[1]
    assert talk.end(topic, producer, True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    (described,) = odradek.json("transaction", "describe", topic)
    assert described["timeout_ms"] == 30_000 and described["partitions"] == []
    assert odradek("consume", topic, "--from", "beginning", "--exit") == ""
    odradek.refused("transaction", "abort", topic, "--yes", words=["no open transaction"])
    odradek.refused("transaction", "abort", "nobody", "--yes", words=["'nobody' does not exist"])


def last_marker(talk, topic, partition, producer_id):
    """The producer epoch and coordinator epoch of a producer in a partition: after an abort, those of its last marker."""
    make = describe_producers.Request
    request = make(topics=[make.TopicRequest(name=topic, partition_indexes=[partition])])
    (described,) = talk.ask(request, describe_producers.API_KEY, 0).topics[0].partitions
    (found,) = (each for each in described.active_producers if each.producer_id == producer_id)
    assert found.current_txn_start_offset == -1
    return found.producer_epoch, found.coordinator_epoch


def test_a_dry_run_names_the_markers_that_an_abort_writes(odradek, talk, topic):
    talk.open(topic, topic, 0, 2)
    hanging, _ = made_hanging(talk, topic, 1)
    ends = [talk.latest(topic, partition) for partition in range(3)]
    commands = (topic,), ("--topic", topic, "--partition", 1, "--start-offset", 0)
    of_id, in_partition = (odradek.json("transaction", "abort", *each, "--dry-run")["markers"] for each in commands)
    assert [marker["partition"] for marker in of_id] == [0, 2]
    assert [(marker["partition"], marker["producer_id"]) for marker in in_partition] == [(1, hanging)]
    assert states(odradek, "--match", topic) == {topic: "Ongoing"}
    assert [talk.latest(topic, partition) for partition in range(3)] == ends
    for command in commands:
        odradek("transaction", "abort", *command, "--yes")
    for marker in (*of_id, *in_partition):
        written = last_marker(talk, topic, marker["partition"], marker["producer_id"])
        assert written == (marker["producer_epoch"], marker["coordinator_epoch"])


def test_the_broker_logs_who_ended_a_transaction_and_why_a_producer_was_refused(cluster, odradek, talk, topic):
    if cluster.log is None:
        pytest.skip("a log of this broker")
    verification = "transaction.partition.verification.enable is false"
    assert cluster.log().count(verification) == 1
    producer, epoch = talk.open(topic, topic, 0)
    odradek("transaction", "abort", topic, "--yes")
    aborted = f"aborting the transaction of '{topic}' (producer id {producer}, epoch {epoch}), and fencing its producer"
    hanging = made_hanging(talk, topic, 1)
    odradek("transaction", "abort", "--topic", topic, "--partition", 1, "--start-offset", 0, "--yes")
    marker = (
        f"wrote an abort marker of producer id {hanging[0]} (epoch {hanging[1]}, coordinator epoch 0) into {topic}-1"
    )
    long = ("-X", f"transactional.id={topic}-long", "-X", "transaction.timeout.ms=900001")
    odradek.refused("produce", topic, *long, stdin="a\n", words=["900001", "900000"])
    assert talk.refused(f"{topic}-long", 900_001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    refused = (
        f"transactional id '{topic}-long': its transaction.timeout.ms is 900001, and the broker allows 1 to 900000"
    )
    until(lambda: refused in cluster.log(), cluster.log)
    lines = cluster.log().splitlines()
    assert [sum(words in line for line in lines) for words in (aborted, marker, refused)] == [1, 1, 2]
    assert not any("WARN" in line for line in lines if aborted in line or marker in line or refused in line)


def test_a_hanging_transaction_is_found_and_ended_by_the_command_that_is_printed(odradek, talk, topic):
    waiting = talk.open(f"{topic}-known", topic, 0, 1)
    late = made_hanging(talk, topic, 2)
    where = ("transaction", "hanging", "--topic", f"{topic[:-1]}*", "--json")
    done = odradek.run(*where)
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["limit_ms"] == LIMIT_MS and found["unchecked"] == []
    (hanging,) = (row for row in found["hanging"] if row["topic"] == topic)
    assert (hanging["partition"], hanging["start_offset"], hanging["blocked_offsets"]) == (2, 0, 1)
    assert (hanging["producer_id"], hanging["producer_epoch"]) == late
    assert "has no open transaction" in hanging["reason"]
    text = odradek.run("transaction", "hanging", "--topic", topic)
    assert text.returncode == 1 and hanging["command"] in text.stdout
    doctor = json.loads(odradek.run("doctor", "--json").stdout)
    (finding,) = (row for row in doctor["findings"] if "hanging transaction" in row["what"])
    assert hanging["command"] in finding["remedy"] and f"{topic}-2" in finding["subject"]
    assert finding["severity"] == "error" and "1 offset is blocked" in finding["reason"]
    odradek(*hanging["command"].split()[1:], "--yes")
    assert json.loads(odradek.run(*where).stdout)["hanging"] == []
    assert odradek.run("transaction", "hanging", "--topic", topic).returncode == 0
    talk.write(f"{topic}-known", waiting, topic, 1, sequence=1)
    assert talk.end(f"{topic}-known", waiting, True) == 0


def test_only_late_transactions_are_hanging(odradek, talk, topic):
    made_hanging(talk, topic, 0, ago_ms=60_000)
    where = ("transaction", "hanging", "--topic", topic)
    done = odradek.run(*where)
    assert done.returncode == 0 and "1 younger open transaction has no owner" in done.stderr
    assert odradek.run(*where, "--max-transaction-timeout", 0).returncode == 1
    assert odradek.run(*where, "--max-transaction-timeout", "2m").returncode == 0
    assert odradek.run(*where, "--max-transaction-timeout", "30s").returncode == 1
    assert odradek.run(*where, "--max-transaction-timeout", "30s", "--broker-id", 1).returncode == 1
    odradek.refused(*where, "--broker-id", 7, words=["no broker 7"])
    odradek.refused("transaction", "hanging", "--topic", "absent", words=["'absent' does not exist"])
    odradek("transaction", "abort", "--topic", topic, "--partition", 0, "--start-offset", 0, "--yes")


def test_a_late_transaction_that_its_coordinator_knows_is_not_hanging(odradek, talk, topic):
    producer = talk.init(topic)
    talk.add(topic, producer, topic, 0)
    talk.write(topic, producer, topic, 0, ago_ms=AN_HOUR_MS)
    done = odradek.run("transaction", "hanging", "--topic", topic)
    assert done.returncode == 0 and f"odradek transaction abort {topic}" in done.stderr
    abort = ("transaction", "abort", "--topic", topic, "--partition", 0, "--start-offset", 0, "--yes")
    odradek.refused(*abort, words=["not hanging", f"odradek transaction abort {topic}", "--force"])
    odradek(*abort, "--force")
    assert talk.latest(topic, 0) == 2
    assert talk.end(topic, producer, False) == 0


def test_a_marker_is_written_for_a_named_producer(odradek, talk, topic):
    producer, epoch = made_hanging(talk, topic, 0)
    abort = ("transaction", "abort", "--topic", topic, "--partition", 0)
    odradek.refused(*abort, "--start-offset", 7, "--yes", words=["begin at 0"])
    odradek.refused("transaction", "abort", "--topic", topic, "--partition", 9, "--start-offset", 0, words=["0 to 2"])
    odradek.refused(*abort, "--producer-id", producer, code=2, words=["--producer-epoch", "--coordinator-epoch"])
    odradek.refused("transaction", "abort", "id", "--topic", topic, code=2, words=["either ID"])
    odradek.refused("transaction", "abort", code=2, words=["--topic", "odradek transaction hanging"])
    odradek.refused("transaction", "abort", "--topic", topic, code=2, words=["--partition is missing"])
    both = ("--start-offset", 0, "--producer-id", producer)
    odradek.refused(*abort, *both, code=2, words=["either --start-offset", "not both"])
    named = ("--producer-id", producer, "--producer-epoch", epoch, "--coordinator-epoch", -1)
    done = odradek.json(*abort, *named, "--yes")
    assert done == {
        "topic": topic, "partition": 0, "aborted": True, "producer_id": producer, "producer_epoch": epoch,
    }  # fmt: skip
    odradek.refused(*abort, "--start-offset", 0, "--yes", words=["has no open transaction"])


def test_a_marker_for_a_named_producer_is_refused_unless_the_partition_has_its_transaction(odradek, talk, topic):
    producer, epoch = made_hanging(talk, topic, 0)
    idle, _ = idle_producer = talk.open(f"{topic}-idle", topic, 1)
    assert talk.end(f"{topic}-idle", idle_producer, True) == 0
    until(lambda: states(odradek, "--match", f"{topic}-idle")[f"{topic}-idle"] == "CompleteCommit", "it has ended")

    def abort(partition, producer_id, producer_epoch, coordinator_epoch):
        return (
            "transaction", "abort", "--topic", topic, "--partition", partition, "--producer-id", producer_id,
            "--producer-epoch", producer_epoch, "--coordinator-epoch", coordinator_epoch, "--yes",
        )  # fmt: skip

    ends = [talk.latest(topic, partition) for partition in (0, 1)]
    absent = producer + 100_000
    real = f"producer {producer} (epoch {epoch}, coordinator epoch -1) from offset 0"
    odradek.refused(*abort(0, absent, 0, -1), words=[f"producer {absent} has no open transaction in {topic}-0", real])
    odradek.refused(*abort(0, producer, epoch + 7, -1), words=[f"has epoch {epoch} in {topic}-0, not {epoch + 7}"])
    odradek.refused(*abort(0, producer, epoch + 7, -1), "--force", words=[f"has epoch {epoch} in {topic}-0"])
    odradek.refused(*abort(0, producer, epoch, 50), words=["the coordinator epoch of", "is -1, not 50"])
    odradek.refused(*abort(1, idle, 0, 50), "--force", words=["the coordinator epoch of", "is 0, not 50"])
    odradek.refused(*abort(1, idle, 0, 0), words=["the partition has no open transaction"])
    assert [talk.latest(topic, partition) for partition in (0, 1)] == ends
    assert odradek.run(*abort(0, absent, 0, -1), "--force").stdout == (
        f"wrote an abort marker of producer {absent} (epoch 0) into {topic}-0\n"
    )
    odradek(*abort(0, producer, epoch, -1))
    assert [talk.latest(topic, partition) for partition in (0, 1)] == [ends[0] + 2, ends[1]]


def test_isolation_decides_what_consume_reads(odradek, talk, topic):
    aborted = talk.open(f"{topic}/aborted", topic, 0)
    assert talk.end(f"{topic}/aborted", aborted, False) == 0
    until(lambda: talk.fetch(topic, 0, isolation_level=1).last_stable_offset == 2, "the marker of the abort is written")
    committed = talk.open(f"{topic}/committed", topic, 0)
    assert talk.end(f"{topic}/committed", committed, True) == 0
    until(lambda: talk.fetch(topic, 0, isolation_level=1).last_stable_offset == 4, "both markers are written")
    still_open = talk.open(f"{topic}/open", topic, 0)
    read = ("consume", topic, "--from", "beginning", "--exit", "-f", "{offset} ")
    done = odradek.run(*read)
    assert (
        done.stdout == "2 "
        and f"{topic}-0 is read up to its last stable offset, 1 offset before its end" in done.stderr
    )
    assert odradek.run(*read, "--isolation", "read_committed").stdout == "2 "
    for everything in (("--isolation", "read_uncommitted"), ("--uncommitted",)):
        done = odradek.run(*read, *everything)
        assert (done.stdout, done.stderr) == ("0 2 4 ", "")
    assert talk.end(f"{topic}/open", still_open, True) == 0
    until(lambda: odradek.run(*read).stdout == "2 4 ", "the marker is written")


def test_produce_with_a_transactional_id_sends_one_transaction(odradek, talk, topic):
    produce = ("produce", topic, "-p", 0, "-X", f"transactional.id={topic}")
    done = odradek.run(*produce, stdin="a\nb\n")
    assert (done.returncode, done.stderr) == (
        0,
        f"sent 2 records to {topic}, in one transaction, which was committed\n",
    )
    assert odradek("consume", topic, "--from", "beginning", "--exit") == "a\nb\n"
    odradek.refused(*produce, "-f", "json", stdin='{"value": "c"}\nwrong\n', words=["line 2", "was not committed"])
    assert odradek("consume", topic, "--from", "beginning", "--exit") == "a\nb\n"
    assert states(odradek, "--match", topic) == {topic: "CompleteAbort"}


def test_the_settings_of_a_transaction_are_checked_before_it_begins(odradek, topic):
    produce = ("produce", topic, "-p", 0, "-X", f"transactional.id={topic}")

    def refused(*options, words):
        odradek.refused(*produce, *options, stdin="a\n", words=words)

    refused("--acks", "1", words=["a transaction needs --acks all, not --acks 1"])
    refused("-X", "transaction.timeout.ms=abc", words=["transaction.timeout.ms=abc is not valid", "1000 or more"])
    refused("-X", "transaction.timeout.ms=999", words=["transaction.timeout.ms=999 is not valid"])
    refused("-X", "transaction.timeout.ms=900001", words=["900001 is longer than transaction.max.timeout.ms", "900000"])
    both = ("-X", "transaction.timeout.ms=5000", "-X", "message.timeout.ms=6000")
    refused(*both, words=["message.timeout.ms=6000 is longer than transaction.timeout.ms=5000"])
    refused("-X", "linger.ms=abc", words=["Invalid value for configuration property", "linger.ms=abc"])
    assert states(odradek, "--match", topic) == {}
    odradek(*produce, "-X", "transaction.timeout.ms=20000", stdin="a\n")
    assert states(odradek, "--match", topic) == {topic: "CompleteCommit"}


def test_the_deletion_of_an_internal_topic_is_confirmed_with_what_is_lost(odradek, talk, topic):
    producer = talk.open(topic, topic, 0)
    ids = len(states(odradek))
    unfinished = len(states(odradek, *(word for state in OPEN for word in ("--state", state))))
    assert unfinished >= 1
    lost = f"forgets {ids} transactional id", f"{unfinished} unfinished transaction"
    odradek.refused("topic", "delete", "__transaction_state", words=[*lost, "will hang", "add --yes"])
    odradek("consume", topic, "--group", f"{topic}-group", "--from", "beginning", "--exit")
    groups = len(odradek.json("group", "list"))
    assert groups >= 1
    lost = f"{groups} group", "lose their members and committed offsets"
    odradek.refused("topic", "delete", "__consumer_offsets", words=[*lost, "add --yes"])
    assert "lose" not in odradek.refused("topic", "delete", topic, words=["add --yes"])
    assert states(odradek, "--match", topic) == {topic: "Ongoing"}
    assert talk.end(topic, producer, True) == 0


@pytest.mark.java
def test_kafkas_tool_finds_the_same_hanging_transactions(cluster, odradek, talk, topic, tmp_path):
    producer, epoch = made_hanging(talk, topic, 1)
    talk.open(f"{topic}-known", topic, 0)
    (mine,) = json.loads(odradek.run("transaction", "hanging", "--topic", topic, "--json").stdout)["hanging"]
    with KafkaTools(cluster.bootstrap_servers, tmp_path / "errors") as tools:
        found = tools.run("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "5")
        assert found.code == 0, found
        rows = [line.split() for line in found.out.splitlines() if line.startswith(topic)]
        (described,) = odradek.json("transaction", "describe", f"{topic}-known")
        theirs = tools.run("transactions", "describe", "--transactional-id", f"{topic}-known")
    assert [row[:6] for row in rows] == [
        [topic, "1", str(producer), str(epoch), str(mine["coordinator_epoch"]), str(mine["start_offset"])]
    ]
    words = theirs.out.splitlines()[-1].split()
    assert words[:6] == [
        str(described[name])
        for name in ("coordinator", "transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms")
    ]
    odradek("transaction", "abort", f"{topic}-known", "--yes")
    odradek(*mine["command"].split()[1:], "--yes")
