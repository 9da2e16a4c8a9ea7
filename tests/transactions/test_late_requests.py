"""Late requests, which arrive when the client has begun its next transaction, break the atomicity of no transaction, in both
protocols.

With `ODRADEK_TEST_PEER=kafka` the test uses Apache Kafka: there, late requests of version 1 break the atomicity.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.transactions.broker_under_test import STARTERS, UnderTest
from tests.transactions.late_requests import SCENARIOS, TORN_BY_KAFKA, applies, run

pytestmark = [pytest.mark.xdist_group("late-requests"), pytest.mark.timeout(600)]
PEER = os.environ.get("ODRADEK_TEST_PEER", "odradek")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnderTest]:
    with STARTERS[PEER](tmp_path_factory.mktemp(PEER) / "broker") as started:
        yield started


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("version", [1, 2], ids=["TV1", "TV2"])
def test_a_late_request_tears_no_transaction(broker: UnderTest, version: int, scenario: str) -> None:
    if not applies(scenario, version, PEER):
        pytest.skip(f"{scenario} does not exist for transaction version {version} and {PEER}")
    found = run(broker, scenario, version, 0)
    if PEER == "kafka" and version == 1 and scenario in TORN_BY_KAFKA:
        pytest.xfail(f"Kafka: {'; '.join(map(str, found))}")
    assert found == [], "\n".join(map(str, found))
