"""Conversations about what administrators ask: DescribeProducers, DescribeTransactions, ListTransactions, features."""

from __future__ import annotations

from typing import Any

from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from odradek.protocol.schemas import describe_producers as producers
from odradek.protocol.schemas import describe_transactions as transactions
from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import (
    FEATURE,
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    Producer,
)
from tests.waiting import until

APIS = (
    init_producer_id,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    find_coordinator,
    producers,
    transactions,
    list_transactions,
)


def producers_are_described(stage: Stage) -> None:
    """Partitions without producers, unknown ones, an illegal name, and producers of each kind."""
    talk = stage.talk
    topic = stage.topic(partitions=2)
    talk.producers_of((topic, 0), (topic, 1), (topic, 7), (topic, -1), ("no-such-topic", 0), ("bad name", 0))
    talk.producers_of()
    with talk.quietly():
        idempotent = talk.init(None)
        talk.send_batch(idempotent, (topic, 0), 0, attributes=0, transactional_id=None)
        one = stage.started("one")
        talk.send_batch(one, (topic, 0), 0)
        two = stage.started("two")
        talk.send_batch(two, (topic, 0), 0)
        talk.end(two, False)
    stage.transcript.know(idempotent.producer_id, one.producer_id, two.producer_id)
    talk.producers_of((topic, 0), (topic, 1))


def transactions_are_described(stage: Stage) -> None:
    """Several at once; unknown ones; an empty id; one asked twice; partitions of several topics."""
    talk = stage.talk
    first, second = stage.topic("first", 3), stage.topic("second", 2)
    for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"):
        stage.brought(state, state)
    words = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "unknown")
    talk.describe_transactions(*(stage.word(word) for word in words), "")
    talk.describe_transactions()
    talk.describe_transactions(stage.word("Empty"), stage.word("Empty"))
    producer = stage.started("wide")
    talk.add(producer, (first, 2), (second, 1), (first, 0))
    talk.add_offsets(producer, stage.word("group"))
    talk.describe_transactions(stage.word("wide"))


def transactions_are_listed(stage: Stage, version: int) -> None:
    """Each filter, alone and together. Other conversations' transactions are left out."""
    talk = stage.talk
    held = {}
    for state in ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort"):
        held[state] = stage.brought(state, state)

    def listed(**fields: Any) -> None:
        with talk.quietly():
            answer = talk.list_transactions(version, **fields)
        mine = sorted(
            (one.transactional_id.removeprefix(f"{stage.name}-"), one.transaction_state)
            for one in answer.transaction_states
            if one.transactional_id.startswith(f"{stage.name}-")
        )
        shown = {
            name: [list(held.values()).index(one) if one in held.values() else one for one in value]
            if name == "producer_id_filters"
            else str(value).replace(stage.name, "~")
            for name, value in fields.items()
        }
        ids = [one.producer_id == held[one.transaction_state].producer_id for one in answer.transaction_states
               if one.transactional_id.startswith(f"{stage.name}-")]  # fmt: skip
        unknown = sorted(answer.unknown_state_filters)
        stage.transcript.note(f"{shown} -> error {answer.error_code}, {mine}, unknown {unknown}, ids right {all(ids)}")

    listed()
    for states in (
        ["Empty"],
        ["Ongoing", "CompleteCommit"],
        ["ongoing"],
        ["Nonsense", "Empty"],
        ["Nonsense"],
        ["Dead"],
        ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"],
        [""],
    ):
        listed(state_filters=states)
    ids = {state: producer.producer_id for state, producer in held.items()}
    for wanted in ([ids["Empty"]], [ids["Ongoing"], ids["CompleteAbort"]], [-1], [1 << 40]):
        with talk.quietly():
            answer = talk.list_transactions(version, producer_id_filters=wanted)
        found = sorted(one.transaction_state for one in answer.transaction_states)
        stage.transcript.note(f"of {len(wanted)} producers -> error {answer.error_code}, {found}")
    if version >= 1:
        for duration_ms in (-1, 0, 1 << 40, (1 << 63) - 1, -5):
            listed(duration_filter=duration_ms)
        listed(state_filters=["Ongoing", "Empty"], duration_filter=1 << 40)
    if version >= 2:
        for pattern in (
            "",
            ".*",
            f"{stage.name}-.*",
            f"{stage.name}-Complete(Commit|Abort)",
            f"{stage.name}-Complete",
            "nothing",
            f"(?i){stage.name}-EMPTY",
            f"{stage.name}-[A-E].*",
            "(",
            "*",
        ):
            listed(transactional_id_pattern=pattern)
        listed(transactional_id_pattern=f"{stage.name}-C.*", state_filters=["CompleteAbort"], duration_filter=0)


def versions_of_apis(stage: Stage) -> None:
    """Those that ApiVersions tells."""
    with stage.talk.quietly():
        answer = stage.talk.api_versions()
    found = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    for api in APIS:
        stage.transcript.note(f"{api.__name__.rpartition('.')[2]}: {found.get(api.API_KEY)}")


