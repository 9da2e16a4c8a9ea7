from collections import namedtuple

RoleFacts = namedtuple('RoleFacts', 'role incarnation leader_id leader_epoch partition_epoch controller_epoch leader_epoch_start recovering log_start_offset log_end_offset high_watermark min_in_sync replicas adding removing in_sync max_in_sync in_sync_state in_sync_serial in_sync_ms fetch_error followers')
FollowerState = namedtuple('FollowerState', 'broker_id broker_epoch log_end_offset log_start_offset fetched_ms_ago caught_up_ms_ago')

def describe_role(index: int) -> RoleFacts: ...
