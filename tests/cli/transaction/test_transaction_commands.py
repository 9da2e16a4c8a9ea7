"""`odradek transaction` against a stub broker: what it requests, and what it prints if a request gets no response."""

import json

import pytest

from odradek.clients import transactions
from odradek.clients.cluster import TRANSACTION, Cluster
from odradek.clients.errors import UnreachableError
from odradek.clock import now_ms
from odradek.protocol.schemas import describe_producers, describe_transactions
from tests.cli.command import Command
from tests.cli.stub_broker import BROKER_ID, COORDINATOR_EPOCH, TOPIC, StubBroker

CHANGING = {"InitProducerId", "WriteTxnMarkers"}
PRODUCER, EPOCH, START_OFFSET = 7, 2, 40
TIMEOUT_S = 0.7
"""Long enough for the responses that the stub sends."""
HANGING = ("--topic", TOPIC, "--partition", 1, "--start-offset", START_OFFSET)


@pytest.fixture
def broker():
    with StubBroker(partitions=3) as stub:
        yield stub


@pytest.fixture
def odradek(broker):
    return Command(broker.address)


def producer(ago_ms=3_600_000, coordinator_epoch=-1):
    """A producer with an open transaction, as the leader of a partition describes it."""
    return describe_producers.Response.ProducerState(
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        current_txn_start_offset=START_OFFSET,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=now_ms() - ago_ms,
    )


def transaction(state, *partitions, epoch=EPOCH):
    """The transactional id a with a transaction in these partitions, as its coordinator describes it."""
    make = describe_transactions.Response
    return make.TransactionState(
        transactional_id="a",
        transaction_state=state,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=now_ms() - 5_000,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        topics=[make.TopicData(topic=TOPIC, partitions=list(partitions))],
    )


def marker(partition, producer_epoch, coordinator_epoch):
    return {
        "topic": TOPIC,
        "partition": partition,
        "producer_id": PRODUCER,
        "producer_epoch": producer_epoch,
        "coordinator_epoch": coordinator_epoch,
    }


def table(output):
    """The rows of a table in the output, split into words."""
    lines = output.splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.startswith("TOPIC "))
    return [line.split() for line in lines[head + 1 :]]


@pytest.mark.parametrize(("epoch", "fencing"), [(EPOCH, EPOCH + 1), (32_767, 32_767)])
def test_a_dry_run_shows_the_markers_of_an_id_and_changes_nothing(broker, odradek, epoch, fencing):
    broker.ids["a"] = transaction("Ongoing", 0, 2, epoch=epoch)
    abort = ("transaction", "abort", "a", "--dry-run")
    assert odradek.json(*abort) == {
        "transactional_id": "a",
        "aborted": False,
        "dry_run": True,
        "markers": [marker(0, fencing, COORDINATOR_EPOCH), marker(2, fencing, COORDINATOR_EPOCH)],
    }
    output = odradek(*abort)
    assert "This aborts the transaction of 'a'" in output and "in 2 partitions" in output
    assert "dry run: nothing was changed" in output
    numbers = [str(PRODUCER), str(fencing), str(COORDINATOR_EPOCH)]
    assert table(output) == [[TOPIC, "0", *numbers], [TOPIC, "2", *numbers]]
    assert not CHANGING.intersection(broker.asked)


@pytest.mark.parametrize(("known", "written"), [(-1, 0), (4, 4)])
def test_a_dry_run_shows_the_marker_of_a_hanging_transaction_and_changes_nothing(broker, odradek, known, written):
    broker.producers[1] = [producer(coordinator_epoch=known)]
    abort = ("transaction", "abort", *HANGING, "--dry-run")
    assert odradek.json(*abort) == {
        "topic": TOPIC,
        "partition": 1,
        "aborted": False,
        "dry_run": True,
        "markers": [marker(1, EPOCH, written)],
    }
    output = odradek(*abort)
    assert "consumers with isolation level read_committed will skip its records" in output
    assert "dry run: nothing was changed" in output
    assert table(output) == [[TOPIC, "1", str(PRODUCER), str(EPOCH), str(written)]]
    assert not CHANGING.intersection(broker.asked)


def test_a_dry_run_makes_the_checks_of_the_command(broker, odradek):
    broker.ids["a"] = transaction("CompleteAbort")
    odradek.refused("transaction", "abort", "a", "--dry-run", words=["has no open transaction"])
    broker.ids["a"] = transaction("Ongoing", 1)
    broker.producers[1] = [producer()]
    odradek.refused("transaction", "abort", *HANGING, "--dry-run", words=["is not hanging", "--force"])
    forced = json.loads(odradek("transaction", "abort", *HANGING, "--dry-run", "--force", "--json"))
    assert forced["markers"] == [marker(1, EPOCH, 0)]
    assert not CHANGING.intersection(broker.asked)


