"""Sums of usage that never go back, whatever is retired, named late, or restarted in between."""

import marshal

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.metrics.ledger import BYTES_IN, Ledger
from odradek.metrics.named_series import NamedSeries
from odradek.metrics.pages import OTHER, RETIRED, UsageRow


def row(client, topic, value, *, page=1, since=1, api=0, last_ms=1000, principal="User:a"):
    counts = [value * factor for factor in (1, 0, 10, 20, 3, 4, 5, 6)]
    return UsageRow(page, principal, client, topic, api, since, last_ms, *counts)


def ledger(clients=10, topics=("t", "u"), state=None):
    return Ledger(NamedSeries(clients), NamedSeries(10, topics), state)


def bytes_in(sums):
    return {key: values[BYTES_IN] for key, values in sums.items()}


def test_rows_of_all_pages_are_added_up():
    sums = ledger()
    sums.look([row("c", "t", 1), row("c", "t", 2, page=2), row("c", None, 4), row("d", "t", 8)], 0)
    assert bytes_in(sums.usage) == {
        ("User:a", "c", "t", 0): 30,
        ("User:a", "c", None, 0): 40,
        ("User:a", "d", "t", 0): 80,
    }
    assert bytes_in(sums.of_topic) == {("t", 0): 110}
    assert bytes_in(sums.of_api) == {(0, True): 110, (0, False): 40}


def test_retired_counts_stay_in_the_sums_while_their_client_exists():
    sums = ledger()
    sums.look([row("c", "t", 5), row("c", "t", 2, page=2)], 0)
    retired = row(RETIRED, None, 5, principal=OTHER)
    assert sums.look([retired, row("c", "t", 3, page=2)], 0)
    assert bytes_in(sums.usage) == {("User:a", "c", "t", 0): 80}
    assert bytes_in(sums.of_api) == {(0, True): 80}


def test_an_entry_with_a_new_beginning_counts_from_zero():
    sums = ledger()
    sums.look([row("c", "t", 5, since=1)], 0)
    sums.look([row("c", "t", 2, since=9)], 0)
    assert bytes_in(sums.usage) == {("User:a", "c", "t", 0): 70}


def test_a_removed_client_loses_its_series_and_the_sums_of_broker_and_topic_remain():
    sums = ledger()
    sums.look([row("c", "t", 5), row("d", "t", 1)], 0)
    sums.look([row("d", "t", 1)], 0)
    assert bytes_in(sums.usage) == {("User:a", "d", "t", 0): 10}
    assert bytes_in(sums.of_topic) == {("t", 0): 60} and bytes_in(sums.of_api) == {(0, True): 60}


def test_without_a_name_clients_and_topics_are_others():
    sums = ledger(clients=1, topics=("t",))
    sums.look([row("big", "t", 9), row("small", "t", 1), row("big", "x", 2), row("small", None, 4)], 0)
    assert bytes_in(sums.usage) == {
        ("User:a", "big", "t", 0): 90,
        (OTHER, OTHER, "t", 0): 10,
        ("User:a", "big", OTHER, 0): 20,
        (OTHER, OTHER, None, 0): 40,
    }


def test_a_series_that_is_added_late_begins_at_zero_and_other_keeps_its_counts():
    sums = ledger(clients=1)
    sums.look([row("big", "t", 9), row("small", "t", 1)], 0)
    assert sums.look([row("small", "t", 1)], 0)
    sums.look([row("small", "t", 3)], 0)
    assert bytes_in(sums.usage) == {(OTHER, OTHER, "t", 0): 10, ("User:a", "small", "t", 0): 20}


def test_an_idle_client_gives_its_name_away_and_counts_among_the_others_then():
    sums = ledger(clients=1)
    sums.look([row("idle", "t", 9, last_ms=100)], 0)
    sums.look([row("idle", "t", 9, last_ms=100), row("new", "t", 1, last_ms=900)], 500)
    sums.look([row("idle", "t", 10, last_ms=950), row("new", "t", 1, last_ms=900)], 500)
    assert bytes_in(sums.usage) == {("User:a", "new", "t", 0): 10, (OTHER, OTHER, "t", 0): 10}


def test_only_changes_of_names_and_retirements_are_to_be_saved():
    sums = ledger()
    assert sums.look([row("c", "t", 1)], 0)
    assert not sums.look([row("c", "t", 2), row("c", "u", 1)], 0)
    assert sums.look([row("c", "t", 2)], 0)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["count", "retire", "look", "die"]), st.integers(0, 3), st.sampled_from(["t", "x", None])
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(ACTIONS)
def test_no_sum_decreases_and_the_brokers_sum_is_exact_across_deaths(actions):
    """A page, a reporter that looks, saves when it must and dies at any moment, and series compared from look to look."""
    live, since, retired, total = {}, 0, 0, 0
    sums, saved, shown = ledger(clients=2, topics=("t",)), None, ({}, {}, {})

    def rows():
        found = [row(f"c{client}", topic, value, since=began) for (client, topic), (value, began) in live.items()]
        return [*found, row(RETIRED, None, retired, principal=OTHER)]

    for action, client, topic in actions:
        if action == "count":
            since += 1
            value, began = live.get((client, topic), (0, since))
            live[client, topic] = value + 1, began
            total += 1
        elif action == "retire":
            sums.look(rows(), 0)  # what is retired was seen: it is idle for an hour
            saved = marshal.dumps(sums.state())
            retired += live.pop((client, topic), (0, 0))[0]
        elif action == "die":
            sums = ledger(2, ("t",), marshal.loads(saved) if saved else None)
        if action in ("look", "die"):
            if sums.look(rows(), 0):
                saved = marshal.dumps(sums.state())
            now = tuple(bytes_in(one) for one in (sums.usage, sums.of_topic, sums.of_api))
            for before, after in zip(shown, now, strict=True):
                for key, value in before.items():
                    assert key not in after or after[key] >= value, (key, before, after)
            assert set(shown[1]) <= set(now[1]) and set(shown[2]) <= set(now[2])
            assert sum(now[2].values()) == 10 * total
            shown = now