def tell_features(stage: Stage, version: int) -> None:
    """What ApiVersions says of `transaction.version`."""
    with stage.talk.quietly():
        answer = stage.talk.api_versions(version)
    supported = [(one.min_version, one.max_version) for one in answer.supported_features or [] if one.name == FEATURE]
    finalized = [
        (one.min_version_level, one.max_version_level) for one in answer.finalized_features or [] if one.name == FEATURE
    ]
    epoch = "an epoch" if answer.finalized_features_epoch >= 0 else "no epoch"
    stage.transcript.note(f"version {version}: supported {supported}, finalized {finalized}, {epoch}")


def features_are_told(stage: Stage) -> None:
    for version in range(5):
        tell_features(stage, version)


def updates_of_features(stage: Stage, version: int) -> None:
    """Up and down, dry and real; levels that are not there; other features; two updates of which one is wrong."""
    talk = stage.talk
    kinds = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
    for dry in (True, False):
        for level in (3, -1, 32767):
            for kind in kinds:
                talk.update_feature(level, kind, version=version, dry=dry)
        talk.update_feature(1, UPGRADE, version=version, dry=dry)
        tell_features(stage, 4)
        talk.update_feature(2, UPGRADE, version=version, dry=dry)
        talk.update_feature(2, SAFE_DOWNGRADE, version=version, dry=dry)
        talk.update_feature(1, SAFE_DOWNGRADE, version=version, dry=dry)
        settles(stage, 2 if dry else 1)
        talk.update_feature(2, SAFE_DOWNGRADE, version=version, dry=dry)
        talk.update_feature(0, UNSAFE_DOWNGRADE, version=version, dry=dry)
        settles(stage, 2 if dry else 0)
        for version_of_request in (3, 4):
            tell_features(stage, version_of_request)
        talk.update_feature(0, SAFE_DOWNGRADE, version=version, dry=dry)
        talk.update_feature(1, UPGRADE, version=version, dry=dry)
        settles(stage, 2 if dry else 1)
        talk.update_feature(2, UPGRADE, version=version, dry=dry)
        settles(stage, 2)
        talk.update_feature(1, UPGRADE, feature="no.such.feature", version=version, dry=dry)
        talk.update_feature(0, UPGRADE, feature="", version=version, dry=dry)
        talk.update_feature(2, UPGRADE, version=version, dry=dry, more=[("no.such.feature", 1)])
        talk.update_feature(9, UPGRADE, version=version, dry=dry, more=[("no.such.feature", 1)])
    for kind in (0, 4, -1):
        talk.update_feature(1, kind, version=version)
    talk.at_level(2)


def updates_of_features_by_old_clients(stage: Stage) -> None:
    """Version 0 has no types; Kafka 4.3 ignores its flag that allows downgrades."""
    for level in (2, 1, 0, 3, -1):
        for kind in (UPGRADE, SAFE_DOWNGRADE):
            stage.talk.update_feature(level, kind, version=0)
    tell_features(stage, 4)
    stage.talk.at_level(2)


def settles(stage: Stage, level: int) -> None:
    """Wait until ApiVersions tells the level, which Kafka's broker learns from its log of metadata."""
    until(lambda: stage.talk.level() == level, f"the level is {level}")
    tell_features(stage, 4)


def an_id_of_another_level(stage: Stage, before: int, after: int) -> None:
    """A transaction that is open while the level changes: its client ends it as it began, or the coordinator does."""
    talk = stage.talk
    topic = stage.topic()
    with talk.quietly():
        talk.at_level(before)
        producers_ = {word: stage.started(word) for word in ("ends", "fenced", "done")}
        for producer in producers_.values():
            begin(stage, producer, topic, before)
        producers_["done"] = talk.end(producers_["done"], True, 5 if before >= 2 else 4)
        talk.at_level(after)
    try:
        talk.end(producers_["ends"], True, 5 if before >= 2 else 4)
        talk.describe_transactions(*(stage.word(word) for word in producers_))
        for word in producers_:
            talk.init(stage.word(word))
        talk.describe_transactions(*(stage.word(word) for word in producers_))
        talk.fetch_at((topic, 0))
    finally:
        with talk.quietly():
            talk.at_level(2)


def begin(stage: Stage, producer: Producer, topic: str, level: int) -> None:
    """A transaction with a batch, by the protocol of the level."""
    if level < 2:
        stage.talk.add(producer, (topic, 0))
    stage.talk.send_batch(producer, (topic, 0), 0, version=12 if level >= 2 else 11)


ROWS: Rows = [
    *rows(producers_are_described),
    *rows(transactions_are_described),
    *rows(transactions_are_listed, 0, 1, 2),
    *rows(versions_of_apis),
    *rows(features_are_told),
    *rows(updates_of_features, 1, 2),
    *rows(updates_of_features_by_old_clients),
    *rows(an_id_of_another_level, (2, 1), (1, 2), (1, 0), (0, 1), (0, 2)),
]
