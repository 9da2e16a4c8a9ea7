from typing import Any, TypedDict

from odradek._ext.shm.layout import Region, region

PROBE_NAMES = ('parked_requests', 'parked_fetches', 'parked_produces', 'parked_forwards', 'queued_bytes', 'connections_limit', 'fetch_sessions', 'fetch_session_partitions', 'kept_bytes', '', '', '', '', '', '', '', 'socket_bytes_in', 'socket_bytes_out', 'sendfile_bytes', 'unsent_bytes', 'unused_bytes_in', 'frames', 'bad_frames', 'connections_accepted', 'closed_eof', 'closed_reset', 'closed_idle', 'closed_bad_frame', 'closed_other_protocol', 'closed_handler', 'closed_file', 'closed_error', 'closed_asked', 'turns', 'turn_us', 'cpu_us', 'busy_us', 'bytes_rejected', 'produce_failed', 'fetch_failed', 'folded', 'retired_entries', 'forwarded_requests', 'forwarded_bytes_in', 'forwarded_bytes_out', 'cleaner_passes', 'segments_removed', 'bytes_removed', 'compactions', 'connections_refused', 'connections_full', 'fetch_sessions_evicted', 'late_requests', 'forgotten_bytes')

class MeterTimes(TypedDict):
    buckets: list[int]
    sum_us: int

class MeterListener(TypedDict):
    open: int
    accepted: int
    other_software: int

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

class ReaderPlace(TypedDict):
    number: int
    since: int

class Client(TypedDict):
    number: int
    since: int

class Index(TypedDict):
    places: int
    mask: int

class State(TypedDict):
    region: Region
    page: MeterPage
    private_page: MeterPage
    clients: Index
    topics: Index
    usage: Index
    positions: Index
    live_clients: int
    live_topics: int
    live_usage: int
    live_positions: int
    free_client: int
    free_topic: int
    free_usage: int
    free_position: int
    now_ms: int
    fixed_now_ms: int
    idle_ms: int
    next_retire_ms: int
    indexed: bool

def set_idle_ms(idle_ms: int): ...
def count(name: str, n: int=1): ...
def gauge(name: str, value: int): ...
def count_loop_delay(us: int): ...
def count_request_errors(api_key: int, codes): ...
def use_clock(wall_ms: int): ...
def count_usage(principal: bytes, client_id: bytes, topic, api_key: int, values: tuple[Any, ...]): ...
def count_failed_request(context, api_key: int): ...
def put_reader_position(principal: bytes, client_id: bytes, slot: int, incarnation: int, offset: int, ended: bool=False): ...
def tables(): ...
def forget_indexes(): ...
