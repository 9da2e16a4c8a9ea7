"""Gets a generated broker id from ZooKeeper before the first process of the broker starts.

The supervisor must have no threads when it forks, and kazoo has three. So a child process, which ends at once, asks ZooKeeper.
"""

import os
import traceback

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError


class NoGeneratedId(Exception):
    """ZooKeeper generated no id; the message says why."""


def generated_broker_id(config: BrokerConfig) -> int:
    """A new broker id from ZooKeeper. Waits for it up to zookeeper.connection.timeout.ms. Raises NoGeneratedId."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            outcome = _outcome(config)
            os.write(writer, outcome.encode())
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, "rb") as pipe:
        outcome = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if not outcome.isdigit():
        raise NoGeneratedId(outcome or f"the process that asked for it ended with status {status}")
    return int(outcome)


def _outcome(config: BrokerConfig) -> str:
    """The id, or the reason why there is none. Called in the child, which is the only process that imports kazoo here."""
    from odradek.metadata.broker_ids import generate_broker_id
    from odradek.metadata.store import StoreError
    from odradek.metadata.zookeeper import open_zookeeper

    try:
        store = open_zookeeper(config)
        try:
            return str(generate_broker_id(store, config.integer("reserved.broker.max.id")))
        finally:
            store.close()
    except (StoreError, ConfigError) as error:
        return str(error)
