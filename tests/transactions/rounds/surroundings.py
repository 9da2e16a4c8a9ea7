"""What the rounds run against, and what can fail there: one broker of Odradek or of Apache Kafka."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from odradek.testing import Broker
from tests.faults import process_faults
from tests.faults.lossy_disk import LossyDisk
from tests.faults.lossy_disk import missing as no_power_cuts
from tests.faults.small_disk import SmallDisk
from tests.frame_relay import FrameRelay
from tests.transactions.broker_under_test import start_kafka, start_odradek
from tests.transactions.rounds import network_faults
from tests.transactions.rounds.one_round import Fault, Progressing
from tests.transactions.wire_calls import Address
from tests.waiting import until
from tests.wire import Wire

MIB = 1 << 20
DISK_BYTES = 256 * MIB
LOSSY_MEBIBYTES = 256
FULL_S = 1.5
KINDS = ("coordinator", "worker")
OF_ONE_BROKER = (
    "nothing", "delay", "lose answers", "cut", "kill coordinator", "stop coordinator", "kill worker", "stop worker",
    "kill supervisor", "kill all", "restart", "full disk",
)  # fmt: skip
"""The faults of a broker of Odradek whose machine keeps its power."""
SYNCED: dict[str, str | int] = {"log.flush.interval.messages": 1}
"""Settings with which a transaction outlives a loss of power: each append waits for the device, of records, markers
and coordinators.
"""


@dataclass
class Surroundings:
    """A running broker or cluster.

    ``faults``: by name. ``wrong``: what the logs of the brokers say that must not happen, since the last call.
    ``attach``: shows to the faults what goes on meanwhile.
    """

    servers: list[Address]
    faults: dict[str, Fault]
    create: Callable[[str, int], None]
    delete: Callable[[str], None]
    wrong: Callable[[], list[str]]
    attach: Callable[[Progressing], None] = lambda load: None


def no_fault(_: random.Random) -> str:
    """Nothing fails."""
    return "nothing"


def of_network(relays: list[FrameRelay], answer_s: float) -> dict[str, Fault]:
    """The faults that need no broker of a kind."""
    return {
        "nothing": no_fault,
        "delay": lambda rng: network_faults.delay(relays, rng, answer_s),
        "lose answers": lambda rng: network_faults.lose_answers(relays, rng),
        "cut": lambda rng: network_faults.cut(relays, rng),
    }


def of_processes(broker: Broker) -> dict[str, Fault]:
    """Kills and pauses of the processes of a broker of Odradek."""
    found: dict[str, Fault] = {}
    for kind in KINDS:
        found[f"kill {kind}"] = lambda rng, kind=kind: process_faults.kill_one(broker, rng, kind)
        found[f"stop {kind}"] = lambda rng, kind=kind: process_faults.stop_one_for_a_while(
            broker, rng, kind, rng.choice([0.3, 1.0, 4.0])
        )
    found["kill supervisor"] = lambda rng: process_faults.kill_supervisor(broker, rng)
    found["kill all"] = lambda rng: process_faults.kill_group(broker, rng)
    found["restart"] = lambda _: _restart(broker)
    return found


def _restart(broker: Broker) -> str:
    broker.restart()
    return f"stopped in order and started in {broker.start_seconds:.2f} s"


def _pause(pid: int, rng: random.Random) -> str:
    """Stop a process for a while."""
    seconds = rng.choice([0.5, 2.0, 4.0])
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)  # the duration is the fault
    os.kill(pid, signal.SIGCONT)
    return f"process {pid} stopped for {seconds:g} s"


def _fill(broker: Broker, disk: SmallDisk) -> str:
    path = disk.fill()
    try:
        until(lambda: any(one["disk"] == "full" for one in broker.status()["log_dirs"]), "the disk is full")
        time.sleep(FULL_S)  # the duration is the fault
    finally:
        path.unlink()
    until(lambda: all(one["disk"] != "full" for one in broker.status()["log_dirs"]), "the disk has room again")
    return f"for {FULL_S:g} s"


def _lose_power(broker: Broker, disk: LossyDisk, relay: FrameRelay) -> str:
    """The machine loses its power. Clients learn nothing from the moment before on: a dying machine sends no answers."""
    relay.go_silent()
    disk.cut_power()
    broker.kill_group()
    disk.restore_power()
    broker.start()
    relay.silent = False
    return f"started again in {broker.start_seconds:.2f} s"


@contextmanager
def odradek(directory: Path, answer_s: float, settings: Mapping[str, str | int] = {}) -> Iterator[Surroundings]:
    """A broker of Odradek, on a small disk of its own if this process may mount one."""
    with ExitStack() as stack:
        disk = None
        config: dict[str, str | int] = dict(settings)
        if os.geteuid() == 0:
            disk = stack.enter_context(SmallDisk(directory / "disk", DISK_BYTES))
            config["log.dirs"] = str(disk.path / "data")
        under_test = stack.enter_context(start_odradek(directory / "broker", config))
        broker = under_test.broker
        assert broker is not None
        faults = of_network([under_test.relay], answer_s) | of_processes(broker)
        if disk is not None:
            faults["full disk"] = lambda _: _fill(broker, disk)
        yield _of_one(under_test.relay, under_test.direct, faults, partial(unwanted_lines, broker, {}))


@contextmanager
def synced_odradek(directory: Path, answer_s: float, settings: Mapping[str, str | int] = {}) -> Iterator[Surroundings]:
    """A broker of Odradek that can lose its power, and that waits for the device."""
    with ExitStack() as stack:
        disk = stack.enter_context(LossyDisk(directory, LOSSY_MEBIBYTES))
        config = SYNCED | {"log.dirs": str(disk.path / "data")} | dict(settings)
        under_test = stack.enter_context(start_odradek(directory / "broker", config))
        broker = under_test.broker
        assert broker is not None
        faults: dict[str, Fault] = {"lose power": lambda _: _lose_power(broker, disk, under_test.relay)}
        yield _of_one(under_test.relay, under_test.direct, faults, partial(unwanted_lines, broker, {}))


@contextmanager
def kafka(directory: Path, answer_s: float, settings: Mapping[str, str | int] = {}) -> Iterator[Surroundings]:
    """A broker of Apache Kafka."""
    directory.mkdir(parents=True, exist_ok=True)
    with start_kafka(directory / "broker", settings) as under_test:
        pid = int((directory / "broker" / "pid").read_text())
        faults = of_network([under_test.relay], answer_s) | {"stop": lambda rng: _pause(pid, rng)}
        yield _of_one(under_test.relay, under_test.direct, faults, list)


def _of_one(
    relay: FrameRelay, direct: Address, faults: dict[str, Fault], wrong: Callable[[], list[str]]
) -> Surroundings:
    def create(name: str, partitions: int) -> None:
        with Wire(*direct) as wire:
            wire.create(name, partitions)
            wire.until_led(name, partitions)

    def delete(name: str) -> None:
        with Wire(*direct) as wire:
            wire.delete(name)

    return Surroundings([("127.0.0.1", relay.port)], faults, create, delete, wrong)


def unwanted_lines(broker: Broker, seen: dict[str, int]) -> list[str]:
    """Lines of the broker's log that must not be there."""
    text = broker.log_file.read_text(errors="replace")
    new = text[seen.get("size", 0) :]
    seen["size"] = len(text)
    signs = ("Traceback", "ended by SIGSEGV", "ended by SIGABRT", "ended by SIGBUS")
    return [line for line in new.splitlines() if any(sign in line for sign in signs)]


def without_power_cuts() -> str:
    """The reason why no loss of power can be made here; empty if it can."""
    return no_power_cuts()
