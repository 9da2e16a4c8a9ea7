"""The features of the cluster (KIP-584): their supported levels, and the levels in force.

Pure functions of the configuration; every process receives a change of the configuration. The level and the epoch are
settings of all brokers, so they are stored and announced like other settings. UpdateFeatures changes both together.
"""

from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig

TRANSACTION_VERSION = "transaction.version"
LEVEL_KEY = "odradek.transaction.version"
EPOCH_KEY = "odradek.features.epoch"
AUTOMATIC = -1
NEWEST_TRANSACTION_VERSION = 2


class Levels(NamedTuple):
    """The lowest and the highest level of a feature that this broker supports."""

    lowest: int
    highest: int


SUPPORTED = {TRANSACTION_VERSION: Levels(0, NEWEST_TRANSACTION_VERSION)}


def transaction_version(config: BrokerConfig) -> int:
    """The level of transaction.version in force.

    If no level was set, it is 2 for a single broker. In a cluster it is 0, because brokers of Kafka 3.9 may belong to the
    cluster, and they know no later level.
    """
    level = config.integer(LEVEL_KEY)
    if level != AUTOMATIC:
        return level
    return 0 if config.clustered else NEWEST_TRANSACTION_VERSION


def finalized(config: BrokerConfig) -> dict[str, int]:
    """The levels in force by feature; a feature of level 0 is left out, as in Kafka."""
    level = transaction_version(config)
    return {TRANSACTION_VERSION: level} if level else {}


def epoch(config: BrokerConfig) -> int:
    """A number that each change of a level increments, so that clients recognise the newest response."""
    return config.integer(EPOCH_KEY)
