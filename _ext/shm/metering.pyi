from typing import TypedDict

from odradek._ext.shm.meter_layout import *

PROBE_NAMES = ('parked_requests', 'parked_fetches', 'parked_produces', 'parked_forwards', 'queued_bytes', 'connections_limit', 'fetch_sessions', 'fetch_session_partitions', 'kept_bytes', 'replica_max_lag', 'replica_failed', 'session_state', 'session_since_ms', 'acls', '', '', 'socket_bytes_in', 'socket_bytes_out', 'sendfile_bytes', 'unsent_bytes', 'unused_bytes_in', 'frames', 'bad_frames', 'connections_accepted', 'closed_eof', 'closed_reset', 'closed_idle', 'closed_bad_frame', 'closed_other_protocol', 'closed_handler', 'closed_file', 'closed_error', 'closed_asked', 'turns', 'turn_us', 'cpu_us', 'busy_us', 'bytes_rejected', 'produce_failed', 'fetch_failed', 'folded', 'retired_entries', 'forwarded_requests', 'forwarded_bytes_in', 'forwarded_bytes_out', 'cleaner_passes', 'segments_removed', 'bytes_removed', 'compactions', 'connections_refused', 'connections_full', 'fetch_sessions_evicted', 'late_requests', 'forgotten_bytes', 'replication_bytes_in', 'in_sync_shrinks', 'in_sync_expansions', 'replication_bytes_out', 'in_sync_failed', 'unclean_elections', 'election_events', 'election_us', 'sessions_expired', 'session_disconnects', 'verifications', 'verification_failures', 'verification_us', 'transactions_committed', 'transactions_aborted', 'transaction_completion_us', 'transactions_timed_out', 'transactions_fenced', 'transaction_markers', 'transaction_marker_failures', 'transactional_ids_expired', 'authorizations_allowed', 'authorizations_denied')

class ReaderPlace(TypedDict):
    number: int
    since: int

class Client(TypedDict):
    number: int
    since: int

def set_idle_ms(idle_ms: int): ...
def count(name: str, n: int=1): ...
def gauge(name: str, value: int): ...
def count_loop_delay(us: int): ...
def count_request_errors(api_key: int, codes): ...
def count_failed_request(context, api_key: int): ...
