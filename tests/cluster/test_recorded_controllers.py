"""Odradek's controller sends the same requests to the same brokers in the same order as the controller of Kafka 3.9.1.

`recorded` says what is compared. Deliberate differences are in docs/decisions/0028-cluster.md, "Departures from Kafka's
controller". ODRADEK_RECORDED_ROUNDS repeats each scenario; with ODRADEK_RECORDED_RAW=1 a failure shows all requests.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from odradek.testing.broker_process import Broker
from tests.cluster.peer_processes import Peers
from tests.cluster.recorded import Recording, difference
from tests.cluster.recorded_scenarios import BROKERS, SCENARIOS
from tests.cluster.recorder import CONTROLLER_ID, Run, Side

pytestmark = pytest.mark.xdist_group("recorded-controllers")
ROUNDS = int(os.environ.get("ODRADEK_RECORDED_ROUNDS", "1"))
RAW = "ODRADEK_RECORDED_RAW" in os.environ
SETTINGS = {"broker.id": CONTROLLER_ID, "auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": 60_000}


class Sides:
    """Both controllers. A pair that a failed scenario has left in an unknown state is replaced."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pairs = 0
        self._stack = ExitStack()
        self.pair: tuple[Side, Side] | None = None

    def __enter__(self) -> "Sides":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self) -> tuple[Side, Side]:
        """Kafka and Odradek, each the controller of a tree."""
        if self.pair is None:
            self._stack.close()
            self._pairs += 1
            directory = self._directory / str(self._pairs)
            peers = self._stack.enter_context(Peers(directory))
            servers = {kind: f"{peers.connect}/{kind}" for kind in ("kafka", "odradek")}
            kafka = peers.start_kafka(CONTROLLER_ID, SETTINGS | {"zookeeper.connect": servers["kafka"]})
            settings = SETTINGS | {"zookeeper.connect": servers["odradek"], "num.network.threads": 1}
            ours = self._stack.enter_context(Broker(settings, directory=directory / "odradek"))
            self.pair = (
                self._stack.enter_context(closing(Side("kafka", servers["kafka"], kafka.port))),
                self._stack.enter_context(closing(Side("odradek", servers["odradek"], ours.port))),
            )
        return self.pair


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("recorded")) as sides:
        yield sides


def record(side: Side, name: str) -> Recording:
    with Run(side, BROKERS) as run:
        SCENARIOS[name](run)
    return run.recording


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_controllers_send_the_same(sides: Sides, name: str) -> None:
    for _ in range(ROUNDS):
        pair = sides.get()
        sides.pair = None
        kafka, ours = (record(side, name) for side in pair)
        sides.pair = pair
        found = difference(kafka, ours, raw=RAW)
        assert not found, "\n".join(["the controllers differ:", *found])
