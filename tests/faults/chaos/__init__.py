"""A long run of faults under load: ``python -m tests.faults.chaos --minutes 60`` (``make chaos``).

Producers, readers, a consumer group, a compacted topic and topics that are created and deleted run against one broker on a
small disk, while its processes are killed and stopped and its disk is filled. Checks run all the time, so that a run may last
for hours in bounded memory.
"""
