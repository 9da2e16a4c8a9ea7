"""Requests of transactional producers, brokers and tools over the wire, for tests that act as them.

Runs in the test's process. A verb sends one request and returns the response. `patient` verbs repeat the request while the
response is CONCURRENT_TRANSACTIONS or says that the coordinator is not ready, because Kafka answers EndTxn before the
transaction is complete; they are bounded by `tests.waiting`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_transactions,
    offset_fetch,
    produce,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from odradek.protocol.schemas.transaction_records import STATES
from odradek.storage.batch import TRANSACTIONAL, Record, build_batch
from tests.api.group_talk import BUSY, GroupTalk
from tests.transactions_against_kafka.state_log import records_of
from tests.waiting import until
from tests.wire import fetch_request, produce_request

_probes = itertools.count()
TIMEOUT_MS = 900_000
"""Of transactions: the longest, so that none is aborted because the machine is slow."""
WHEN = 1_700_000_000_000
"""The timestamp of all records."""
FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
NOT_YET = (ErrorCode.CONCURRENT_TRANSACTIONS, *BUSY)
READ_COMMITTED = 1
Place = tuple[str, int]


@dataclass(frozen=True)
class Producer:
    """A transactional id with a producer id and epoch, as a client holds them."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    def at(self, epoch: int) -> Producer:
        """The same producer with another epoch."""
        return replace(self, epoch=epoch)

    @property
    def later(self) -> Producer:
        """The same producer with the next epoch."""
        return self.at(self.epoch + 1)

    @property
    def earlier(self) -> Producer:
        """The same producer with the previous epoch."""
        return self.at(self.epoch - 1)


def codes_of(answer: Any) -> Iterator[int]:
    """Each error code anywhere in a response."""
    if isinstance(answer, list):
        for part in answer:
            yield from codes_of(part)
    elif hasattr(answer, "_structure"):
        for field in (name for name in dir(answer) if name[0].islower()):
            value = getattr(answer, field)
            if field.endswith("error_code"):
                yield value
            else:
                yield from codes_of(value)


