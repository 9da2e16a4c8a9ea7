from typing import TypedDict


class MeterTimes(TypedDict):
    buckets: list[int]
    sum_us: int

class MeterListener(TypedDict):
    open: int
    accepted: int
    other_software: int
    logins: list[int]
    expired_killed: int

class MeterSoftware(TypedDict):
    since: int
    open: int
    listener: int
    lengths: list[int]
    spare: list[int]
    name: list[int]
    version: list[int]

class MeterClient(TypedDict):
    since: int
    last_ms: int
    principal_bytes: int
    client_bytes: int
    spare: int
    principal: list[int]
    client_id: list[int]

class MeterTopic(TypedDict):
    since: int
    last_ms: int
    name_bytes: int
    spare: list[int]
    largest_batch: int
    name: list[int]

class MeterUsage(TypedDict):
    since: int
    key: int
    last_ms: int
    retired_by: int
    values: list[int]

class MeterPosition(TypedDict):
    since: int
    key: int
    offset: int
    at_ms: int
    incarnation: int
    readers: int
    requested: int
    back_ms: int

class MeterPage(TypedDict):
    words: list[int]
    began_ms: int
    last_since: int
    changes: int
    retired_sequence: int
    retired_even: list[int]
    retired_odd: list[int]
    clients_used: int
    topics_used: int
    usage_used: int
    positions_used: int
    software_used: int
    listeners: list[MeterListener]
    loop_delay: MeterTimes
    batch_sizes: list[int]
    times: list[MeterTimes]
    requests: list[int]
    errors: list[int]
    software: list[MeterSoftware]
    usage: list[MeterUsage]
    positions: list[MeterPosition]
    clients: list[MeterClient]
    topics: list[MeterTopic]
