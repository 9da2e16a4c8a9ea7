from typing import TypedDict

from typing_extensions import TypeAlias

from odradek._ext.partition.log_writing import AppendItem
from odradek._ext.shm.client_quotas import QuotaUse
from odradek._ext.shm.metering import Client

Slow: TypeAlias = int

class ProduceItem(TypedDict):
    append: AppendItem
    slot: int
    incarnation: int
    request: int
    partition: int
    topic: int
    topic_bytes: int
    topic_partitions: int
    error: int
    appended: int
    slow: int
    unverified: int
    bad_records: int
    message: int
    record_errors: int
    required_offset: int
    flush_offset: int
    leader_epoch: int
    sent_bytes: int
    counted: int
    following: int
    held: int

class ProduceRequest(TypedDict):
    correlation_id: int
    version: int
    acks: int
    timeout_ms: int
    first: int
    count: int
    topics: int
    record_errors: int
    client: Client
    listener: int
    owner: int
    connection_id: int
    transactional_id: int
    transactional_id_bytes: int
    transactional: int
    limited: int
    frame_bytes: int
    produce_quota: QuotaUse
    time_quota: QuotaUse

class BatchProducer(TypedDict):
    id: int
    epoch: int
    base_sequence: int