class TransactionTalk(GroupTalk):
    """A connection over which producers, brokers and tools speak. All times in ms.

    `heard` is called with API key, version, request and response of each request that is not in `quietly`.
    """

    heard: Callable[[int, int, Any, Any], None] | None = None

    def ask(self, request: Any, api_key: int, version: int) -> Any:
        answer = super().ask(request, api_key, version)
        if self.heard is not None:
            self.heard(api_key, version, request, answer)
        return answer

    def asked_until(self, request: Any, api_key: int, version: int, patient: bool = True) -> Any:
        """Send; if `patient`, repeat while the response is one of NOT_YET. Only the last response is heard."""
        if not patient:
            return self.ask(request, api_key, version)

        def answered() -> Any:
            answer = super(TransactionTalk, self).ask(request, api_key, version)
            return None if any(code in NOT_YET for code in codes_of(answer)) else answer

        answer = until(answered, f"an answer of API {api_key} other than {NOT_YET}")
        if self.heard is not None:
            self.heard(api_key, version, request, answer)
        return answer

    def until_led(self, topic: str, partitions: int = 1) -> None:
        """Ask until each partition has a leader here, in a version that Kafka 3.9 has, unheard."""
        with self.quietly():
            for partition in range(partitions):
                until(
                    lambda partition=partition: self.offset_at(topic, -2, partition, version=6).error_code == 0,
                    f"{topic}-{partition} has a leader",
                )

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Responses are not heard."""
        heard, self.heard = self.heard, None
        try:
            yield
        finally:
            self.heard = heard

    # -- coordinator ------------------------------------------------------------------------------------------------

    def find_coordinator(self, *keys: str, version: int = 4, key_type: int = 1) -> Any:
        """A FindCoordinator of transactional ids."""
        make = find_coordinator.Request
        if version < 4:
            request = make(key=keys[0], key_type=key_type) if version else make(key=keys[0])
        else:
            request = make(key_type=key_type, coordinator_keys=list(keys))
        return self.asked_until(request, find_coordinator.API_KEY, version)

    def init(
        self,
        producer: Producer | str | None,
        version: int = 5,
        *,
        timeout_ms: int = TIMEOUT_MS,
        patient: bool = True,
        **fields: Any,
    ) -> Producer:
        """An InitProducerId; what the response makes of the producer. A `Producer` names its id and epoch from 3 on."""
        transactional_id = producer.transactional_id if isinstance(producer, Producer) else producer
        if isinstance(producer, Producer) and version >= 3:
            fields = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch} | fields
        request = init_producer_id.Request(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields
        )
        answer = self.asked_until(request, init_producer_id.API_KEY, version, patient)
        return Producer(transactional_id or "", answer.producer_id, answer.producer_epoch)

    def add(self, producer: Producer, *places: Place, version: int = 3, patient: bool = True) -> Any:
        """An AddPartitionsToTxn as a client sends it, 0 to 3."""
        make = add_partitions_to_txn.Request
        request = make(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=_topics(make.AddPartitionsToTxnTopic, places),
        )
        return self.asked_until(request, add_partitions_to_txn.API_KEY, version, patient)

    def add_as_broker(
        self, *asked: tuple[Producer, Sequence[Place]], verify: bool, version: int = 5, patient: bool = True
    ) -> Any:
        """An AddPartitionsToTxn as a leader sends it, 4 and 5: producers with partitions."""
        make = add_partitions_to_txn.Request
        transactions = [
            make.AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=verify,
                topics=_topics(make.AddPartitionsToTxnTopic, places),
            )
            for producer, places in asked
        ]
        return self.asked_until(make(transactions=transactions), add_partitions_to_txn.API_KEY, version, patient)

    def add_offsets(self, producer: Producer, group: str, version: int = 4, patient: bool = True) -> Any:
        """An AddOffsetsToTxn."""
        request = add_offsets_to_txn.Request(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        )
        return self.asked_until(request, add_offsets_to_txn.API_KEY, version, patient)

    def end(
        self, producer: Producer, commits: bool, version: int = 5, *, patient: bool = True, completes: bool = True
    ) -> Producer:
        """An EndTxn; the producer afterwards. After success it waits until the transaction is complete, if `completes`."""
        request = end_txn.Request(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )
        answer = self.asked_until(request, end_txn.API_KEY, version, patient)
        if answer.error_code:
            return producer
        if completes:
            self.until_complete(producer.transactional_id)
        if version < 5:
            return producer
        return Producer(producer.transactional_id, answer.producer_id, answer.producer_epoch)

    def state_of(self, transactional_id: str) -> Any:
        """What DescribeTransactions says of one id, unheard."""
        with self.quietly():
            return self.describe_transactions(transactional_id).transaction_states[0]

    def until_complete(self, transactional_id: str) -> None:
        """Wait until the markers of an ended transaction are written; or until the id has expired.

        The markers of the next transaction have a later timestamp: of two with the same one, the first has the largest.
        """
        self.until_state(transactional_id, "Empty", "CompleteCommit", "CompleteAbort", "")
        ended = time.time_ns() // 1_000_000
        until(lambda: time.time_ns() // 1_000_000 > ended, "the clock does not proceed")

    def until_state(self, transactional_id: str, *states: str) -> None:
        """Wait until the transaction is in one of the states."""
        until(
            lambda: self.state_of(transactional_id).transaction_state in states,
            lambda: f"{transactional_id} is {self.state_of(transactional_id)}, not one of {states}",
        )

    def describe_transactions(self, *transactional_ids: str, patient: bool = True) -> Any:
        """A DescribeTransactions."""
        request = describe_transactions.Request(transactional_ids=list(transactional_ids))
        return self.asked_until(request, describe_transactions.API_KEY, 0, patient)

    def list_transactions(self, version: int = 2, **fields: Any) -> Any:
        """A ListTransactions."""
        return self.asked_until(list_transactions.Request(**fields), list_transactions.API_KEY, version)

    # -- leaders ----------------------------------------------------------------------------------------------------

    def send_batch(
        self,
        producer: Producer | None,
        place: tuple[str | bytes, int],
        sequence: int,
        *values: bytes,
        version: int = 12,
        patient: bool = True,
        acks: int = -1,
        transactional_id: str | None = "",
        **fields: Any,
    ) -> Any:
        """A Produce of one batch; what the response says of the partition.

        :param transactional_id: of the request, "" for the producer's. :param fields: as `data_batch` has them.
        """
        topic, partition = place
        data = data_batch(producer, sequence, *values, **fields)
        return self.send_batches({place: data}, producer, version, patient, acks, transactional_id)[topic, partition]

    def send_batches(
        self,
        batches: dict[tuple[str | bytes, int], bytes],
        producer: Producer | None,
        version: int = 12,
        patient: bool = True,
        acks: int = -1,
        transactional_id: str | None = "",
    ) -> Any:
        """A Produce of a batch to each partition; what the response says of each."""
        topics: dict[str | bytes, list[tuple[int, bytes | None]]] = {}
        for (topic, partition), data in batches.items():
            topics.setdefault(topic, []).append((partition, data))
        request = produce_request(list(topics.items()), acks)
        request.transactional_id = (
            (producer.transactional_id if producer else None) if transactional_id == "" else transactional_id
        )
        answer = self.asked_until(request, produce.API_KEY, version, patient)
        return {
            (answered.topic_id if version >= 13 else answered.name, partition.index): partition
            for answered in answer.responses
            for partition in answered.partition_responses
        }

    def fetch_at(self, place: tuple[str | bytes, int], offset: int = 0, version: int = 12, **fields: Any) -> Any:
        """A Fetch from one partition at read_committed unless `isolation_level` is given."""
        request = fetch_request([(place[0], place[1], offset)], **{"isolation_level": READ_COMMITTED} | fields)
        return self.ask(request, fetch.API_KEY, version).responses[0].partitions[0]

    def producers_of(self, *places: Place) -> Any:
        """A DescribeProducers."""
        make = describe_producers.Request
        return self.ask(make(topics=_topics(make.TopicRequest, places, "partition_indexes")), 61, 0)

    def mark(
        self,
        producer: Producer,
        commits: bool,
        *places: Place,
        version: int = 2,
        coordinator_epoch: int = 0,
        transaction_version: int = 2,
    ) -> Any:
        """A WriteTxnMarkers of one marker, as a coordinator or `kafka-transactions.sh abort` sends it."""
        return self.mark_all(
            marker_of(producer, commits, *places, coordinator_epoch=coordinator_epoch, tv=transaction_version),
            version=version,
        )

    def mark_all(self, *markers: Any, version: int = 2) -> Any:
        """A WriteTxnMarkers."""
        if version < 2:
            for marker in markers:
                marker.transaction_version = 0
        return self.ask(write_txn_markers.Request(markers=list(markers)), write_txn_markers.API_KEY, version)

    # -- offsets ----------------------------------------------------------------------------------------------------

    def commit_in_transaction(
        self,
        producer: Producer,
        group: str,
        offsets: dict[Place, int | tuple[int, str]],
        version: int = 5,
        *,
        patient: bool = True,
        **fields: Any,
    ) -> Any:
        """A TxnOffsetCommit; an offset is a number, or a number and a note."""
        make = txn_offset_commit.Request
        topics: dict[str, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            number, note = offset if isinstance(offset, tuple) else (offset, "")
            topics.setdefault(topic, []).append(
                make.TxnOffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=number, committed_metadata=note
                )
            )
        request = make(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
            topics=[make.TxnOffsetCommitRequestTopic(name=name, partitions=found) for name, found in topics.items()],
            **fields,
        )
        return self.asked_until(request, txn_offset_commit.API_KEY, version, patient)

    def offsets_of(
        self, group: str, places: dict[str, list[int]] | None, stable: bool = False, version: int = 8
    ) -> Any:
        """An OffsetFetch, None for all that the group has."""
        make = offset_fetch.Request
        fields = {"require_stable": stable} if version >= 7 else {}
        if version < 8:
            topics = None
            if places is not None:
                topics = [make.OffsetFetchRequestTopic(name=one, partition_indexes=p) for one, p in places.items()]
            return self.ask(make(group_id=group, topics=topics, **fields), offset_fetch.API_KEY, version)
        topics = None
        if places is not None:
            topics = [make.OffsetFetchRequestTopics(name=one, partition_indexes=p) for one, p in places.items()]
        asked = make.OffsetFetchRequestGroup(group_id=group, topics=topics)
        return self.ask(make(groups=[asked], **fields), offset_fetch.API_KEY, version)

    # -- the cluster ------------------------------------------------------------------------------------------------

    def api_versions(self, version: int = 4) -> Any:
        """An ApiVersions."""
        request = api_versions.Request(client_software_name="wire", client_software_version="1")
        return self.ask(request, api_versions.API_KEY, version)

    def level(self) -> int:
        """The finalized level of `transaction.version`, unheard; 0 if the response does not name it."""
        with self.quietly():
            features = self.api_versions().finalized_features or []
        return next((one.max_version_level for one in features if one.name == FEATURE), 0)

    def update_feature(
        self,
        level: int,
        kind: int = UPGRADE,
        *,
        feature: str = FEATURE,
        version: int = 2,
        dry: bool = False,
        more: Sequence[tuple[str, int]] = (),
    ) -> Any:
        """An UpdateFeatures. :param kind: of the upgrade; in version 0 whether a downgrade is allowed."""
        make = update_features.Request
        how: dict[str, Any] = {"upgrade_type": kind} if version else {"allow_downgrade": kind != UPGRADE}
        updates = [make.FeatureUpdateKey(feature=feature, max_version_level=level, **how)]
        updates += [make.FeatureUpdateKey(feature=one, max_version_level=other, **how) for one, other in more]
        request = make(timeout_ms=TIMEOUT_MS, feature_updates=updates, **({"validate_only": dry} if version else {}))
        return self.ask(request, update_features.API_KEY, version)

    def at_level(self, level: int) -> None:
        """Bring `transaction.version` to a level, unheard, and wait until the coordinator follows it, too."""
        with self.quietly():
            if (now := self.level()) != level:
                answer = self.update_feature(level, UPGRADE if level > now else SAFE_DOWNGRADE)
                assert answer.error_code == ErrorCode.NONE, answer
                until(lambda: self.level() == level, f"{FEATURE} is {level}")
            until(lambda: self._level_of_coordinator() == level, f"the coordinator is at level {level}")

    def _level_of_coordinator(self) -> int:
        """The level by which the coordinator aborts a transaction and writes its record."""
        name = f"probe-{next(_probes)}"
        self.add_offsets(self.init(name), name, 3)
        self.init(name, patient=False)
        self.until_complete(name)
        (prepared, *_) = [
            record for record in records_of(self, {name}) if STATES[record.value.transaction_status] == "PrepareAbort"
        ]
        assert prepared.raw_value is not None
        return int.from_bytes(prepared.raw_value[:2], "big") and max(1, prepared.value.client_transaction_version)

    def set_topic(self, topic: str, **configs: object) -> None:
        """Set configurations of a topic (`segment_bytes=...` is segment.bytes), unheard."""
        make = incremental_alter_configs.Request
        changes = [
            make.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=str(value))
            for key, value in configs.items()
        ]
        resource = make.AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
        with self.quietly():
            answer = self.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer


def data_batch(
    producer: Producer | None, sequence: int, *values: bytes, attributes: int = TRANSACTIONAL, when: int = WHEN
) -> bytes:
    """A batch of the producer with a record per value, transactional unless `attributes` says otherwise."""
    records = [Record(b"k", value, when) for value in values or (b"value",)]
    if producer is None:
        return build_batch(records)
    return build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        attributes=attributes,
    )


def marker_of(producer: Producer, commits: bool, *places: Place, coordinator_epoch: int = 0, tv: int = 2) -> Any:
    """A marker of WriteTxnMarkers."""
    make = write_txn_markers.Request
    return make.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=commits,
        coordinator_epoch=coordinator_epoch,
        transaction_version=tv,
        topics=_topics(make.WritableTxnMarkerTopic, places, "partition_indexes"),
    )


def _topics(make: Any, places: Iterable[Place], field: str = "partitions") -> list[Any]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return [make(name=name, **{field: partitions}) for name, partitions in topics.items()]
