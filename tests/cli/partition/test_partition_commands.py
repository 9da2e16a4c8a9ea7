"""`odradek partition move`, `moves` and `elect` with a single broker, and with one that does not serve their requests.

tests/cluster/test_moves.py has them with clusters.
"""

import pytest

from tests.cli.command import Command
from tests.cli.stub_cluster import StubCluster


def test_a_single_broker_has_nowhere_to_move_its_replicas(odradek, name):
    odradek("topic", "create", name, "-p", 2)
    words = [f"topic '{name}'", "replication factor 1", "without broker 1 no broker is left", "add a broker"]
    odradek.refused("partition", "move", "--off", 1, "-t", name, "--yes", words=words)
    assert odradek("partition", "move", "--balance") == "nothing to move: the replicas are balanced\n"
    assert odradek.json("partition", "move", "--balance")["moves"] == []
    odradek.refused(
        "partition", "move", "--off", 7, words=["broker 7 is not registered", "the registered brokers are 1"]
    )
    odradek.refused("partition", "move", "--off", 1, "--to", 8, words=["--to", "broker 8 is not registered"])
    odradek.refused("partition", "move", "--off", 1, "-t", f"{name}-x", words=[f"'{name}-x'", "did you mean 'cli-"])


def test_a_single_broker_has_no_reassignments_and_its_preferred_leaders(odradek, name):
    odradek("topic", "create", name, "-p", 2)
    assert odradek.run("partition", "moves").stderr == "no reassignments are in progress\n"
    assert odradek.json("partition", "moves") == []
    assert odradek("partition", "moves", "--finish") == "no throttles to remove\n"
    assert odradek("partition", "moves", "--cancel").startswith("no reassignments are in progress\n")
    assert odradek("partition", "moves", "--wait").startswith("no reassignments are in progress\n")
    assert "led by its preferred leader" in odradek("partition", "elect")
    assert "has a leader" in odradek("partition", "elect", "--unclean")
    assert odradek.json("partition", "elect")["elections"] == []
    odradek.refused("partition", "elect", "-t", f"{name}-x", words=[f"'{name}-x'", "did you mean 'cli-"])


def test_throttles_of_an_interrupted_command_are_removed_and_those_of_an_operator_stay(odradek, name):
    listed, rates = "leader.replication.throttled.replicas", "leader.replication.throttled.rate"
    for topic, value in ((name, "0:1,0:2"), (f"{name}-all", "*")):
        odradek("topic", "create", topic)
        odradek("config", "set", "--topic", topic, f"{listed}={value}")
    odradek("config", "set", "--broker", 1, f"{rates}=50000")
    done = odradek.json("partition", "moves", "--finish")
    assert done["unthrottled_topics"] == [name] and done["throttled_topics"] == [f"{name}-all"]
    assert done["unthrottled_brokers"] == [], "the operator's list still needs a rate"
    assert odradek.json("config", "get", "--topic", f"{name}-all", listed)[0]["value"] == "*"
    odradek("topic", "delete", f"{name}-all", "--yes")
    assert "rates of broker 1" in odradek("partition", "moves", "--finish")
    assert not [row for row in odradek.json("config", "get", "--broker", 1, "--changed") if row["key"] == rates]


def test_a_broker_without_the_requests_is_named():
    with StubCluster(size=2) as cluster:
        command = Command(cluster.servers)
        words = [cluster.addresses[1], "does not serve ListPartitionReassignments", "Kafka 2.4"]
        command.refused("partition", "move", "--off", 1, words=words)
        command.refused("partition", "moves", words=words)
        cluster.show({"t": [(2, [1, 2], [1, 2])]})
        command.refused("partition", "elect", words=["does not serve ElectLeaders", "Kafka 2.2"])
        assert command.json("partition", "elect", "--dry-run")["elections"][0]["after"] == 1


def test_an_unclean_election_says_what_it_loses():
    with StubCluster(size=2) as cluster:
        cluster.show({"t": [(-1, [1, 2], [2])]})
        command = Command(cluster.servers)
        words = ["t-0 (in sync: 2)", "lost for ever", "--yes"]
        command.refused("partition", "elect", "--unclean", words=words)
        command.refused("partition", "elect", "--unclean", "--yes", words=["does not serve ElectLeaders", "Kafka 2.4"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["move"], ["--off ID", "--balance"]),
        (["move", "--off", "1", "--balance"], ["either --off ID", "--balance"]),
        (["move", "--off", "1", "--to", "1,2"], ["broker 1 is in --off and in --to"]),
        (["move", "--off", "1", "--to", "a"], ["--to", "'a'", "4,5,6"]),
        (["move", "--off", "1", "--throttle", "fast"], ["--throttle", "'fast'", "50MB"]),
        (["move", "--off", "1", "--throttle", "0"], ["--throttle", "'0'"]),
        (["move", "--off", "1", "--timeout", "3s"], ["--timeout", "--wait"]),
        (["moves", "--cancel", "--finish"], ["--cancel", "--finish"]),
        (["moves", "--dry-run"], ["--dry-run", "--cancel"]),
        (["moves", "--wait", "--timeout", "long"], ["--timeout", "'long'"]),
    ],
)
def test_a_wrong_option_is_named(options, words):
    Command("127.0.0.1:1").refused("partition", *options, code=2, words=words)


def test_a_controller_that_has_failed_is_replaced_by_the_one_that_the_metadata_names_next():
    """A KRaft cluster names one of its brokers at random as the controller, also one that has just failed."""
    with StubCluster(down=[1]) as cluster:
        command = Command(",".join(cluster.addresses[broker_id] for broker_id in (2, 3)))

        def another():
            for member in cluster.members.values():
                member.controller = 3

        cluster.after(2, 3, another)
        command.refused("partition", "moves", words=[cluster.addresses[3], "does not serve ListPartitionReassignments"])
