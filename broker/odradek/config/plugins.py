"""Python classes of the operator that a configuration key names as `package.module:Class`.

Pure functions, in whichever process uses the object. The module must be importable by the broker.
"""

import importlib
from typing import Any

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.table import broker_key


def make_plugin(config: BrokerConfig, key: str, method: str, argument: str) -> Any | None:
    """An object of the class that this key names; None if the key is not set.

    The class is called without arguments. Its method `configure`, if it has one, is then called once, with the broker's
    settings that somebody set, passwords left out.

    :param method: what the object must have; `argument`: the name of its parameter, for the message.
    :raises ConfigError: there is no such class, it cannot be made, or it has no such method.
    """
    text = config.get(key)
    if not text:
        return None

    def wrong(reason: str) -> ConfigError:
        return ConfigError(
            key, str(text), f"{reason}; expected a Python class as package.module:Class", config.where(key)
        )

    module_name, _, class_name = str(text).partition(":")
    if not class_name:
        raise wrong("names no class (classes of Java cannot be loaded)")
    try:
        made: Any = getattr(importlib.import_module(module_name), class_name)()
        if not callable(getattr(made, method, None)):
            raise wrong(f"has no method {method}({argument})")
        if hasattr(made, "configure"):
            made.configure({name: one.text for name, one in config.settings.items() if not _is_secret(name)})
    except ConfigError:
        raise
    except Exception as error:  # it is the operator's code
        raise wrong(f"cannot be loaded: {type(error).__name__}: {error}") from error
    return made


def _is_secret(name: str) -> bool:
    key = broker_key(name)
    return key is None or key.sensitive
