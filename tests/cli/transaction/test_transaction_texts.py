"""What the commands say about transactions whose outcome is decided, with simulated requests. (A single broker completes such
transactions at once, so tests of the whole command do not see them.)"""

from types import SimpleNamespace

import pytest

from odradek.cli.transaction import abort, search
from odradek.cli.transaction.abort import Marker
from odradek.clients import marker_waits, transactions
from odradek.clients.marker_waits import MarkerWait
from odradek.clients.transactions import OpenTransaction, Search, TransactionDescription

PLACE = ("t", 1)
NOW_MS = 1_700_000_000_000
MARKER = Marker(PLACE, 7, 0, -1, 40)
WAITS = [MarkerWait("t", 1, "it has no leader", "start broker 2"), MarkerWait("u", 0, "a reason", "look at u")]
CLUSTER = SimpleNamespace(metadata=lambda: None, view=lambda: None)


def description(state):
    return TransactionDescription("id", 3, state, 7, 0, 60_000, NOW_MS, (PLACE,))


@pytest.fixture(autouse=True)
def requests(monkeypatch):
    """The markers that are written. `known` is the transaction of the transactional id 'id'; None if it has none."""
    made = SimpleNamespace(written=[], known=description("PrepareCommit"))
    monkeypatch.setattr(marker_waits, "waits_of", lambda *_: {"id": WAITS})
    monkeypatch.setattr(transactions, "describe", lambda *_: made.known)
    monkeypatch.setattr(transactions, "known_transaction", lambda *_: made.known)
    monkeypatch.setattr(transactions, "abort_in_partition", lambda _, *marker: made.written.append(marker))
    return made


def output(capsys, command, *arguments):
    """What a command that ends with exit code 1 prints on stderr."""
    with pytest.raises(SystemExit) as ended:
        command(CLUSTER, *arguments)
    assert ended.value.code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(("state", "outcome"), [("PrepareCommit", "commit"), ("PrepareAbort", "abort")])
def test_abort_of_an_id_says_what_a_decided_transaction_waits_for(capsys, requests, state, outcome):
    requests.known = description(state)
    error = output(capsys, abort.abort_id, False, "id", True)
    assert f"the {outcome} of the transaction of 'id' is decided already" in error
    assert "it waits for t-1: it has no leader (and 1 more partition). What to do: start broker 2" in error


@pytest.mark.parametrize(("state", "outcome"), [("PrepareCommit", "commit"), ("PrepareAbort", "abort")])
def test_a_decided_transaction_is_not_aborted_in_a_partition_and_no_refused_remedy_is_named(
    capsys, requests, state, outcome
):
    requests.known = description(state)
    error = output(capsys, abort.abort_in_partition, False, MARKER, False, True)
    assert f"transactional id 'id' ({state}), whose {outcome} is decided" in error
    assert "What to do: start broker 2" in error
    assert "--force" not in error and "transaction abort" not in error
    assert requests.written == []


def test_the_question_says_that_force_loses_records_of_a_commit_that_is_decided(capsys, requests):
    error = output(capsys, abort.abort_in_partition, False, MARKER, True, False)
    assert (
        "The commit of the transaction of 'id' (producer 7 (epoch 0)) is decided, and may have been acknowledged"
        in error
    )
    assert "loses its records there" in error and "add --yes" in error
    assert requests.written == []
    abort.abort_in_partition(CLUSTER, False, MARKER, True, True)
    assert requests.written == [(PLACE, 7, 0, -1)]


def test_the_question_says_that_the_producer_has_no_open_transaction(capsys, requests):
    requests.known = None
    idle = MARKER._replace(start_offset=-1)
    error = output(capsys, abort.abort_in_partition, False, idle, True, False)
    assert "although the producer has no open transaction there" in error
    abort.abort_in_partition(CLUSTER, True, idle, True, True)
    assert '"aborted": false' in capsys.readouterr().out


def test_hanging_names_the_partitions_of_a_decided_transaction_with_reasons_and_remedies(capsys, monkeypatch):
    late = OpenTransaction("t", 1, 1, 7, 0, -1, 40, NOW_MS - 3_600_000)
    found = Search([], [(late, description("PrepareCommit"))], {}, {PLACE: 5})
    search._show(CLUSTER, found, 1_200_000, NOW_MS)
    error = capsys.readouterr().err
    assert "transactional id 'id' (PrepareCommit) is open in 1 partition" in error
    assert "it is not hanging: its commit is decided" in error
    assert "'id' waits for t-1: it has no leader. What to do: start broker 2" in error
    assert "'id' waits for u-0: a reason. What to do: look at u" in error
    assert "transaction abort" not in error
