"""The table of configuration keys, with Kafka's names and meanings, and the configuration of a broker.

The names are imported at their first use: clients import modules of this package, but neither the table nor BrokerConfig.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
_OTHER_MODULES = {
    "ConfigError": "errors",
    "Listener": "listeners",
    "validate_topic_config": "table",
    "validate_topic_configs": "table",
}
"""The modules of the names that are not from `broker_config`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_OTHER_MODULES.get(name, 'broker_config')}"), name)
