"""The table of configuration keys, with Kafka's names and meanings, and the configuration of a broker."""

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
