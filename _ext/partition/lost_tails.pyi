from collections import namedtuple

LostRecords = namedtuple('LostRecords', 'state lost_bytes log_end_offset')

def lost_tail(index: int): ...
