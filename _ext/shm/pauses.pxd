"""Whether this broker, or its coordinator alone, stood still for so long that other brokers may lead its partitions [R 12].

A broker that is stopped, or whose machine is suspended, for longer than its session in ZooKeeper is a deposed leader when it continues,
and does not know it. The same is true for a broker whose coordinator stands still or is dead, because the coordinator keeps the session.
The supervisor notes every pause of the broker, and the coordinator's thread that keeps the session notes every pause of its own; the
coordinator confirms afterwards that the registration still exists, or that the broker has given up its leaderships. In between, a leader
must not acknowledge records that no other replica has.

The clock of these words is CLOCK_BOOTTIME, which also counts the time in which the machine was suspended.
"""

# Whether this broker may have been deposed during a pause that ended before this call: found, or not found yet.
cdef bint in_doubt() noexcept nogil
