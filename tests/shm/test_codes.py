"""Codes of native code and their names elsewhere: each code has one name, however the two lists are ordered."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import odradek
from odradek._ext.net.connection import CloseReason
from odradek._ext.shm.client_quotas import QuotaKind
from odradek._ext.shm.metering import MECHANISMS, OUTCOMES, count, gauge
from odradek._ext.shm.probes import PROBE_WORDS, Probe
from odradek._ext.storage import segments
from odradek.api.table import BY_KEY
from odradek.clients import transactions
from odradek.metrics.pages import UsageRow
from odradek.metrics.transactions import STATES
from odradek.protocol.schemas import transaction_records
from odradek.quotas import quotas
from odradek.transactions.states import State

NATIVE = Path(odradek.__file__).parent / "_ext"  # also in the copy of a variant


def numbers_of(file: str, prefix: str) -> dict[str, int]:
    """The constants of a .pxd that begin with a prefix, which the names here lack."""
    found = re.findall(rf"^    {prefix}(\w+) = (\d+)", (NATIVE / file).read_text(), re.M)
    return {name: int(value) for name, value in found}


LAYOUT = "shm/meter_layout.pxd"


def test_each_probe_has_a_word_of_its_own_in_the_page() -> None:
    assert list(PROBE_WORDS) == [probe.name.lower() for probe in Probe]
    assert max(Counter(PROBE_WORDS.values()).values()) == 1
    assert max(PROBE_WORDS.values()) < numbers_of(LAYOUT, "METER_")["WORDS"]


def test_gauges_are_below_the_counters() -> None:
    gauges = [name for name, word in PROBE_WORDS.items() if word < numbers_of(LAYOUT, "METER_")["GAUGES"]]
    assert gauges[-1] == "delegation_tokens"
    with pytest.raises(ValueError, match="socket_bytes_in is a counter"):
        gauge("socket_bytes_in", 1)
    with pytest.raises(KeyError):
        count("no_such_probe")


def test_each_reason_for_which_connections_close_has_its_word() -> None:
    """Native code adds the reason to the first of these words."""
    words = [f"CLOSED_{reason.name.removeprefix('CLOSE_')}" for reason in CloseReason]
    assert [Probe[word] - Probe.CLOSED_EOF for word in words] == list(CloseReason)
    lists = (NATIVE / "net/open_connections.pxd").read_text()
    assert int(re.search(r"int64_t\[(\d+)\] closes_by_reason", lists)[1]) == len(CloseReason)  # type: ignore[index]


def test_the_outcomes_of_authentications_have_names() -> None:
    expected = {f"LOGIN_{name}": value for name, value in numbers_of(LAYOUT, "LOGIN_").items() if name != "OUTCOMES"}
    expected |= {f"RENEWAL_{name}": value for name, value in numbers_of(LAYOUT, "RENEWAL_").items()}
    assert (
        sorted(OUTCOMES.values()) == sorted(expected.values()) == list(range(numbers_of(LAYOUT, "LOGIN_")["OUTCOMES"]))
    )
    assert OUTCOMES["renewed"] == expected["RENEWAL_SUCCEEDED"]
    assert len(MECHANISMS) <= numbers_of(LAYOUT, "METER_")["MECHANISMS"]


def test_the_values_of_usage_are_in_the_order_of_their_fields() -> None:
    values = numbers_of(LAYOUT, "USAGE_")
    assert len(values) == values.pop("VALUES") + 1
    assert UsageRow._fields[-len(values) :] == tuple(
        sorted(map(str.lower, values), key=lambda name: values[name.upper()])
    )


def test_every_served_api_has_a_place_in_the_page() -> None:
    of = numbers_of(LAYOUT, "METER_")
    first = numbers_of(LAYOUT, "FIRST_")["PRIVATE_KEY"]
    private = [key for key in BY_KEY if key >= of["KEY_PRIVATE"]]
    assert sorted(private) == [first + number for number in range(of["PRIVATE_KEYS"])]
    assert of["KEY_PRIVATE"] + of["PRIVATE_KEYS"] == of["KEY_UNKNOWN"] == of["KEYS"] - 1 == of["KEY_NONE"] - 1


def test_each_event_of_loading_has_a_sentence() -> None:
    assert sorted(segments.SENTENCES) == sorted(numbers_of("storage/log_state.pxd", "EVENT_").values())


def test_a_refused_producer_is_counted_as_its_event() -> None:
    text = (NATIVE / "partition/producer_room.pxd").read_text()
    assert re.findall(r"ROOM_OF_(\w+) = REFUSED_(\w+)", text) == [
        (name, name) for name in ("CLIENT", "PARTITION", "ARENA")
    ]


def test_the_quotas_of_requests_are_in_the_order_of_their_kinds() -> None:
    assert [getattr(quotas, kind.name.removeprefix("QUOTA_")) for kind in QuotaKind] == list(quotas.OF_REQUESTS)


def test_the_states_of_transactions_have_kafkas_names() -> None:
    assert [state.name.replace("_", "").lower() for state in State] == [name.lower() for name in STATES]
    assert STATES == transaction_records.STATES
    assert tuple(name for name in STATES if name != "Dead") == transactions.STATES, "no client sees a dead id"