@pytest.mark.parametrize(
    ("arguments", "api"),
    [
        (("list",), "Metadata"),
        (("list",), "ListTransactions"),
        (("list",), "DescribeTransactions"),
        (("describe", "a"), "FindCoordinator"),
        (("describe", "a", "b"), "DescribeTransactions"),
        (("abort", "a", "--yes"), "FindCoordinator"),
        (("abort", "a", "--yes"), "InitProducerId"),
        (("abort", *HANGING, "--yes"), "DescribeProducers"),
        (("abort", *HANGING, "--yes"), "ListTransactions"),
        (("abort", *HANGING, "--yes"), "WriteTxnMarkers"),
        (("hanging",), "DescribeConfigs"),
        (("hanging",), "ListOffsets"),
        (("hanging",), "ListTransactions"),
    ],
)
def test_a_request_that_times_out_is_one_line_with_the_broker_and_the_request(broker, odradek, arguments, api):
    broker.ids["a"] = transaction("Ongoing", 0)
    broker.producers[1] = [producer()]
    broker.silent.add(api)
    words = [f"{broker.address} did not respond to {api} within {TIMEOUT_S:g} s; use a larger --timeout"]
    error = odradek.refused("transaction", *arguments, "--timeout", TIMEOUT_S, words=words)
    unknown = {
        "InitProducerId": "`odradek transaction describe a` shows its state",
        "WriteTxnMarkers": "repeat the command",
    }
    assert ("nevertheless" in error) == (api in unknown) and unknown.get(api, "") in error


def test_a_leader_that_does_not_describe_its_producers_is_one_line(broker, odradek):
    broker.silent.add("DescribeProducers")
    done = odradek.run("transaction", "hanging", "--timeout", TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    warning, result = done.stderr.splitlines()
    assert warning == (
        f"odradek: warning: 3 partitions were not checked: {broker.address} did not respond to DescribeProducers within"
        f" {TIMEOUT_S:g} s; use a larger --timeout (t-0, t-1, t-2)"
    )
    assert result == "no hanging transactions in the partitions that were checked (last write more than 20 min ago)"
    broker.partitions = 1
    done = odradek.run("transaction", "hanging", "--timeout", TIMEOUT_S)
    assert done.stderr.startswith("odradek: warning: t-0 was not checked: ")


def test_the_next_request_to_a_broker_that_did_not_respond_uses_a_new_connection(broker):
    with Cluster(broker.address, TIMEOUT_S) as cluster:
        broker.silent = {"DescribeProducers", "FindCoordinator"}
        _, unchecked = transactions.producers(cluster, transactions.partitions_of(cluster.metadata()))
        assert set(unchecked) >= {(TOPIC, number) for number in range(3)}
        assert transactions.list_transactions(cluster) == []
        with pytest.raises(UnreachableError, match="did not respond to FindCoordinator"):
            cluster.coordinator_of("a", TRANSACTION)
        broker.silent.clear()
        assert cluster.coordinator_of("a", TRANSACTION) == BROKER_ID


def test_younger_transactions_without_an_owner_are_counted_with_the_option_that_lists_them(broker, odradek):
    broker.producers[1] = [producer(ago_ms=60_000)]
    done = odradek.run("transaction", "hanging")
    assert (done.returncode, done.stdout) == (0, "")
    nothing, younger = done.stderr.splitlines()
    assert nothing == "no hanging transactions (last write more than 20 min ago)"
    assert younger == (
        "1 younger open transaction has no owner: no transactional id has it in an open transaction. It may hang;"
        " --max-transaction-timeout 0 lists it"
    )
    found = odradek.json("transaction", "hanging")
    assert found["hanging"] == []
    assert [(row["partition"], row["producer_id"], row["transactional_id"]) for row in found["younger"]] == [
        (1, PRODUCER, None)
    ]
    broker.producers[0] = [producer(ago_ms=-60_000)]
    done = odradek.run("transaction", "hanging")
    assert "2 younger open transactions have no owner" in done.stderr and "lists them" in done.stderr
    done = odradek.run("transaction", "hanging", *younger.partition("; ")[2].split()[:2])
    assert done.returncode == 1 and [row[:2] for row in table(done.stdout)[:2]] == [[TOPIC, "0"], [TOPIC, "1"]]


def test_younger_transactions_with_an_owner_are_not_mentioned(broker, odradek):
    broker.producers[1] = [producer(ago_ms=60_000)]
    broker.ids["a"] = transaction("Ongoing", 1)
    done = odradek.run("transaction", "hanging")
    assert (done.returncode, done.stderr) == (0, "no hanging transactions (last write more than 20 min ago)\n")


@pytest.mark.parametrize("limit", [None, 0])
def test_a_transaction_that_ends_during_the_search_has_no_missing_owner(broker, odradek, limit):
    broker.producers[1] = [producer(ago_ms=60_000)]
    broker.before["ListTransactions"] = broker.producers.clear
    done = odradek.run("transaction", "hanging", *(() if limit is None else ("--max-transaction-timeout", limit)))
    assert done.returncode == 0 and done.stderr.startswith("no hanging transactions (last write more than ")
    assert done.stderr.count("\n") == 1 and broker.asked.count("DescribeProducers") == 2


def test_a_search_without_the_owners_of_younger_transactions_is_a_warning(broker, odradek):
    broker.producers[1] = [producer(ago_ms=60_000)]
    broker.silent.add("ListTransactions")
    done = odradek.run("transaction", "hanging", "--timeout", TIMEOUT_S)
    warning, nothing = done.stderr.splitlines()
    assert warning.startswith("odradek: warning: cannot look for the owners of 1 younger open transaction: ")
    assert done.returncode == 0 and nothing.startswith("no hanging transactions ")
