"""The limits of replication (KIP-73), from the configuration to the native code of a process.

Each process that sends or fetches records of replicas sets its own limit when it starts and when the configuration changes.
"""

from odradek._ext.shm.replication_quota import QuotaSide, set_limit, set_windows
from odradek.config.broker_config import BrokerConfig
from odradek.config.key import MAX_LONG

_RATES = {
    QuotaSide.QUOTA_LEADER: "leader.replication.throttled.rate",
    QuotaSide.QUOTA_FOLLOWER: "follower.replication.throttled.rate",
}


def begin_quotas(config: BrokerConfig) -> None:
    """Set the windows of time in which the rates are measured. Called before the first process of the broker is forked."""
    set_windows(config.integer("replication.quota.window.num"), config.integer("replication.quota.window.size.seconds"))


def limit_replication(config: BrokerConfig, side: QuotaSide, sharers: int) -> None:
    """Use the configured limit of a rate in this process. The largest value of the key means no limit.

    :param sharers: the number of processes or threads that send or fetch at the same time.
    """
    rate = config.integer(_RATES[side])
    set_limit(side, None if rate == MAX_LONG else rate, sharers)
