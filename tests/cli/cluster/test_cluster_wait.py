"""`odradek cluster wait`: what counts as ready, what is printed when it is not, and how it survives brokers that are away."""

import signal

import pytest

from odradek.protocol.errors import ErrorCode
from tests.cli.command import Command
from tests.cli.framework.test_interrupt import assert_stopped, start
from tests.cli.stub_cluster import StubCluster
from tests.waiting import until

SHORT = ("--timeout", "0.2")
LONG = ("--timeout", "2m")


def wait(cluster, *options):
    return Command(cluster.servers).run("cluster", "wait", *options)


def missing(cluster, *options):
    """The lines of a wait that must reach its timeout, without `odradek: ` and the last one."""
    done = wait(cluster, *options, *SHORT)
    assert done.returncode == 1 and done.stdout == "", done
    *lines, last = [line.removeprefix("odradek: ") for line in done.stderr.splitlines()]
    assert last.startswith("the cluster is not ready after "), done
    return lines


def test_a_ready_cluster_is_asked_once_and_every_broker_answers():
    with StubCluster() as cluster:
        done = wait(cluster, "--in-sync", "--brokers", 3, "--broker", 2, "--broker", 3)
        assert done.returncode == 0 and not done.stderr, done
        assert done.stdout.startswith("3 brokers are registered, and all replicas of 2 partitions are in sync; waited ")
        assert all("Metadata" in member.asked for member in cluster.members.values())
        document = Command(cluster.servers).json("cluster", "wait", "--in-sync")
        assert document["ready"] and document["brokers"] == [1, 2, 3] and document["missing"] == []
        assert document["partitions"] == 2


def test_without_in_sync_only_the_brokers_count():
    with StubCluster() as cluster:
        cluster.show({"t": [(-1, [1, 2], [2])]})
        assert wait(cluster, "--brokers", 3).stdout.startswith("3 brokers are registered; waited ")
        assert missing(cluster, "--in-sync") == ["t-0: no leader; replicas not in sync: 1"]


def test_what_one_broker_still_shows_is_not_believed():
    """Broker 3 was killed and started again; broker 1 has not heard of it. The metadata of broker 3 is newer."""
    with StubCluster() as cluster:
        cluster.show({"t": [(1, [1, 2], [1, 2]), (2, [2, 3], [2])]}, 3)
        assert missing(cluster, "--in-sync") == ["t-1: leader 2; replicas not in sync: 3"]
        cluster.after(1, 3, lambda: cluster.show(cluster.members[1].topics, 3))
        assert wait(cluster, "--in-sync", *LONG).returncode == 0


def test_a_broker_that_was_killed_and_is_still_registered_is_missing():
    with StubCluster(down=[2]) as cluster:
        reason = f"does not respond: cannot connect to {cluster.addresses[2]}: Connection refused"
        for options in (["--in-sync"], ["--broker", 2], ["--brokers", 3, "--broker", 2]):
            lines = missing(cluster, *options)
            assert f"broker 2 is registered, but {reason}" in lines, (options, lines)
        assert missing(cluster, "--brokers", 3)[0] == "2 of 3 brokers are ready; registered: 1, 2, 3"
        assert wait(cluster, "--broker", 1, "--broker", 3).returncode == 0, "nobody waits for broker 2"
        assert wait(cluster, "--brokers", 2).returncode == 0
        cluster.after(1, 3, lambda: cluster.start(2))
        assert wait(cluster, "--in-sync", "--broker", 2, *LONG).returncode == 0


def test_a_broker_that_accepts_connections_and_does_not_answer_is_missing():
    with StubCluster() as cluster:
        cluster.members[3].silent.add("Metadata")
        (line,) = missing(cluster, "--in-sync")
        assert line.startswith("broker 3 is registered, but does not respond: ") and "Metadata within" in line


def test_a_broker_must_know_that_it_is_registered():
    with StubCluster() as cluster:
        cluster.members[2].shows.remove(2)
        for options in (["--broker", 2], ["--in-sync"]):
            assert missing(cluster, *options) == ["broker 2: its metadata does not contain broker 2 yet"]
        cluster.after(1, 3, lambda: cluster.members[2].shows.add(2))
        assert wait(cluster, "--broker", 2, *LONG).returncode == 0


