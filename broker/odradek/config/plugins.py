"""Loads Python classes of the operator, which a configuration key names as `package.module:Class`.

Runs in the process that uses the object. The broker must be able to import the module.
"""

import importlib
from typing import Any

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.table import broker_key


def make_plugin(config: BrokerConfig, key: str, method: str, argument: str) -> Any | None:
    """Create an object of the class that the key names; return None if the key is not set.

    The class is called without arguments. If the object has a method `configure`, it is called once with the settings of the
    broker that are set, without passwords.

    :param method: a method that the object must have.
    :param argument: the name of the method's parameter, for the error.
    :raises ConfigError: the class does not exist, cannot be instantiated, or lacks the method.
    """
    text = config.get(key)
    if not text:
        return None

    def plugin_error(reason: str) -> ConfigError:
        return ConfigError(
            key, str(text), f"{reason}; expected a Python class as package.module:Class", config.where(key)
        )

    module_name, _, class_name = str(text).partition(":")
    if not class_name:
        raise plugin_error("contains no class name (Java classes cannot be loaded)")
    try:
        plugin: Any = getattr(importlib.import_module(module_name), class_name)()
        if not callable(getattr(plugin, method, None)):
            raise plugin_error(f"has no method {method}({argument})")
        if hasattr(plugin, "configure"):
            plugin.configure({name: setting.text for name, setting in config.settings.items() if not _is_secret(name)})
    except ConfigError:
        raise
    except Exception as error:  # the code of the operator can raise anything
        raise plugin_error(f"cannot be loaded: {type(error).__name__}: {error}") from error
    return plugin


def _is_secret(name: str) -> bool:
    key = broker_key(name)
    return key is None or key.sensitive
