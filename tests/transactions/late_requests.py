"""Late requests of transactions: the client has sent the request again and has begun its next transaction before the
request arrives.

In transaction version 1, an EndTxn request does not name the transaction that it ends. So a late EndTxn can end the next
transaction of its producer (KAFKA-17754). ``python -m tests.transactions.late_requests --trials 50`` counts how often
this happens with this broker, and with `--peer kafka` with Apache Kafka.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from odradek.protocol.schemas import add_partitions_to_txn, end_txn, init_producer_id, produce, txn_offset_commit
from tests.faults import process_faults
from tests.frame_relay import FORWARD, HELD, Fate, Frame, Held, Rule, forward_all
from tests.transactions.broker_under_test import STARTERS, UnderTest
from tests.transactions.checker.anomalies import Anomaly, Kind, anomalies
from tests.transactions.checker.history import History, Outcome, Place, Transaction
from tests.transactions.final_logs import read_logs
from tests.transactions.wire_calls import RefusedError, Routes, Timing, TooLateError
from tests.transactions.wire_producer import WireProducer
from tests.transactions.wire_reader import READ_COMMITTED, READ_UNCOMMITTED, WireReader
from tests.waiting import until
from tests.wire import Wire

ANSWER_S = 0.4
TIMING = Timing(ANSWER_S, 60)


def hold_first(api_key: int) -> Rule:
    """Hold back the first request of an API, and forward everything else."""
    held = False

    def rule(frame: Frame) -> Fate:
        nonlocal held
        if frame.api_key != api_key or held:
            return FORWARD
        held = True
        return Fate(HELD)

    return rule


class Trial:
    """A producer whose requests go through a relay, its topic with two partitions, and its history."""

    def __init__(self, broker: UnderTest, name: str, transaction_version: int) -> None:
        self.broker = broker
        self.name = name
        self.history = History()
        self.first, self.second = Place(name, 0), Place(name, 1)
        self.transaction_version = transaction_version
        self.producer = self.instance()
        self.offset_errors: list[Anomaly] = []
        with Wire(*broker.direct) as wire:
            wire.create(name, 2)
            wire.until_led(name, 2)

    def instance(self) -> WireProducer:
        """A new instance of the producer."""
        routes = Routes([self.broker.server], ANSWER_S, fixed=True)
        return WireProducer(routes, self.name, self.transaction_version, TIMING)

    def reader(self, places: Iterable[Place], isolation: int = READ_COMMITTED) -> WireReader:
        """A reader that does not use the relay."""
        return WireReader(Routes([self.broker.direct], 10, fixed=True), places, Timing(10, 60), isolation)

    def begin(self) -> Transaction:
        """Begin the next transaction."""
        transaction = self.producer.begin(len(self.history.transactions) + 1)
        self.history.transactions[transaction.number] = transaction
        return transaction

    def end(self, commit: bool, place: Place | None = None) -> None:
        """Write to a partition and end the transaction. A broker may refuse this, if the transaction remains atomic."""
        try:
            if place is not None:
                self.producer.write(place)
            self.producer.commit() if commit else self.producer.abort()
        except (RefusedError, TooLateError):
            self.producer.init()

    def wait_for_markers(self) -> None:
        """Wait until a transaction with a record in the first partition has its markers there, and in the second one
        if it was added.
        """
        place, end = (self.second, 0) if self.transaction_version == 1 else (self.first, 1)
        reader = self.reader([])
        until(lambda: reader.end(place, READ_UNCOMMITTED) > end, f"{place} has a marker")
        reader.close()

    @contextmanager
    def held(self, api_key: int) -> Iterator[list[Held]]:
        """Hold back the first request of an API that is sent within the context; at its end, the list contains it."""
        found: list[Held] = []
        self.broker.relay.rule = hold_first(api_key)
        yield found
        found += self.broker.relay.wait_for_held()
        self.broker.relay.rule = forward_all

    def found(self) -> list[Anomaly]:
        """Read the logs at the end, and return all anomalies."""
        self.producer.close()
        read_logs(self.reader, self.history, [self.first, self.second])
        return anomalies(self.history)


# -- scenarios ---------------------------------------------------------------------------------------------------------


def late_commit(trial: Trial) -> None:
    """The commit of a transaction arrives in the middle of the next one, which is aborted."""
    trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    with trial.held(end_txn.API_KEY) as held:
        trial.producer.commit()
    trial.begin()
    trial.producer.write(trial.first)
    held[0].release()
    trial.end(False, trial.second)


def late_commit_after_a_death(trial: Trial) -> None:
    """As `late_commit`, but the coordinator process, which remembers the newest connection of the producer, is killed
    before the next transaction begins."""
    trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    with trial.held(end_txn.API_KEY) as held:
        trial.producer.commit()
    assert trial.broker.broker is not None
    process_faults.kill_one(trial.broker.broker, random.Random(1), "coordinator")
    trial.begin()
    trial.producer.write(trial.first)
    held[0].release()
    trial.end(False, trial.second)


def late_abort(trial: Trial) -> None:
    """The abort of a transaction arrives in the middle of the next one, which is committed."""
    trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    with trial.held(end_txn.API_KEY) as held:
        trial.producer.abort()
    trial.begin()
    trial.producer.write(trial.first)
    held[0].release()
    trial.end(True, trial.second)


def late_records(trial: Trial) -> None:
    """Records arrive again after the end of their transaction. If they opened a transaction, no coordinator would end it."""
    trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    with trial.held(produce.API_KEY) as held:
        trial.producer.write(trial.second)
    trial.producer.commit()
    held[0].release()


def late_first_records(trial: Trial) -> None:
    """Records arrive for the first time after their transaction was aborted, with the epoch that the producer still
    has.
    """
    trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    held = _write_in_vain(trial)
    trial.producer.abort(new_epoch=False)
    trial.wait_for_markers()
    held.release()


def late_records_of_the_dead(trial: Trial) -> None:
    """Records arrive for the first time after another instance has ended their transaction."""
    trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    held = _write_in_vain(trial)
    trial.producer.close()
    trial.producer = trial.instance()
    trial.producer.init()
    trial.wait_for_markers()
    held.release()


def _write_in_vain(trial: Trial) -> Held:
    """Write to the second partition once, hold the request back, and do not repeat it."""
    with trial.held(produce.API_KEY) as held, suppress(TooLateError):
        trial.producer.timing = TIMING._replace(patience_s=0)
        trial.producer.write(trial.second)
    trial.producer.timing = TIMING
    return held[0]


def late_partitions(trial: Trial) -> None:
    """AddPartitionsToTxn of a transaction arrives after its end."""
    trial.producer.init()
    trial.begin()
    with trial.held(add_partitions_to_txn.API_KEY) as held:
        trial.producer.write(trial.first)
    trial.producer.commit()
    held[0].release()
    trial.begin()
    trial.end(True, trial.second)


def late_fence(trial: Trial) -> None:
    """The first InitProducerId of an instance arrives when the instance already has a transaction: the instance is fenced, and
    the transaction remains atomic.
    """
    with trial.held(init_producer_id.API_KEY) as held:
        trial.producer.init()
    trial.begin()
    trial.producer.write(trial.first)
    held[0].release()
    trial.end(True, trial.second)


def late_offsets(trial: Trial) -> None:
    """The offset of a transaction arrives in the middle of the next one: the group must not go back to the earlier offset."""
    trial.producer.init()
    source = Place(f"{trial.name}-source", 0)
    with Wire(*trial.broker.direct) as wire:
        wire.create(source.topic, 1)
    trial.begin()
    trial.producer.write(trial.first)
    with trial.held(txn_offset_commit.API_KEY) as held:
        trial.producer.send_offsets(trial.name, {source: 1})
    trial.end(True)
    trial.begin()
    trial.producer.write(trial.first)
    trial.producer.send_offsets(trial.name, {source: 2})
    held[0].release()
    trial.end(True)
    reader = trial.reader([])
    found = reader.committed(trial.name, [source])[source]
    reader.close()
    if (newest := trial.history.transactions[2]).outcome is Outcome.COMMITTED and found != 2:
        newest.note += f"its offset was 2, the group has {found}"
        trial.offset_errors.append(Anomaly(Kind.COPIED_TWICE, f"the group went back from offset 2 to {found}"))


SCENARIOS: dict[str, Callable[[Trial], None]] = {
    function.__name__: function
    for function in (
        late_commit,
        late_commit_after_a_death,
        late_abort,
        late_records,
        late_first_records,
        late_records_of_the_dead,
        late_partitions,
        late_fence,
        late_offsets,
    )
}
NEEDS_FIRST_VERSION = {late_partitions.__name__}
"""The scenarios with requests that only clients of transaction version 1 send."""
NEEDS_PROCESSES = {late_commit_after_a_death.__name__}
"""The scenarios that need processes of Odradek."""
TORN_BY_KAFKA = {late_commit.__name__, late_abort.__name__, late_offsets.__name__}
"""The scenarios that go wrong with Apache Kafka 4.3, for clients of transaction version 1."""


def applies(scenario: str, transaction_version: int, peer: str) -> bool:
    """Whether a scenario is possible."""
    if scenario in NEEDS_FIRST_VERSION and transaction_version == 2:
        return False
    return scenario not in NEEDS_PROCESSES or peer == "odradek"


def run(broker: UnderTest, scenario: str, transaction_version: int, number: int) -> list[Anomaly]:
    """Run a scenario once; return the anomalies."""
    trial = Trial(broker, f"{scenario.replace('_', '-')}-{transaction_version}-{number}", transaction_version)
    try:
        SCENARIOS[scenario](trial)
    finally:
        broker.relay.heal()
    return trial.found() + trial.offset_errors


def main() -> int:
    """Run scenarios and print how often each one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=STARTERS, default="odradek")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--tv", type=int, choices=(1, 2), action="append")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--only", default="", help="names of scenarios, separated by commas")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.set)
    wrong: Counter[tuple[str, int]] = Counter()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="late-requests-")))
        broker = stack.enter_context(STARTERS[options.peer](directory / "broker", settings))
        for version in options.tv or (1, 2):
            for scenario in options.only.split(",") if options.only else SCENARIOS:
                if not applies(scenario, version, options.peer):
                    continue
                kinds: Counter[str] = Counter()
                for number in range(options.trials):
                    if found := run(broker, scenario, version, number):
                        wrong[scenario, version] += 1
                        kinds.update({anomaly.kind.value for anomaly in found})
                count = wrong[scenario, version]
                print(f"TV{version} {scenario:20} {count} of {options.trials} wrong {dict(kinds) or ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
