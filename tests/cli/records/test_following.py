"""Commands that follow something: topics that are created meanwhile, and a reader of the output that ends."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.cli.framework.lazy import CLOSED_PIPE
from odradek.cli.records.consume import consume
from odradek.cli.records.reading import LOOK_EVERY_S, NewPartitions, Selection, matching
from odradek.clients.cluster import Cluster, TopicInfo, View
from odradek.clients.errors import RefusedError, UnreachableError
from odradek.protocol.schemas import metadata
from odradek.testing import Broker
from tests.cli.command import Command
from tests.cli.stub_broker import StubBroker
from tests.cli.stub_cluster import StubCluster
from tests.waiting import until

MAIN = [sys.executable, "-m", "odradek.cli"]
PATIENCE_S = 90
READERS = ([], ["-X", "fetch.min.bytes=1"], ["-g", "followers"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = {"group.initial.rebalance.delay.ms": 0, "metrics.listener": "127.0.0.1:0"}
    with Broker(config, directory=tmp_path_factory.mktemp("following"), topics={"t": 1}) as broker:
        Command(broker.bootstrap_servers)("produce", "t", stdin="a\nb\nc\n")
        yield broker


@contextmanager
def started(broker, *arguments, stdout):
    """The command while it runs, with its standard error in a pipe."""
    servers = {"ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    servers["ODRADEK_METRICS"] = broker.metrics_url.removeprefix("http://")
    environment = os.environ | servers
    with subprocess.Popen(
        [*MAIN, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # a shell may have started the tests with it ignored
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("options", READERS, ids=["own-client", "librdkafka", "group"])
def test_topics_that_are_created_are_followed_and_excluded_ones_are_not(broker, name, tmp_path, options):
    odradek = Command(broker.bootstrap_servers)
    for kind in ("eu", "tmp.1"):
        odradek("produce", f"{name}.{kind}", "--create", stdin="1\n")
    selected = ("-r", rf"{name}\..*", "--exclude", rf"{name}\.tmp.*", "--from", "beginning")
    with (
        (tmp_path / "records").open("wb") as records,
        started(broker, "consume", *selected, *options, stdout=records) as process,
    ):

        def read():
            return (tmp_path / "records").read_text().splitlines()

        def message():
            return f"{read()} {process.poll()} {broker.log_tail()}"

        until(lambda: read() == [f"{name}.eu\t1"], message, PATIENCE_S)
        for kind in ("tmp.2", "us"):
            odradek("produce", f"{name}.{kind}", "--create", stdin="1\n2\n")
        odradek("topic", "alter", f"{name}.us", "-p", 2)
        expected = [f"{name}.eu\t1", f"{name}.us\t1", f"{name}.us\t2"]
        until(lambda: read() == expected, message, PATIENCE_S)
        if not options:  # librdkafka looks for new partitions of a group's topics itself, and rarely
            odradek("produce", f"{name}.us", "-p", 1, stdin="3\n")
            until(lambda: read() == [*expected, f"{name}.us\t3"], message, PATIENCE_S)


def test_topics_are_selected_by_patterns_and_regular_expressions(broker, name):
    odradek = Command(broker.bootstrap_servers)
    for kind in ("a1", "a2", "b1"):
        odradek("produce", f"{name}-{kind}", "--create", stdin=f"{kind}\n")

    def read(*words):
        lines = odradek("consume", *words, "--from", "beginning", "--exit").splitlines()
        return sorted(line.split("\t")[-1] for line in lines)

    assert read("-r", f"{name}-a.") == read(f"{name}-a*") == ["a1", "a2"]
    assert read("-r", f"{name}-(a2|b1)") == read(f"{name}-*", "--exclude", "*-a1") == ["a2", "b1"]
    assert read("-r", f"{name}-.*", "--exclude", ".*1", "--exclude", "x") == ["a2"]
    assert odradek("consume", f"{name}-a1", "--from", "beginning", "--exit") == "a1\n"
    assert odradek("consume", f"{name}-a1*", "--from", "beginning", "--exit") == f"{name}-a1\ta1\n"
    assert odradek("consume", f"{name}-a1*", "-f", "value", "--from", "beginning", "--exit") == "a1\n"
    odradek.refused("consume", "-r", f"{name}-a", words=[f"no topic matches '{name}-a'", "odradek topic list"])
    odradek.refused("consume", f"{name}-a*", "--exclude", "*", words=["--exclude leaves no topic of", f"{name}-a*"])
    odradek.refused("consume", "-r", "a[", code=2, words=["--regex 'a['", "not a valid regular expression"])
    odradek.refused("consume", "-r", "a", "--exclude", "b(", code=2, words=["--exclude 'b('"])
    odradek.refused("consume", "-r", "(?L)x", code=2, words=["--regex '(?L)x'", "not a valid regular expression"])
    odradek.refused("consume", "t", "--grep", "a{99999999999}", code=2, words=["--grep", "not a valid"])
    assert read("-r", rf"{name}\N{{HYPHEN-MINUS}}a1") == ["a1"]


@pytest.mark.parametrize(
    ("words", "named"), [(["t"], ["t"]), (["t", "u"], ["t", "u"]), (["t", "u*"], None), (["[tu]"], None)]
)
def test_only_patterns_request_the_metadata_of_all_topics(words, named):
    class Asked(Cluster):
        def metadata(self, topics=None):
            asked.append(topics)
            return View(None, 1, {}, {}, {name: TopicInfo(name, bytes(16), False, ()) for name in ("t", "u")})

    asked = []
    assert matching(Asked("127.0.0.1:1"), Selection(words)) == []
    assert asked == [named]


def test_internal_topics_must_be_named(broker, name):
    Command(broker.bootstrap_servers)("consume", "t", "-g", name, "--exit")
    with Cluster(broker.bootstrap_servers) as cluster:
        for selection in (Selection(["*"]), Selection([".*"], regex=True), Selection(["__.*", "t"], regex=True)):
            try:
                topics = {part.topic for part in matching(cluster, selection)}
            except RefusedError as error:
                assert "no topic matches '__.*'" in str(error)
            else:
                assert "t" in topics and not any(topic.startswith("__") for topic in topics)
        for is_regex in (False, True):
            assert matching(cluster, Selection(["__consumer_offsets"], is_regex))[0].topic == "__consumer_offsets"


def test_new_partitions_are_looked_for_at_an_interval_and_found_once(broker, name):
    odradek = Command(broker.bootstrap_servers)
    odradek("topic", "create", f"{name}-1")
    time = SimpleNamespace(now=100.0)
    with Cluster(broker.bootstrap_servers) as cluster:
        selection = Selection([f"{name}-*"])
        created = NewPartitions(cluster, selection, matching(cluster, selection), lambda: time.now)
        odradek("topic", "create", f"{name}-2")
        assert created.look() == {}
        time.now += LOOK_EVERY_S
        assert created.look() == {(f"{name}-2", 0): 0}
        odradek("topic", "alter", f"{name}-1", "-p", 2)
        assert created.look() == {}
        time.now += LOOK_EVERY_S
        assert created.look() == {(f"{name}-1", 1): 0}
        time.now += LOOK_EVERY_S
        assert created.look() == {}


def test_a_broker_that_is_away_has_no_new_partitions():
    class Away(Cluster):
        def metadata(self, topics=None):
            raise UnreachableError("away")

    time = SimpleNamespace(now=100.0)
    created = NewPartitions(Away("127.0.0.1:1"), Selection(["t*"]), [], lambda: time.now)
    time.now += LOOK_EVERY_S
    assert created.look() == {}


def test_a_new_partition_is_read_while_its_leader_has_a_request_in_flight(capfdbinary, monkeypatch):
    """Leader 2 has a Fetch in flight when it is asked where its new partition begins; both answers arrive."""
    monkeypatch.setattr("odradek.cli.records.reading.LOOK_EVERY_S", 0.0)
    with StubCluster(size=2) as cluster:
        in_flight, asked = threading.Event(), threading.Event()
        rows = [(1, [1], [1]), (2, [2], [2])]
        cluster.show({"t": rows})
        first, second = cluster.members.values()
        fetched_of_first, fetched_of_second = first._fetch, second._fetch

        def wait_for_other_requests(request):
            (topic,) = request.topics
            if all(part.fetch_offset == 0 for part in topic.partitions) and not in_flight.is_set():
                cluster.show({"t": [*rows, (2, [2], [2])]})
                in_flight.set()
                asked.wait(1.0)  # in vain if the same connection is used
            return fetched_of_second(request)

        def answer_when_leader_2_waits(request):
            in_flight.wait(PATIENCE_S)
            return fetched_of_first(request)

        def starts(request):
            if any(part.partition_index == 2 for topic in request.topics for part in topic.partitions):
                asked.set()
            return offsets_of_second(request)

        first._fetch, second._fetch = answer_when_leader_2_waits, wait_for_other_requests
        offsets_of_second, second._list_offsets = second._list_offsets, starts  # it leads partition 2
        for member in (first, second):
            member.last_stable_offset = 1
        arguments = ["t", "--from", "beginning", "-n", "3", "-f", "{partition}{value}\\n", "-b", cluster.servers]
        consume.main(arguments, standalone_mode=False)
        assert asked.is_set()
    assert sorted(capfdbinary.readouterr().out.split()) == [b"0v", b"1v", b"2v"]


def test_a_connection_with_a_request_in_flight_is_not_asked():
    with StubBroker() as broker, Cluster(broker.address) as cluster:
        connection = cluster.any_broker()
        request = metadata.Request(topics=[])
        connection.send(metadata.SCHEMA, request, version=4)
        with pytest.raises(RuntimeError, match="Metadata is in flight"):
            connection.ask(metadata.SCHEMA, request)
        connection.receive()
        assert connection.ask(metadata.SCHEMA, request).brokers
        broker.silent.add("Metadata")
        with pytest.raises(UnreachableError):
            connection.ask(metadata.SCHEMA, request, timeout_s=0.01)
        with pytest.raises(UnreachableError):  # it is closed, so that no response can be mistaken
            connection.ask(metadata.SCHEMA, request)


FOLLOWING = {
    "consume": ("consume", "t", "--from", "beginning"),
    "consume -g": ("consume", "t", "--from", "beginning", "-g", "closed"),
    "consume -X": ("consume", "t", "--from", "beginning", "-X", "fetch.min.bytes=1"),
    "usage top": ("usage", "top", "--json", "--interval", "0.2"),
    "group list": ("group", "list", "--watch", "0.2", "--json"),
    "offsets migrate": ("offsets", "migrate", "closed", "--to", "log", "--every", "0.2", "--json"),
}


@pytest.mark.parametrize("command", FOLLOWING)
def test_a_command_that_follows_ends_when_its_reader_does(broker, command):
    """The reader ends after the first line, and the command has nothing more to write, or waits."""
    with started(broker, *FOLLOWING[command], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE_S) == CLOSED_PIPE
        assert process.stderr.read() == b""


@pytest.mark.parametrize("options", READERS, ids=["own-client", "librdkafka", "group"])
def test_ctrl_c_ends_a_match_that_takes_for_ever(broker, name, options):
    odradek = Command(broker.bootstrap_servers)
    odradek("produce", name, "--create", stdin="begin\n")
    grep = ("--from", "beginning", "--grep", "begin|(a+)+b")
    options = [name if option == "followers" else option for option in options]
    with started(broker, "consume", name, *grep, *options, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begin\n"
        before = processor_seconds(process.pid)
        odradek("produce", name, stdin=f"{'a' * 200}\n")
        until(lambda: processor_seconds(process.pid) > before + 1, "the match uses a processor")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGINT
        assert b"stopped; 1 record read" in process.stderr.read()


def processor_seconds(pid):
    """The time that a process has used, in seconds."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_a_command_that_waits_for_its_first_record_ends_when_its_reader_does(broker, name):
    Command(broker.bootstrap_servers)("topic", "create", name)
    with started(broker, "consume", name, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(PATIENCE_S) == CLOSED_PIPE
        assert process.stderr.read() == b""


def test_output_into_a_file_is_written_as_before(broker, tmp_path):
    command = [*MAIN, "consume", "t", "--from", "beginning", "-n", "1", "-b", broker.bootstrap_servers]
    with (tmp_path / "out").open("wb") as out:
        assert subprocess.run(command, stdout=out, check=False, timeout=PATIENCE_S).returncode == 0
    assert (tmp_path / "out").read_bytes() == b"a\n"
