"""The table of configuration keys, Kafka's own names and meanings, and a broker's configuration made from it."""

from odradek.config.broker_config import BrokerConfig, Setting, UnknownKey, load
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener
from odradek.config.table import validate_topic_config, validate_topic_configs

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
