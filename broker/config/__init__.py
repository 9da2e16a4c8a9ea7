"""The table of configuration keys, Kafka's own names and meanings, and a broker's configuration made from it."""

from broker.config.broker_config import BrokerConfig, Setting, UnknownKey, load
from broker.config.errors import ConfigError
from broker.config.listeners import Listener
from broker.config.table import validate_topic_config, validate_topic_configs

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "Listener",
    "Setting",
    "UnknownKey",
    "load",
    "validate_topic_config",
    "validate_topic_configs",
]