def test_topics_that_the_user_may_not_describe_are_not_ready():
    """Else a restart would go on although nothing is known of them."""
    with StubCluster() as cluster:
        cluster.members[2].logs = ("t", *(f"hidden{number}" for number in range(7)))
        (line,) = missing(cluster, "--in-sync")
        assert line == (
            "broker 2 has logs of hidden0, hidden1, hidden2, hidden3, hidden4 and 2 more: this user may not describe these "
            "topics, or they are being deleted"
        )
        assert wait(cluster, "--brokers", 3).returncode == 0, "without --in-sync, topics do not matter"
        cluster.members[2].logs = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        (line,) = missing(cluster, "--in-sync")
        assert line.startswith(
            "broker 2 does not say which logs it has, so there may be topics that were not checked: "
        )
        assert "CLUSTER_AUTHORIZATION_FAILED" in line
        cluster.after(1, 3, lambda: setattr(cluster.members[2], "logs", ("t",)))
        assert wait(cluster, "--in-sync", *LONG).returncode == 0


def test_missing_brokers_are_named():
    with StubCluster() as cluster:
        for member in cluster.members.values():
            member.shows.remove(3)
        assert missing(cluster, "--brokers", 3) == ["2 of 3 brokers are ready; registered: 1, 2"]
        assert missing(cluster, "--broker", 3, "--broker", 7) == [
            "broker 3 is not registered",
            "broker 7 is not registered",
        ]
        cluster.show({"t": [(2, [2, 3], [2])]})
        assert missing(cluster, "--in-sync") == [
            "broker 3 is not registered, and has replicas of partitions",
            "t-0: leader 2; replicas not in sync: 3",
        ]
        done = wait(cluster, "--in-sync", "--json", *SHORT)
        assert done.returncode == 1 and '"ready": false' in done.stdout and '"unready_partitions": 1' in done.stdout
        assert not done.stderr


def test_the_list_of_partitions_is_bounded():
    with StubCluster() as cluster:
        cluster.show({"t": [(1, [1, 2], [1])] * 33})
        lines = missing(cluster, "--in-sync")
        assert (
            len(lines) == 21
            and lines[0].startswith("t-0: ")
            and lines[-1] == "and 13 more partitions that are not ready"
        )


def test_a_topic_whose_leaders_are_not_known_yet_is_not_ready():
    with StubCluster() as cluster:
        cluster.show({"new": ErrorCode.LEADER_NOT_AVAILABLE})
        (line,) = missing(cluster, "--in-sync")
        assert line.startswith("topic new: ") and "LEADER_NOT_AVAILABLE" in line


def test_the_next_bootstrap_server_is_asked_and_a_cluster_that_is_away_is_awaited():
    with StubCluster(down=[1, 2]) as cluster:
        cluster.members[3].shows = {3}
        cluster.show({"t": [(3, [3], [3])]})
        assert wait(cluster, "--in-sync", "--broker", 3).returncode == 0
    with StubCluster(size=2, down=[1, 2]) as cluster:
        lines = missing(cluster)
        assert [line.partition(": ")[0] for line in lines] == ["no bootstrap server responds"] * 2
        assert all(any(address in line for line in lines) for address in cluster.addresses.values())


def test_a_broker_that_is_lost_during_the_wait_is_replaced_by_the_next():
    with StubCluster() as cluster:
        cluster.show({"t": [(2, [2, 1], [2])]})

        def lost():
            cluster.members[1].silent.update({"ApiVersions", "Metadata"})
            for member in cluster.members.values():
                member.shows = {2, 3}
            cluster.show({"t": [(2, [2, 3], [2, 3])]})
            cluster.members[1].__exit__()

        cluster.after(1, 3, lost)
        assert wait(cluster, "--in-sync", "--brokers", 2, *LONG).returncode == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--timeout", "soon"], ["soon", "5m"]),
        (["--timeout", "0"], ["'0'", "longer than 0"]),
        (["--timeout", "-5m"], ["-5m"]),
        (["--brokers", "0"], ["--brokers"]),
        (["--broker", "x"], ["--broker", "'x'"]),
    ],
)
def test_a_wrong_option_is_named(options, words):
    Command("127.0.0.1:1").refused("cluster", "wait", *options, code=2, words=words)


def test_a_wrong_address_or_file_fails_at_once():
    Command("127.0.0.1:no").refused("cluster", "wait", words=["127.0.0.1:no", "host:port"])
    Command("127.0.0.1:1").refused("cluster", "wait", "--command-config", "/missing", words=["/missing"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_with_one_line(number):
    with StubCluster() as cluster:
        cluster.show({"t": [(1, [1, 2], [1])]})
        with start("cluster", "wait", "--in-sync", servers=cluster.servers) as process:
            until(lambda: "Metadata" in cluster.members[1].asked, "the command asks")
            assert assert_stopped(process, number, "the cluster was not ready yet") == b""
